"""`exact`: the known mixture, solved as if there were no noise."""

from __future__ import annotations

from harness.api import AttackSpec, Control, hookimpl
from harness_plugins.mixtures import MIXTURE
from harness_plugins.mixtures.options import OfSubspace


class ExactConfig(OfSubspace):
    """Where the system is solved."""


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """Plain inversion."""
    return [
        AttackSpec(
            name="exact",
            version="1",
            summary="solves the known mixture exactly, noise and all",
            reference="Augmented Mixup Procedure for Privacy-Preserving Collaborative Training, "
            "theorem 4.1: the estimator whose error T_i bounds",
            factory="harness_plugins.attacks.exact.attack:Exact",
            config=ExactConfig,
            needs=(MIXTURE,),
            linear="yes",
            controls=(
                Control("none", "fashion-mini", "snr_db", 60.0),
                Control("mixup[k=2]", "fashion-mini", "snr_db", 40.0),
            ),
            formula=(
                "x^ = W^-1 x~; pairs of one round: x_i + r_i x_next(i) = x~_i / w_i, "
                "r_i = (1 - w_i) / w_i, along each cycle of the permutation, turned round where "
                "the product of all r is above 1: O(n d)\n"
                "any other mixture: sparse LU where W is square and small, else least squares by "
                "conjugate gradients"
            ),
            weaknesses=(
                "has no prior: what noise there is comes back multiplied by W^-1, and its answers "
                "lie far below any null",
                "public images of a mixture are noise to it",
            ),
            example="harness evaluate --defense 'mixup[k=2]' --attack exact",
        )
    ]
