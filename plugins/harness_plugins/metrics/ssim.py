"""`ssim`: structural similarity, computed by scikit-image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.api import Metric, MetricSpec, hookimpl

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

WINDOW = 11
"""Side of the Gaussian window: 2·int(3.5·σ + ½) + 1 pixels, as scikit-image cuts it off."""

CHUNK_VALUES = 2**15
"""Values of one chunk of images: the dozen float64 arrays of that size stay in the cache."""


class Ssim(Metric):
    """Mean structural similarity over the windows that lie inside the image, and over channels.

    In float64 on purpose: the variances are small differences of large numbers.
    """

    def unavailable(self, shape: tuple[int, ...]) -> str | None:
        """Images must hold one window."""
        height, width = shape[-2:]
        if min(height, width) >= WINDOW:
            return None
        return f"images of {height}×{width} px are smaller than SSIM's window of {WINDOW} px"

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n] in [-1,1]."""
        import torch

        chunk = max(1, CHUNK_VALUES // truth[0].numel())
        pairs = zip(truth.cpu().split(chunk), images.cpu().split(chunk), strict=True)
        return torch.cat([torch.from_numpy(_ssim(x.numpy(), y.numpy())) for x, y in pairs])


def _ssim(truth: np.ndarray, images: np.ndarray) -> np.ndarray:
    """[n] for images [n, c, h, w], to the last bit what scikit-image gives for each alone.

    It has no batches, and a call for each image takes four times as long. So all planes go in as
    one tall plane. The border that scikit-image leaves out of its mean, because windows there
    reach over the edge, is left out of every plane here; no window inside reaches another plane.
    """
    import numpy as np
    from skimage.metrics import structural_similarity

    tall = (-1, truth.shape[-1])
    _, found = structural_similarity(
        truth.astype(np.float64).reshape(tall),
        images.astype(np.float64).reshape(tall),
        data_range=1,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        full=True,
    )
    border = WINDOW // 2
    inside = found.reshape(truth.shape)[..., border:-border, border:-border]
    return np.array([[plane.mean() for plane in image] for image in inside]).mean(axis=1)


@hookimpl
def harness_metrics() -> list[MetricSpec]:
    """One metric."""
    return [
        MetricSpec(
            name="ssim",
            version="1",
            summary="structural similarity of images in [0,1], raw (it may be negative)",
            reference="Wang et al. 2004, equation 13; scikit-image's structural_similarity",
            factory="harness_plugins.metrics.ssim:Ssim",
            formula="data_range=1, gaussian_weights=True, sigma=1.5, use_sample_covariance=False",
            leaks_more="higher",
            range=(-1.0, 1.0),
        )
    ]
