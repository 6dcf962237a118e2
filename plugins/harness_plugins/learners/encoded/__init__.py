"""`encoded`: the victim, asked as the defense itself asks."""

from __future__ import annotations

from harness.api import Config, Control, LearnerSpec, hookimpl


@hookimpl
def harness_learners() -> list[LearnerSpec]:
    """Declare the learner."""
    return [
        LearnerSpec(
            name="encoded",
            version="1",
            summary="the victim, trained on the release and asked by the defense's own inference",
            reference="InstaHide: Instance-hiding Schemes for Private Distributed Learning, "
            "section 3.3: test images are encoded before they are asked about",
            factory="harness_plugins.learners.encoded.learner:Encoded",
            config=Config,
            controls=(Control("instahide[k=2]", "fashion-mini", "accuracy", 0.6),),
            formula="trained as `network` trains; logit_c(x) by the defense: InstaHide's is the "
            "log of the mean softmax over encodings of x with public partners",
            weaknesses=(
                "not applicable to defenses that ask about plain images",
                "partners are public images: a server has no private ones",
            ),
            example="harness evaluate --defense 'instahide[k=2]' --learner encoded",
        )
    ]
