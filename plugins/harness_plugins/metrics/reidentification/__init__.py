"""`reidentification`: whether the true image is the one nearest to its reconstruction."""

from harness.api import MetricSpec, hookimpl


@hookimpl
def harness_metrics() -> list[MetricSpec]:
    """One metric."""
    return [
        MetricSpec(
            name="reidentification",
            version="1",
            summary="how often the image nearest to a reconstruction is the true one, among the "
            "private images and as many decoys",
            reference="nearest neighbour by mean squared error",
            factory="harness_plugins.metrics.reidentification.nearest:Reidentification",
            formula="1 where ‖x̂−x‖ < ‖x̂−x'‖ for every other private image or decoy x', else 0",
            leaks_more="higher",
            range=(0.0, 1.0),
            unit="proportion",
            of="anything",
        )
    ]
