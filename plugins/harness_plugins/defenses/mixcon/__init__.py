"""`mixcon` and `unicon`: training that draws hidden representations together."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import Config, DefenseSpec, Stage, hookimpl

_STRENGTH = "λ, what the penalty is multiplied with in the loss; 0 trains as if undefended"
_LAYER = "name of the block after which h ends, instead of the victim's own cut"
_UNIT = "scale each h(x) to norm 1 first (footnote 3); false takes the distances of h(x) itself"


class MixconConfig(Config):
    """How close representations of different classes are drawn, and what keeps them apart."""

    strength: float = Field(1.0, ge=0, le=1e6, allow_inf_nan=False, description=_STRENGTH)
    beta: float = Field(
        1e-4,
        ge=0,
        le=1e3,
        allow_inf_nan=False,
        description="β, weight of the inverse distance: pairs rest at a squared distance of √β; "
        "0 lets them collapse",
    )
    epsilon: float = Field(
        1e-4,
        gt=0,
        lt=0.25,
        allow_inf_nan=False,
        description="squared distances are held to [ε, 1/ε], outside of which no gradient flows; "
        "β repels only where √β is above ε",
    )
    unit: bool = Field(True, description=_UNIT)
    reduction: Literal["mean", "sum"] = Field(
        "mean",
        description="over the pairs of a batch: equation 1's mean, or its sum without the factor "
        "1/(p |C| (|C| - 1)), which weighs more the larger the batch",
    )
    layer: str | None = Field(None, min_length=1, description=_LAYER)


class UniconConfig(Config):
    """How close representations of one class are drawn."""

    strength: float = Field(1.0, ge=0, le=1e6, allow_inf_nan=False, description=_STRENGTH)
    unit: bool = Field(True, description=_UNIT)
    layer: str | None = Field(None, min_length=1, description=_LAYER)


_PAPER = "MixCon: Adjusting the Separability of Data Representations for Harder Data Recovery"


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """MixCon, and the within-class penalty it is compared with."""
    return [
        DefenseSpec(
            name="mixcon",
            version="1",
            summary="training that draws representations of different classes together",
            reference=f"{_PAPER}, equation 1 and footnote 3",
            factory="harness_plugins.defenses.mixcon.penalties:Mixcon",
            config=MixconConfig,
            stage=Stage.TRAINING,
            no_ceiling=(
                "no noise covers the features that leave, and the network that makes them was "
                "trained on the images: nothing is known of its law"
            ),
            presets={
                "svhn": {"strength": 0.5},
                "cifar10": {"beta": 1e-8, "epsilon": 1e-6},
                "synthetic": {
                    "strength": 0.1,
                    "beta": 0.01,
                    "epsilon": 0.003,
                    "unit": False,
                    "reduction": "sum",
                },
            },
            formula=(
                "loss = cross entropy + strength / (p |C| (|C| - 1)) *\n"
                "       sum_{i <= p} sum_{c1 != c2} (dist + beta / dist)\n"
                "dist = ||h(x_{i,c1}) - h(x_{i,c2})||^2 in [epsilon, 1/epsilon]\n"
                "||h|| = 1, but for unit=false\n"
                "C: classes in the batch,  p: size of the smallest,  "
                "x_{i,c}: i-th image of class c\n"
                "reduction=sum: without the factor 1 / (p |C| (|C| - 1))"
            ),
            weaknesses=(
                "representations that are close but not equal are still one-to-one: a decoder "
                "trained on public images, or a descent on whitened features, can tell them apart",
                "the norm of h(x) is not held back: only directions are drawn together",
                "images beyond the smallest class of their batch are not penalised in that step",
                "it was evaluated against one inversion by gradient descent, with a fixed rate",
                "equation 1 as it is written does not give the paper's Table 1: at strength 0.1 "
                "and beta = 0 the network still learns; the sum over a batch, of h(x) unscaled, "
                "gives most of it (preset=synthetic)",
            ),
            example="harness evaluate --defense 'mixcon[strength=1,beta=1e-4]'",
        ),
        DefenseSpec(
            name="unicon",
            version="1",
            summary="training that draws representations of one class together",
            reference=f"{_PAPER}, appendix D.1",
            factory="harness_plugins.defenses.mixcon.penalties:Unicon",
            config=UniconConfig,
            stage=Stage.TRAINING,
            no_ceiling=(
                "no noise covers the features that leave, and the network that makes them was "
                "trained on the images: nothing is known of its law"
            ),
            presets={"svhn": {"strength": 0.5}},
            formula=(
                "loss = cross entropy + strength / |C| *\n"
                "       sum_{c in C} sum_{i, j in c} ||h(x_i) - h(x_j)||^2 / (|c| (|c| - 1)),  "
                "||h|| = 1\n"
                "C: classes in the batch; one with a single image adds 0"
            ),
            weaknesses=(
                "inversions keep the pattern of their class (figure 5): labels leak",
                "nothing keeps representations of one class from collapsing to a point",
                "the norm of h(x) is not held back: only directions are drawn together",
            ),
            example="harness evaluate --defense 'unicon[strength=1]'",
        ),
    ]
