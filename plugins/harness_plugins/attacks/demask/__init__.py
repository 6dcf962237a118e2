"""`demask`: signs under a mask, guessed by a network trained on public mixtures."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import AttackSpec, Channel, Control, hookimpl
from harness_plugins.signs import DEMASKING_BY_OPTION, SignConfig


class DemaskConfig(SignConfig):
    """How the network is taught."""

    method: Literal["regression", "gan"] = Field(
        default="regression",
        description="regression: cross entropy of the signs; gan: beside it a critic that must "
        "take demasked mixtures for true ones",
    )


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Sign recovery, InstaHide 5.3."""
    return [
        AttackSpec(
            name="demask",
            version="1",
            summary="guesses the signs under a mask by a network trained on public mixtures",
            reference="InstaHide: Instance-hiding Schemes for Private Distributed Learning, "
            "section 5.3, figure 6",
            factory="harness_plugins.attacks.demask.attack:Demask",
            config=DemaskConfig,
            needs=(frozenset({Channel.ENCODINGS, Channel.PUBLIC, Channel.ENCODER}),),
            optional=frozenset({Channel.WEIGHTS}),
            preparations=(DEMASKING_BY_OPTION,),
            effort="epochs",
            controls=(
                Control(
                    "instahide[k=2]",
                    "fashion-mini",
                    "sign_accuracy",
                    0.78,
                    options={"private_size": 200},
                ),
            ),
            presets={
                "quick": {"epochs": 2, "images": 4_000},
                "standard": {"base": 24, "epochs": 6, "images": 50_000},
                "paper": {"method": "gan", "base": 32, "epochs": 20, "images": 50_000},
            },
            formula=(
                "m^ = |x~| tanh(net(|x~|, w)),  var m = |x~|^2 (1 - tanh^2);\n"
                "loss = - mean of m^2/<m^2> log p(sign m), on public images under the owner's law\n"
                "gan: + .02 of what a critic on (m^, |x~|) adds\n"
                "image = mean + share (m^ - mean), share by regression on held-out public images"
            ),
            weaknesses=(
                "a mixture is not an image: the better the signs, the plainer the partners show",
                "uses one encoding at a time, though rounds of one image share its signs",
            ),
            example="harness evaluate --defense 'instahide[k=2]' --attack 'demask[method=gan]'",
        )
    ]
