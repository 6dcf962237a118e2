"""A few real Fashion-MNIST images, a tiny network, and the streams that tests share."""

import importlib
from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn

from harness.api import AssetFolder, Config, Recipe, Splits, Victim
from harness.rng import KeyedStream
from harness_plugins.datasets import fashion_mini
from harness_plugins.datasets.fashion_mini.dataset import FashionMini

OWNER, BOARD = KeyedStream(b"owner"), KeyedStream(b"board")
CPU = torch.device("cpu")


def splits(private=24, public=32, test=40):
    folder = Path(fashion_mini.__file__).parent / "images"
    data = FashionMini(Config()).load(AssetFolder({"fashion-mini": folder}))
    train = data.train
    return Splits(
        train[:private],
        train[private : private + public],
        data.test[:test],
        data.scale,
        data.classes,
    )


class Tiny(Victim[Recipe]):
    """A convolution with BatchNorm, and a linear head: blocks `body` and `head`."""

    def build(self, shape, classes):
        body = OrderedDict(
            conv=nn.Conv2d(shape[0], 4, 5, stride=4), norm=nn.BatchNorm2d(4), act=nn.ReLU()
        )
        side = (shape[1] - 5) // 4 + 1
        head = nn.Sequential(nn.Flatten(), nn.Linear(4 * side * side, classes))
        return nn.Sequential(OrderedDict(body=nn.Sequential(body), head=head))


def tiny(**recipe):
    return Tiny(Recipe(**{"epochs": 2, "batch_size": 8, "cut": "body", **recipe}))


def built_in(name, preset="quick", **options):
    """A built-in victim, as its own declaration says how to make it."""
    (spec,) = importlib.import_module(f"harness_plugins.victims.{name}").harness_victims()
    module, attribute = spec.factory.split(":")
    config = spec.config(**{**spec.presets[preset], **options})
    return getattr(importlib.import_module(module), attribute)(config)


def same(first, second):
    """Whether two dicts of tensors agree bit by bit."""
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)
