"""Checks of datasets, and the kit's own: small images of every kind that plugins stumble over."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from harness.api import AssetFolder, Collection, Config, Dataset, DatasetSpec, Samples, Scale
from harness.asking.registry import OWN_DISTRIBUTION, Origin, Registry, registry
from harness.testing.subject import Subject, Violation
from harness.testing.watch import same, unmoved

NAME = "conformance-kit"
CLASSES = ("across", "upright", "slanting")
LOOKED_AT = 20_000
"""Images of a split that are looked at."""
FAR = 0.5
"""How far from 0 the mean of standardised images may be, and their deviation from 1."""
MEETING = 0.01
"""The share of the test images that may be in `train`, which the engine leaves out of the test."""

CaseName = Literal["tiny", "grey", "colour", "odd-sized", "one-class", "constant"]


@dataclass(frozen=True)
class Case:
    """The shape of one image, and how many there are."""

    shape: tuple[int, int, int] = (1, 16, 16)
    private: int = 24
    public: int = 64
    test: int = 24

    @property
    def sizes(self) -> dict[str, int]:
        """As options of an evaluation."""
        return {
            "private_size": self.private,
            "public_size": self.public,
            "test_size": self.test,
        }


CASES: dict[str, Case] = {
    "tiny": Case(private=2, public=4, test=4),
    "grey": Case(),
    "colour": Case(shape=(3, 16, 16)),
    "odd-sized": Case(shape=(1, 9, 7)),
    "one-class": Case(),
    "constant": Case(),
}


class KitConfig(Config):
    """Which of the kit's collections."""

    case: CaseName = Field("grey", description="what is odd about the images")


class Kit(Dataset[KitConfig]):
    """Smooth waves [n, c, h, w] uint8, no two of them alike."""

    def load(self, assets: AssetFolder) -> Collection:
        """The same images every time: the generator is the dataset's own."""
        name = self.config.case
        case = CASES[name]
        generator = Generator().manual_seed(17)
        total = case.private + case.public + case.test
        images = _flat(total, case.shape) if name == "constant" else _waves(total, case, generator)
        labels = torch.arange(total) % (1 if name == "one-class" else len(CLASSES))
        every = Samples(images, labels)
        train = total - case.test
        channels = case.shape[0]
        scale = Scale((0.5,) * channels, (0.3,) * channels)
        return Collection(every[:train], every[train:], scale, CLASSES)


def _waves(total: int, case: Case, generator: Generator) -> Tensor:
    """One wave for each image and channel, in the direction of its class, and a little noise."""
    channels, height, width = case.shape
    directions = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.7, 0.7]])[torch.arange(total) % 3]
    rows, columns = torch.arange(height) / height, torch.arange(width) / width
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"))
    along = (directions.view(total, 1, 2, 1, 1) * grid).sum(2)
    lengths, phases = torch.rand(2, total, channels, 1, 1, generator=generator)
    waves = torch.sin(2 * torch.pi * ((1 + lengths) * along + phases))
    noise = torch.randn(total, *case.shape, generator=generator)
    return (255 * (0.5 + 0.4 * waves + 0.03 * noise).clamp(0, 1)).round().byte()


def _flat(total: int, shape: tuple[int, int, int]) -> Tensor:
    """Each image of one brightness, its own."""
    levels = torch.linspace(0, 255, total).round().byte()
    return levels.view(-1, 1, 1, 1).expand(-1, *shape).contiguous()


SPEC = DatasetSpec(
    name=NAME,
    version="1",
    summary="waves in three directions, for checks of plugins",
    reference="made up here",
    factory="harness.testing.datasets:Kit",
    config=KitConfig,
)


@cache
def known() -> Registry:
    """What is installed, and the kit's images; in this process alone."""
    found = registry()
    found.add("datasets", SPEC, Origin(OWN_DISTRIBUTION, SPEC.version, NAME, __name__))
    return found


def _loaded(subject: Subject) -> Collection:
    collection: Collection = subject.build().load(subject.assets)
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
    return unmoved(lambda: _loaded(subject))
