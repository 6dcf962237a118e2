"""Checks of datasets."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from harness.api import Collection, Samples
from harness.testing.result import Violation
from harness.testing.space import assets_of
from harness.testing.watch import same, unmoved

if TYPE_CHECKING:
    from harness.testing.subject import Subject

LOOKED_AT = 20_000
"""Images of a split that are looked at."""
FAR = 0.5
"""How far from 0 the mean of standardised images may be, and their deviation from 1."""
MEETING = 0.01
"""The share of the test images that may be in `train`, which the engine leaves out of the test."""


def _loaded(subject: Subject) -> Collection:
    collection: Collection = subject.build().load(assets_of(subject))
    return collection


def _splits(collection: Collection) -> dict[str, Samples]:
    return {"train": collection.train[:LOOKED_AT], "test": collection.test[:LOOKED_AT]}


def images(subject: Subject) -> str:
    """Maps of one shape, uint8 or float32, within the scale's range."""
    collection = _loaded(subject)
    for name, samples in _splits(collection).items():
        if samples.images.ndim != 4 or len(samples.images) != len(samples.labels):
            raise Violation(f"{name} holds images {list(samples.images.shape)}; wanted [n,c,h,w]")
        _require_values(name, samples, collection)
    if collection.train.images.shape[1:] != collection.test.images.shape[1:]:
        raise Violation("images of train and test have different shapes")
    counts = f"{len(collection.train)} train, {len(collection.test)} test"
    return f"{counts} images {list(collection.train.images.shape[1:])}"


def _require_values(name: str, samples: Samples, collection: Collection) -> None:
    if samples.images.dtype not in (torch.uint8, torch.float32):
        raise Violation(f"{name} holds {samples.images.dtype} images")
    unit = samples.unit().images
    if not bool(unit.isfinite().all()):
        raise Violation(f"{name} holds images that are not finite")
    if not same(collection.scale.within(unit), unit):
        raise Violation(f"{name} holds values outside {collection.scale.low}..")


def labels(subject: Subject) -> str:
    """Whole numbers that name a class."""
    collection = _loaded(subject)
    count = len(collection.classes)
    for name, samples in _splits(collection).items():
        found = samples.labels
        if found.dtype != torch.int64 or found.ndim != 1:
            raise Violation(
                f"{name} has labels {list(found.shape)} {found.dtype}; wanted [n] int64"
            )
        if int(found.min()) < 0 or int(found.max()) >= count:
            raise Violation(f"{name} has labels outside 0..{count - 1}")
    return f"{count} classes"


def scaled(subject: Subject) -> str:
    """Standardised training images are about 0 and about 1 wide, channel by channel."""
    collection = _loaded(subject)
    channels = collection.train.images.shape[1]
    if not len(collection.scale.mean) == len(collection.scale.std) == channels:
        raise Violation(f"its scale does not have {channels} channels")
    values = collection.train[:2000].standardised(collection.scale).images
    mean, std = values.mean((0, 2, 3)), values.std((0, 2, 3))
    if bool((mean.abs() > FAR).any()) or bool(((std - 1).abs() > FAR).any()):
        raise Violation(f"standardised images have means {_few(mean)} and deviations {_few(std)}")
    return "mean and deviation are those of the images"


def _few(values: torch.Tensor) -> str:
    return ", ".join(f"{value:.2f}" for value in values.tolist())


def disjoint(subject: Subject) -> str:
    """No test image is a training image, or so few that the engine may leave them out."""
    splits = _splits(_loaded(subject))
    train, test = (
        {hashlib.sha256(image.numpy().tobytes()).digest() for image in splits[name].images}
        for name in ("train", "test")
    )
    both = len(train & test)
    if both > MEETING * len(test):
        raise Violation(f"{both} of {len(test)} test images are in train")
    note = f"; {both} test images are in train, and will be left out" if both else ""
    return f"{len(train)} different train images{note}"


def deterministic(subject: Subject) -> str:
    """Loading twice gives the same images and labels."""
    one, other = _splits(_loaded(subject)), _splits(_loaded(subject))
    for name, samples in one.items():
        again = other[name]
        if not (same(samples.images, again.images) and same(samples.labels, again.labels)):
            raise Violation(f"{name} is another one the second time")
    return "loading twice gives the same images"


def leaves_the_world_alone(subject: Subject) -> str:
    """No global state is moved."""
    with unmoved():
        _loaded(subject)
    return "no global state was moved"
