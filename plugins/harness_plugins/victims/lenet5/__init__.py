"""LeNet-5, as MixCon splits it."""

from __future__ import annotations

from harness.api import Recipe, VictimSpec, hookimpl


class LeNet5Config(Recipe):
    """MixCon's training: SGD with a constant rate of .01, 20 epochs, no augmentation."""

    epochs: int = 20
    batch_size: int = 64
    optimizer: str = "sgd"
    lr: float = 1e-2
    weight_decay: float = 0.0
    schedule: str = "none"
    cut: str = "conv2"


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
            example="--victim 'lenet5[cut=conv1]'",
        )
    ]
