"""Pixel-by-pixel metrics: `snr_db`, `psnr`, `mse`, `cosine`."""

import math

from harness.api import MetricSpec, hookimpl

_SCORES = "harness_plugins.metrics.pixelwise.scores"


@hookimpl
def harness_metrics() -> list[MetricSpec]:
    """Four metrics on the squared error or the angle of two images."""
    return [
        MetricSpec(
            name="snr_db",
            version="1",
            summary="signal over error, on standardised images; a mean image scores about 0 dB",
            reference="singularized mixup, section 5: SNR of the recovered image",
            factory=f"{_SCORES}:SnrDb",
            formula="10·log10(Σx² / Σ(x−x̂)²), capped at ±120 dB; undefined where Σx² = 0",
            leaks_more="higher",
            range=(-120.0, 120.0),
            unit="dB",
            of="anything",
        ),
        MetricSpec(
            name="psnr",
            version="1",
            summary="peak signal over error, on images in [0,1]",
            reference="usual definition with a peak of 1",
            factory=f"{_SCORES}:Psnr",
            formula="−10·log10(mse), capped at 120 dB",
            leaks_more="higher",
            range=(0.0, 120.0),
            unit="dB",
        ),
        MetricSpec(
            name="mse",
            version="1",
            summary="mean squared error, on images in [0,1]; of anything else, as it is",
            reference="usual definition",
            factory=f"{_SCORES}:Mse",
            formula="mean((x−x̂)²)",
            leaks_more="lower",
            range=(0.0, math.inf),
            of="anything",
        ),
        MetricSpec(
            name="cosine",
            version="1",
            summary="cosine of the angle between standardised images",
            reference="usual definition; a reconstruction of zero energy scores 0",
            factory=f"{_SCORES}:Cosine",
            formula="⟨x,x̂⟩ / (‖x‖·‖x̂‖); undefined where ‖x‖ = 0",
            leaks_more="higher",
            range=(-1.0, 1.0),
            of="anything",
        ),
    ]
