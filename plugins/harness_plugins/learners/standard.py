"""Sets of the built-in learners: all of them, or those that train no network."""

from __future__ import annotations

from harness.api import LearnerSpec, hookimpl


@hookimpl
def harness_learners() -> list[LearnerSpec]:
    """Declare the sets."""
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
                "noisymeans",
            ),
            weaknesses=("a release that teaches them nothing may teach another learner something",),
            example="harness evaluate --defense 'singmix[tau=1e-2]' --learner standard",
        ),
        LearnerSpec(
            name="closed",
            version="1",
            summary="closed forms alone, which read a release once: for many images or rounds",
            reference="each member's own",
            factory="",
            members=("classmeans", "ridge", "noisymeans"),
            weaknesses=("they are linear: what networks see beyond a linear map stays unseen",),
            example="harness evaluate --only utility --private-size 3000 --rounds 20 "
            "--learner closed",
        ),
    ]
