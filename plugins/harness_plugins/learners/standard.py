"""Sets of the built-in learners: all of them, or the closed forms that use public images."""

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
            weaknesses=("where the best of them learns no more than chance, another learner may",),
            example="harness evaluate --defense 'singmix[tau=1e-2]' --learner standard",
        ),
        LearnerSpec(
            name="closed",
            version="1",
            summary="closed forms that use public images and read a release once: for many images",
            reference="each member's own",
            factory="",
            members=("classmeans", "ridge", "noisymeans"),
            weaknesses=(
                "they are linear: what networks see beyond a linear map stays unseen; so does what "
                "`centroid-filter`, a closed form without public images, would find",
            ),
            example="harness evaluate --only utility --private-size 3000 --rounds 20 "
            "--learner closed",
        ),
    ]
