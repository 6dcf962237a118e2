"""`exchangeable`: what is best for whoever looks for the target among images drawn like it."""

from __future__ import annotations

from pydantic import Field

from harness.api import CeilingSpec, Config, hookimpl

FEWEST = 100
"""Candidates beside the target: with fewer, the ceiling would say how few there are."""


class ExchangeableConfig(Config):
    """How many candidates there are, and how often noise is drawn."""

    candidates: int = Field(
        default=10_000,
        ge=FEWEST,
        le=1_000_000,
        description="images that the target is looked for among, at the most: more bring the "
        "ceiling down to what can be reached",
    )
    targets: int = Field(
        default=1000,
        ge=2,
        le=1_000_000,
        description="targets that it is averaged over, at the most",
    )
    draws: int = Field(
        default=4, ge=1, le=1000, description="draws of noise on each target, averaged"
    )


@hookimpl
def harness_ceilings() -> list[CeilingSpec]:
    """Bayes among exchangeable candidates."""
    return [
        CeilingSpec(
            name="exchangeable",
            version="1",
            summary="Bayes among images that are drawn like the target: pooled SNR, identification "
            "and the share of images had are never more",
            reference="Bayes' theorem with side information: the posterior over a shuffled set "
            "that holds the target. Partners told: 1/v = sum over rows of (c/s)^2",
            factory="harness_plugins.ceilings.exchangeable.ceiling:Exchangeable",
            config=ExchangeableConfig,
            presets={"quick": {"candidates": 2000, "draws": 2}},
            formula=(
                "y = x + N(0, v I),  1/v = sum over the rows i that hold x of (c_i / s_i)^2\n"
                "p_k = softmax_k(-|y - x_k|^2 / 2v) over S = {x} and others drawn alike\n"
                "pooled SNR <= 10 log10(sum |x|^2 / sum |x - sum_k p_k x_k|^2)\n"
                "identification <= E max_k p_k\n"
                "had within s dB <= E max_k sum_j p_j [|x_j - x_k| <= rho_j + rho_k],  "
                "rho = |x| 10^(-s/20)\n"
                "laplace noise of single rows: p_k = softmax_k(-|y - (1 - alpha) x_k|_1 / b)"
            ),
            weaknesses=(
                "few candidates are more help than a population: where the posterior names the "
                "target it says nothing, and says so",
                "it bounds one attack that names its targets, not the best of several image by "
                "image, nor answers that are matched to the truth",
                "an attacker with a better prior than the population is not bounded",
                "pixels are compared: a picture that looks right and is shifted counts as wrong",
            ),
            example="harness ceiling --ceiling exchangeable --dataset fashion-mini --defense "
            "'singmix[tau=1e-2,noise=gaussian,calibrate=public]'",
        )
    ]
