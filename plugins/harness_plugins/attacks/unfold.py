"""`unfold`: masked mixtures of known images and weights, solved for images with signs."""

from __future__ import annotations

from harness.api import AttackSpec, Control, hookimpl
from harness_plugins.mixtures import KNOWN_LAW, PRIOR
from harness_plugins.signs import DEMASKING, UNFOLDING
from harness_plugins.unfolding import UnfoldConfig

_ONE = {"private_size": 200}
_SEVERAL = {"private_size": 200, "rounds": 10}


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Sign masks with the mixture known."""
    return [
        AttackSpec(
            name="unfold",
            version="1",
            summary="known mixtures under sign masks: solved on absolute values or after demasking",
            reference="Carlini et al., Is Private Learning Possible with Instance Encoding?, the "
            "last stage, and a learned prior of signs; the signed way is this benchmark's own",
            factory="harness_plugins.unfolding.attack:Unfold",
            config=UnfoldConfig,
            needs=(KNOWN_LAW,),
            preparations=(PRIOR, DEMASKING, UNFOLDING),
            effort="sweeps",
            controls=(
                Control("instahide[k=2]", "fashion-mini", "snr_db", 20.0, options=_SEVERAL),
                Control("instahide[k=1]", "fashion-mini", "snr_db", 7.0, options=_ONE),
            ),
            presets={
                "quick": {"epochs": 2, "images": 4_000, "steps": 150},
                "standard": {"base": 24, "epochs": 6, "images": 50_000},
            },
            formula=(
                "absolute: |X| = argmin mean((|X~| - |W X|)^2) + spread mean(1 - |X|) "
                "+ tv TV(|X|);  x^ = |x| tanh(net(|x|))\n"
                "signed: in turns, S = E sign = tanh(net(|x~|, w) + |x~| (W X) / a^2) and\n"
                "  X = argmin (W X - |X~| S)^2 / (|X~|^2 (1 - S^2) + a^2) + (X - mean)' C^-1 "
                "(X - mean),\n"
                "  a falling from .5 to .003; the way and the number of turns by public images"
            ),
            weaknesses=(
                "one round has as many unknowns as values: then the signs that the network got "
                "wrong stay wrong",
                "public images in a mixture are noise to it, and moved images are not followed",
            ),
            example="harness evaluate --defense 'instahide[k=2]' --rounds 10 --attack unfold",
        )
    ]
