"""`mixup`: every image is mixed with k - 1 other private images."""

from __future__ import annotations

from pydantic import Field, model_validator

from harness.api import Config, DefenseSpec, Stage, hookimpl


class MixupConfig(Config):
    """How many images are mixed, and how much of one a mixture may hold."""

    k: int = Field(default=4, ge=2, le=64, description="images in a mixture, its own included")
    max_weight: float = Field(
        default=0.65,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="largest weight an image may get, above 1/k; InstaHide's c1",
    )

    @model_validator(mode="after")
    def _reachable(self) -> MixupConfig:
        if self.max_weight * self.k <= 1:
            raise ValueError(
                f"max_weight={self.max_weight} cannot be met: the largest of k={self.k} weights "
                f"that sum to 1 is at least 1/k = {1 / self.k:.4g}; use more than that"
            )
        return self


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """Mixup as a defense."""
    return [
        DefenseSpec(
            name="mixup",
            version="1",
            summary="mixup: weighted sums of k private images and of their labels",
            reference="Huang et al., InstaHide, 2020, algorithm 1, with the bound c1 of "
            "algorithm 2; Huang et al., Evaluating Gradient Inversion Attacks and Defenses, 2021, "
            "appendix (k of 4 and 6, at most .65). In a feature space: FaceMix, Liu et al. 2019",
            factory="harness_plugins.defenses.mixup.encode:Mixup",
            config=MixupConfig,
            stage=Stage.ENCODING,
            formula=(
                "x~_i = sum_j l_ij x_pi_j(i),  y~_i = sum_j l_ij y_pi_j(i),  j = 1..k,\n"
                "pi_1(i) = i, pi_2..pi_k random permutations, no image twice in a row;\n"
                "l_i = u / ||u||_1,  u uniform on [0,1]^k, redrawn while max_j l_ij > max_weight"
            ),
            weaknesses=(
                "known weights and sources make it n linear equations for n images, without noise: "
                "least squares gives the images back",
                "encodings that share an image have a larger inner product (InstaHide, 2.1)",
                "averaging encodings of one image, over rounds, brings the image out",
                "soft labels tell the weights of the classes in a mixture",
            ),
            example="harness evaluate --defense 'mixup[k=6]'",
        )
    ]
