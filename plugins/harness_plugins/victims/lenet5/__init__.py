"""LeNet-5, as MixCon splits it."""

from __future__ import annotations

from harness.api import (
    BatchSize,
    Cut,
    Decay,
    Epochs,
    Optimizer,
    Rate,
    Recipe,
    Schedule,
    VictimSpec,
    hookimpl,
)


class LeNet5Config(Recipe):
    """MixCon's training: SGD with a constant rate of .01, 20 epochs, no augmentation."""

    epochs: Epochs = 20
    batch_size: BatchSize = 64
    optimizer: Optimizer = "sgd"
    lr: Rate = 1e-2
    weight_decay: Decay = 0.0
    schedule: Schedule = "none"
    cut: Cut = "conv2"


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="lenet5",
            version="1",
            summary="LeNet-5, cut after its second convolution as in MixCon",
            reference="LeCun et al. 1998, Gradient-Based Learning Applied to Document Recognition",
            factory="harness_plugins.victims.lenet5.network:LeNet5",
            config=LeNet5Config,
            presets={"quick": {"epochs": 10, "lr": 0.03}, "standard": {}, "paper": {}},
            example="harness evaluate --victim 'lenet5[cut=conv1]'",
        )
    ]
