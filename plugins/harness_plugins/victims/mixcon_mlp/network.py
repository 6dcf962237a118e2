"""The network of the `mixcon-mlp` victim: MixCon, section 4.2."""

from __future__ import annotations

import math
from collections import OrderedDict
from itertools import pairwise

import torch
from torch import nn

from harness.api import Victim
from harness_plugins.victims.mixcon_mlp import MixconMlpConfig

CLIENT = (500, 2)
SERVER = {"default": (100,), "deeper": (100, 100, 100), "wider": (2048,)}


class MixconMlp(Victim[MixconMlpConfig]):
    """flatten, hidden1 (500), hidden2 (2), hidden3 (100; deeper: also hidden4, 5), head."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh blocks for inputs of any shape."""
        widths = (math.prod(shape), *CLIENT, *SERVER[self.config.server])
        hidden = {
            f"hidden{k}": _block(*sizes, self.config.spread)
            for k, sizes in enumerate(pairwise(widths), start=1)
        }
        head = _linear(widths[-1], classes, self.config.spread)
        return nn.Sequential(OrderedDict(flatten=nn.Flatten(), **hidden, head=head))


def _block(inputs: int, width: int, spread: float) -> nn.Sequential:
    return nn.Sequential(OrderedDict(linear=_linear(inputs, width, spread), act=nn.Sigmoid()))


def _linear(inputs: int, width: int, spread: float) -> nn.Linear:
    """A layer whose weights and biases are drawn from N(u, 1), with one u ~ N(0, spread)."""
    layer = nn.Linear(inputs, width)
    mean = math.sqrt(spread) * torch.randn(()).item()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, mean, 1.0)
    return layer
