"""What lies where in `tiny-imagenet-200.zip`."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

ROOT = "tiny-imagenet-200"
SIDE = 64


@dataclass(frozen=True)
class Contents:
    """The labelled members of the archive, train images before test images."""

    names: tuple[str, ...]
    labels: tuple[int, ...]
    train: int
    """How many of them are train images."""
    classes: tuple[str, ...]


def _lines(archive: zipfile.ZipFile, name: str) -> list[list[str]]:
    """The tab-separated fields of each line of a text member; KeyError where it is missing."""
    text = archive.read(f"{ROOT}/{name}").decode("utf-8")
    return [line.split("\t") for line in text.splitlines() if line.strip()]


def _train_members(archive: zipfile.ZipFile) -> dict[str, list[str]]:
    """The train images of each class, by the class's WordNet number."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in archive.namelist():
        parts = name.split("/")
        if parts[:2] == [ROOT, "train"] and name.endswith(".JPEG"):
            found[parts[2]].append(name)
    return found


def contents(archive: zipfile.ZipFile) -> Contents:
    """Read the lists of the archive; KeyError or ValueError where they do not fit its members."""
    numbers = [row[0] for row in _lines(archive, "wnids.txt")]
    words = dict(row[:2] for row in _lines(archive, "words.txt") if len(row) > 1)
    train = _train_members(archive)
    annotated = [row[:2] for row in _lines(archive, "val/val_annotations.txt")]
    label = {number: i for i, number in enumerate(numbers)}
    unknown = ({number for _, number in annotated} | set(train)) - set(label)
    if unknown or not train:
        raise ValueError(f"classes {sorted(unknown)} of images in {ROOT} are not in wnids.txt")
    names = [(name, label[number]) for number in numbers for name in sorted(train[number])]
    held = [(f"{ROOT}/val/images/{file}", label[number]) for file, number in sorted(annotated)]
    return Contents(
        tuple(name for name, _ in names + held),
        tuple(i for _, i in names + held),
        len(names),
        tuple(words.get(number, number) for number in numbers),
    )


def tag(archive: zipfile.ZipFile, names: tuple[str, ...]) -> str:
    """A short name for these members, by the sums the archive keeps of their bytes."""
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name} {archive.getinfo(name).CRC:08x}\n".encode())
    return digest.hexdigest()[:16]


def pictures(archive: zipfile.ZipFile, names: tuple[str, ...]) -> Iterator[NDArray[np.uint8]]:
    """Each image as [3, 64, 64] uint8, grey ones as three equal channels.

    ValueError names the first that cannot be read.
    """
    for name in names:
        try:
            image = Image.open(io.BytesIO(archive.read(name))).convert("RGB")
        except (OSError, SyntaxError, zipfile.BadZipFile) as error:
            raise ValueError(f"{name} in {ROOT}.zip cannot be read: {error}") from error
        if image.size != (SIDE, SIDE):
            raise ValueError(f"{name} in {ROOT}.zip is {image.size}, not {SIDE} x {SIDE} pixels")
        yield np.asarray(image).transpose(2, 0, 1)
