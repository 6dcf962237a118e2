"""The LeNet with sigmoids of "Deep Leakage from Gradients"."""

from __future__ import annotations

from pydantic import Field

from harness.api import (
    BatchSize,
    Cut,
    Decay,
    Epochs,
    Optimizer,
    Rate,
    Recipe,
    VictimSpec,
    hookimpl,
)


class LeNetSigmoidConfig(Recipe):
    """Three convolutions of 12 channels; all weights and biases from U(-spread, spread)."""

    epochs: Epochs = 30
    batch_size: BatchSize = 64
    optimizer: Optimizer = "adam"
    lr: Rate = 1e-2
    weight_decay: Decay = 0.0
    cut: Cut = "conv2"
    spread: float = Field(
        0.5,
        gt=0,
        le=10,
        allow_inf_nan=False,
        description="weights and biases are drawn from U(-spread, spread) at first",
    )


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="lenet-sigmoid",
            version="1",
            summary="DLG's LeNet: sigmoids, strides, and the wide initial weights of its attack",
            reference="Zhu et al. 2019, Deep Leakage from Gradients, arXiv:1906.08935; layers and "
            "weights by its published code (mit-han-lab/dlg), which has three convolutions",
            factory="harness_plugins.victims.lenet_sigmoid.network:LeNetSigmoid",
            config=LeNetSigmoidConfig,
            presets={"quick": {"epochs": 10}, "standard": {}, "paper": {}},
            formula="σ(conv 5x5, 12, stride 2) > σ(conv 5x5, 12, stride 2) > σ(conv 5x5, 12) "
            "> Linear classes (from 768 inputs at 32 px); every entry from U(-spread, spread)",
            weaknesses=(
                "The paper attacks it fresh (`--victim-epochs 0`) and gives no recipe: the one "
                "here is ours.",
                "It learns slowly: on 2 000 images of Fashion-MNIST 0.78 after 10 epochs and 0.83 "
                "after 30; on CIFAR-10 0.26 with the quick preset. It is there for its gradients.",
                "No network that is trained in earnest starts from such weights: what its "
                "gradients leak says little about those that are.",
            ),
            example="harness evaluate --defense gradprune --victim lenet-sigmoid --victim-epochs 0",
        )
    ]
