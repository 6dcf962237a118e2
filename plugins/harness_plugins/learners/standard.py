"""`standard`: all of the built-in learners; the best one counts."""

from __future__ import annotations

from harness.api import LearnerSpec, hookimpl


@hookimpl
def harness_learners() -> list[LearnerSpec]:
    """Declare the set."""
    return [
        LearnerSpec(
            name="standard",
            version="1",
            summary="closed forms and networks; the best on images to choose by counts",
            reference="each member's own",
            factory="",
            members=(
                "classmeans",
                "ridge",
                "centroid-filter",
                "network",
                "network[batchnorm=avoid]",
                "encoded",
            ),
            weaknesses=("a release that teaches them nothing may teach another learner something",),
            example="harness evaluate --defense 'singmix[tau=1e-2]' --learner standard",
        )
    ]
