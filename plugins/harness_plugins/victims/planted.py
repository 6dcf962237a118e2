"""What a malicious server sends: `strided` behind a layer that sorts images by brightness."""

from __future__ import annotations

import math
from collections import OrderedDict
from statistics import NormalDist
from typing import TYPE_CHECKING

from pydantic import Field

from harness.api import BatchSize, Cut, Decay, Epochs, Rate, Recipe, Victim, VictimSpec, hookimpl
from harness_plugins.victims.image_shape import require_image

if TYPE_CHECKING:
    from torch import nn


class PlantedConfig(Recipe):
    """The bins of brightness; behind them four convolutions as of `strided`."""

    epochs: Epochs = 30
    batch_size: BatchSize = 64
    weight_decay: Decay = 1e-2
    lr: Rate = 1e-3
    cut: Cut = "conv2"
    width: int = Field(32, ge=1, le=4096, description="channels of the first convolution")
    bins: int = Field(256, ge=1, le=65536, description="rows of the planted layer")
    centre: float = Field(
        0.0, ge=-10, le=10, description="mean brightness of an image, standardised, as guessed"
    )
    spread: float = Field(
        0.5, gt=0, le=10, description="deviation of the brightness between images, as guessed"
    )
    strength: float = Field(
        1e-5, gt=0, le=10, description="what each row adds to every value behind it"
    )


STRIDES = (1, 2, 2, 2)


class Planted(Victim[PlantedConfig]):
    """planted, conv1 to conv4, flatten, head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for images [c,h,w]."""
        from torch import nn

        from harness_plugins.victims.brightness_bins import BrightnessBins
        from harness_plugins.victims.plain_convolutions import plain_convolutions

        config, image = self.config, require_image("planted", shape)
        w = config.width
        behind = plain_convolutions(
            image, classes, widths=(w, 2 * w, 2 * w, 4 * w), strides=STRIDES, kernel=3, act=nn.ReLU
        )
        edges = NormalDist(config.centre, config.spread).quantiles(config.bins + 1)
        bins = BrightnessBins(math.prod(shape), edges, config.strength)
        return nn.Sequential(OrderedDict(planted=bins, **dict(behind.named_children())))


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="planted",
            version="1",
            summary="what a malicious server sends: `strided` behind a dense layer that sorts "
            "images into bins of brightness",
            reference="Fowl et al. 2022, Robbing the Fed, arXiv:2110.13057, section 4, whose "
            "imprint module it follows; that rows start at zero, beside a fixed measure, and that "
            "what follows sums over them is ours",
            factory="harness_plugins.victims.planted:Planted",
            config=PlantedConfig,
            presets={"quick": {"epochs": 10}, "standard": {}, "paper": {"epochs": 100}},
            formula="x + s Σ_i relu(mean(x) - c_i + w_i·x + b_i) > strided; w = b = 0 at first, "
            "c_i the quantiles of N(centre, spread²). Rows i and i + 1 answer to the same images "
            "but for those between c_i and c_(i+1), and with the same derivative",
            weaknesses=(
                "The server chooses the model: whoever looks at what is sent sees the layer.",
                "Once the rows have been trained they are no longer alike: ask for "
                "--victim-epochs 0, the round in which the server sends it.",
                "Of two images in one bin the server gets the mixture; what is darker than the "
                "first bin it does not get.",
            ),
            example="harness evaluate --defense none --victim planted --victim-epochs 0 "
            "--release updates --batch-size 8 --attack firstlayer",
        )
    ]
