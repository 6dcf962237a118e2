"""`dpsgd`: differentially private stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from harness.api import Config, DefenseSpec, Stage, hookimpl


class DpSgdConfig(Config):
    """The privacy budget, or the noise itself; and the bound on each image's gradient."""

    epsilon: float | None = Field(
        8.0,
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="ε that the whole training may spend; the noise follows from it",
    )
    noise_multiplier: float | None = Field(
        None,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="σ, deviation of the noise over clip, instead of epsilon",
    )
    clip: float = Field(
        1.0,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="largest L2 norm that the gradient of one image keeps",
    )
    delta: float = Field(
        1e-5,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="δ: should be well below one over the number of images",
    )

    @model_validator(mode="before")
    @classmethod
    def _noise_instead_of_budget(cls, given: Any) -> Any:
        """Naming the noise alone switches the default budget off."""
        if isinstance(given, dict) and given.get("noise_multiplier") is not None:
            return {"epsilon": None, **given}
        return given

    @model_validator(mode="after")
    def _one_of_both(self) -> DpSgdConfig:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError(
                "give exactly one of epsilon (0 < epsilon <= 1000) and noise_multiplier "
                "(0 < noise_multiplier <= 1e6): each follows from the other"
            )
        return self


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """DP-SGD."""
    return [
        DefenseSpec(
            name="dpsgd",
            version="1",
            summary="differentially private SGD: gradients clipped per image, summed, with noise",
            reference="Abadi et al. 2016, Deep Learning with Differential Privacy, "
            "arXiv:1607.00133, algorithm 1; computed by Opacus, arXiv:2109.12298",
            factory="harness_plugins.defenses.dpsgd.defense:DpSgd",
            config=DpSgdConfig,
            stage=Stage.TRAINING,
            no_ceiling=(
                "its guarantee is of the trained weights and stands among the measures as their "
                "own epsilon; it bounds no score of an image"
            ),
            trains_alone=True,
            formula=(
                "g~ = (1/B) (sum_i g_i min(1, clip / ||g_i||) + sigma clip N(0, I))\n"
                "each image joins a step with probability q = batch_size / images;  B = q images\n"
                "sigma: the smallest that the Renyi accountant finds to spend epsilon at delta "
                "over all steps; neighbours differ by one image more or less"
            ),
            weaknesses=(
                "the guarantee is per image of one release: a person with many images has less, "
                "and so has an image that an encoding defense mixed into several encodings",
                "epsilon is that of the training; gradients that are released besides are "
                "batches the attacker knows, each worth epsilon_per_gradient of its own",
                "epsilon guards the weights alone: it does not cover features h(x) of private "
                "images that are released",
                "noise comes from a seeded generator that is not cryptographic, in floating "
                "point: a deployment needs Opacus' secure mode",
                "small epsilon costs accuracy, most of all on few images",
                "the budget counts one training: trying settings on the same images adds up",
            ),
            example="harness evaluate --defense 'dpsgd[epsilon=3]' --victim 'cnn[norm=group]'",
        )
    ]
