"""`centroid-filter`: pooled class centroids as normalised matched filters, of nothing public."""

from __future__ import annotations

from pydantic import Field

from harness.api import Config, Control, LearnerSpec, hookimpl
from harness_plugins.learners.known_signal import COARSE, SIZES


class CentroidFilterConfig(Config):
    """How coarsely encodings are looked at."""

    pool: int = Field(
        4, ge=1, le=64, description="side of the squares of values that are averaged to one"
    )


@hookimpl
def harness_learners() -> list[LearnerSpec]:
    """Declare the learner."""
    return [
        LearnerSpec(
            name="centroid-filter",
            version="1",
            summary="class centroids of pooled encodings as normalised matched filters",
            reference="nearest centroids (Rocchio, 1971) by the cosine; nothing public is used",
            factory="harness_plugins.learners.centroid_filter.learner:CentroidFilter",
            config=CentroidFilterConfig,
            varies=False,
            controls=(
                Control("none", "fashion-mini", "accuracy", 0.6),
                Control("singmix[tau=1e-1]", COARSE, "share", 0.9, SIZES),
            ),
            formula="m_c = (Y'V Y)^-1 Y'V X~ about their mean, each brought to norm 1; "
            "logit_c(x) = (x - m)'m_c, all of them averaged over squares of pool x pool values; "
            "V: one over each row's mean square",
            weaknesses=(
                "directions in which all images vary count as much as those that tell classes",
                "where signs are hidden it sees absolute values of images that are not encoded",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-4]' --learner centroid-filter",
        )
    ]
