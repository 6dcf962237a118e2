"""`lmmse`: the best linear attack for the stated noise, on a known mixture."""

from __future__ import annotations

from harness.api import AttackSpec, Channel, Control, hookimpl
from harness_plugins.mixtures import KNOWN_LAW, PRIOR_BY_OPTION
from harness_plugins.mixtures.options import OfPrior


class LmmseConfig(OfPrior):
    """How images are modelled, and where."""


@hookimpl
def harness_attacks() -> list[AttackSpec]:
    """The linear minimum mean squared error estimate."""
    return [
        AttackSpec(
            name="lmmse",
            version="1",
            summary="the best linear attack for the stated noise: the mean of all images' joint "
            "Gaussian posterior",
            reference="linear minimum mean squared error estimation, e.g. Kay, Fundamentals of "
            "Statistical Signal Processing: Estimation Theory, chapter 12; applied to mixtures "
            "here for the first time, against the attack of singularized mixup's section 5",
            factory="harness_plugins.attacks.lmmse.attack:Lmmse",
            config=LmmseConfig,
            needs=(KNOWN_LAW,),
            optional=frozenset({Channel.LABELS}),
            preparations=(PRIOR_BY_OPTION,),
            linear="optimal",
            controls=(
                Control("none", "fashion-mini", "snr_db", 60.0),
                Control("mixup[k=2]", "fashion-mini", "snr_db", 40.0),
                Control("singmix[tau=1]", "fashion-mini", "snr_db", 7.0),
            ),
            formula=(
                "X~ = W X + E, rows of X normal with mean m and covariance U diag(l) U'\n"
                "x^ = m + U z, column c of z from (W'W/N + 1/l_c) z_c = W'(X~ - W m)U_c/N\n"
                "N: power of each row's noise, measured on public images that the attacker encodes "
                "itself; pairs of one round: periodic tridiagonal along the cycles of the "
                "permutation, O(n) a column; else conjugate gradients"
            ),
            weaknesses=(
                "takes noise for white: where it is not, `regression` does better; a flag says so",
                "least expected squared error, not the largest mean of decibels: on images that "
                "are not Gaussian a nonlinear attack may do better",
                "only as good as the public images' mean and covariance resemble the private ones'",
                "random signs leave no linear trace: the answer is then the mean image",
            ),
            example="harness evaluate --defense 'singmix[tau=1e-2]' --attack 'lmmse[mean=public]'",
        )
    ]
