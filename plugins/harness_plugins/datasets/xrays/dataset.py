"""Reading the X-rays out of their package."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from harness.api import AssetFolder, Collection, Dataset, Samples, Scale
from harness_plugins.datasets.reserved import smallest
from harness_plugins.datasets.xrays import WHEEL, XRAYS, XraysConfig

FILE = re.compile(
    r"sofiimg/datasets/pneumonia/(?P<part>train|test)/(?P<label>NORMAL|PNEUMONIA)/"
    r"(?P<subject>person\d+|(?:NORMAL2-)?IM-\d+)[^/]*\.jpeg"
)
"""Beside the X-rays lie PNGs, which are none: what the package's authors made of some."""

LABELS = ("NORMAL", "PNEUMONIA")
SCALE = Scale(mean=(0.4808,), std=(0.2384,))
"""Of the images in the published `train`, at 224 pixels; at 32 the deviation is .2332."""

RESERVED = 8
"""One child in so many is reserved."""


@dataclass(frozen=True)
class Xray:
    """One image [224, 224] uint8, and what its file's name says of it."""

    part: str
    label: int
    subject: str
    pixels: NDArray[np.uint8]


def xrays(wheel: Path) -> Iterator[Xray]:
    """Every image once, in the order of their paths; of equal ones the first."""
    seen = set[bytes]()
    with ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            said = FILE.fullmatch(name)
            if said is None:
                continue
            pixels = np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("L"))
            if pixels.tobytes() not in seen:
                seen.add(pixels.tobytes())
                yield Xray(said["part"], LABELS.index(said["label"]), said["subject"], pixels)


def shrunk(pixels: NDArray[np.uint8], resolution: int) -> NDArray[np.uint8]:
    """A grey image, bicubic and antialiased where it changes."""
    if pixels.shape == (resolution, resolution):
        return pixels
    size = (resolution, resolution)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))


class Xrays(Dataset[XraysConfig]):
    """Images [n, 1, resolution, resolution] uint8 with their subjects."""

    def load(self, assets: AssetFolder) -> Collection:
        """All images; who is in `train` is there with all of them."""
        found = list(xrays(assets.path(XRAYS.name, WHEEL)))
        trained = {each.subject for each in found if each.part == "train"}
        numbers = {name: i for i, name in enumerate(sorted({each.subject for each in found}))}
        train, test = (
            self._samples([x for x in found if (x.subject in trained) == within], numbers)
            for within in (True, False)
        )
        reserved = _reserved(trained, numbers)
        assert train.subjects is not None
        classes = tuple(label.lower() for label in LABELS)
        return Collection(train, test, SCALE, classes, torch.isin(train.subjects, reserved))

    def _samples(self, found: list[Xray], numbers: dict[str, int]) -> Samples:
        images = np.stack([shrunk(x.pixels, self.config.resolution) for x in found])[:, None]
        subjects = torch.tensor([numbers[x.subject] for x in found])
        return Samples(torch.from_numpy(images), torch.tensor([x.label for x in found]), subjects)


def _reserved(trained: set[str], numbers: dict[str, int]) -> torch.Tensor:
    """Numbers of the reserved subjects."""
    names = sorted(trained)
    kept = smallest([name.encode() for name in names], round(len(names) / RESERVED))
    return torch.tensor([numbers[name] for name, held in zip(names, kept, strict=True) if held])
