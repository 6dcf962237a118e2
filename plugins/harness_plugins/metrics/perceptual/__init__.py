"""`lpips_alex` and `lpips_vgg`: learned perceptual distance on two trunks."""

from harness.api import Asset, MetricSpec, hookimpl
from harness_plugins.trunks import ALEXNET_TRUNK, VGG16_TRUNK


def _lpips(name: str, summary: str, trunk: Asset, *, slow: bool) -> MetricSpec:
    return MetricSpec(
        name=name,
        version="1",
        summary=summary,
        reference="Zhang et al. 2018, the lpips package's v0.1 heads",
        factory=f"harness_plugins.metrics.perceptual.distance:{name.title().replace('_', '')}",
        formula="Σ_l mean over places of Σ_c w_lc·(f_lc(x) − f_lc(x̂))², f_l of unit length",
        leaks_more="lower",
        # features are nonnegative and of unit length, so the two largest weights of each head
        # bound its layer: together 7.74 (AlexNet) and 5.45 (VGG16)
        range=(0.0, 8.0),
        assets=(trunk,),
        slow=slow,
    )


@hookimpl
def harness_metrics() -> list[MetricSpec]:
    """One metric for each trunk."""
    return [
        _lpips("lpips_vgg", "perceptual distance on VGG16; separates best", VGG16_TRUNK, slow=True),
        _lpips("lpips_alex", "perceptual distance on AlexNet; cheap", ALEXNET_TRUNK, slow=False),
    ]
