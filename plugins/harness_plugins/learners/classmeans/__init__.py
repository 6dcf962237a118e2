"""`classmeans`: class means by least squares on soft labels, in closed form."""

from __future__ import annotations

from pydantic import Field

from harness.api import Config, Control, LearnerSpec, hookimpl
from harness_plugins.learners.known_signal import KNOWN, SIZES


class ClassMeansConfig(Config):
    """How much of the public images' variance is looked at."""

    components: int = Field(
        1024, ge=1, le=4096, description="principal components of public images, at most"
    )


@hookimpl
def harness_learners() -> list[LearnerSpec]:
    """Declare the learner."""
    return [
        LearnerSpec(
            name="classmeans",
            version="1",
            summary="class means by least squares on soft labels, whitened by public images",
            reference="generalised least squares (Aitken, 1936) and linear discriminant analysis "
            "(Fisher, 1936) with empirical-Bayes shrinkage of the means",
            factory="harness_plugins.learners.classmeans.learner:ClassMeans",
            config=ClassMeansConfig,
            varies=False,
            controls=(
                Control("none", "fashion-mini", "accuracy", 0.72),
                Control("singmix[tau=1e-1]", KNOWN, "share", 0.9, SIZES),
            ),
            formula="M^ = (Y'N^-1 Y)^-1 Y'N^-1 X~\n"
            "logit_c(x) = (x - mu)'S^-1 m_c - m_c'S^-1 m_c / 2\n"
            "N: noise of each row, from the law and the row's norm; m_c: M^ shrunk along each "
            "principal component by b / (b + error), b the variance between classes there; S: "
            "what is left of the variance of public images",
            weaknesses=(
                "it is linear: what networks see in images beyond a linear map stays unseen",
                "where signs are hidden it learns from absolute values, whose class means differ "
                "little",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-2]' --learner classmeans",
        )
    ]
