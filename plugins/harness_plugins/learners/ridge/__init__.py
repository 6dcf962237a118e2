"""`ridge`: a linear map from rows to soft labels, with the known noise taken out."""

from __future__ import annotations

from pydantic import Field

from harness.api import Config, Control, LearnerSpec, hookimpl
from harness_plugins.learners.known_signal import KNOWN, SIZES


class RidgeConfig(Config):
    """How many unknowns a class has."""

    components: int = Field(
        1024, ge=1, le=4096, description="principal components of public images, at most"
    )


@hookimpl
def harness_learners() -> list[LearnerSpec]:
    """Declare the learner."""
    return [
        LearnerSpec(
            name="ridge",
            version="1",
            summary="ridge regression of soft labels, the known noise taken out of the Gram matrix",
            reference="errors-in-variables regression (Fuller, 1987) in principal components",
            factory="harness_plugins.learners.ridge.learner:Ridge",
            config=RidgeConfig,
            varies=False,
            controls=(
                Control("none", "fashion-mini", "accuracy", 0.74),
                Control("singmix[tau=1e-1]", KNOWN, "share", 0.88, SIZES),
            ),
            formula="W = (Z'VZ - tr(VN) I + D)^-1 Z'VY,  logit_c(x) = z'W_c - m_c'W_c / 2\n"
            "Z: rows in principal components of public images; N: noise of each row, V = 1 / (N + "
            "content); D: a penalty of each component, from how much of its variance lies between "
            "classes, and what the noise's own sampling leaves in the Gram matrix",
            weaknesses=(
                "its Gram matrix has to be told from the release: at little signal `classmeans`, "
                "which takes it from public images, is better",
                "one matrix of all components: on several rounds of large features it takes the "
                "longest of the closed forms",
            ),
            example="harness evaluate --defense 'singmix[tau=1]' --learner ridge",
        )
    ]
