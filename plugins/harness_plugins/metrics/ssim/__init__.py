"""`ssim`: structural similarity, as scikit-image computes it."""

from harness.api import MetricSpec, hookimpl


@hookimpl
def harness_metrics() -> list[MetricSpec]:
    """One metric."""
    return [
        MetricSpec(
            name="ssim",
            version="1",
            summary="structural similarity of images in [0,1], raw (it may be negative)",
            reference="Wang et al. 2004, equation 13; scikit-image's structural_similarity",
            factory="harness_plugins.metrics.ssim.structural:Ssim",
            formula="data_range=1, gaussian_weights=True, sigma=1.5, use_sample_covariance=False",
            leaks_more="higher",
            range=(-1.0, 1.0),
        )
    ]
