"""Reading CIFAR-100's binary version.

A record is 3074 bytes: the coarse label, the fine label, then red, green and blue planes of
32 x 32. The names of the classes are a text file beside the records.
"""

from __future__ import annotations

import numpy as np
import torch

from harness.api import AssetFolder, Collection, Config, Dataset, Samples, Scale
from harness_plugins.archives import members
from harness_plugins.datasets.cifar100 import ARCHIVE

SCALE = Scale(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))
RECORD = 2 + 3 * 32 * 32
FOLDER = "cifar-100-binary"
NAMES = f"{FOLDER}/fine_label_names.txt"


def class_names(text: bytes) -> tuple[str, ...]:
    """The lines of `fine_label_names.txt`, such as `maple_tree`, as `maple tree`."""
    return tuple(line.replace("_", " ") for line in text.decode("ascii").split())


def samples(records: bytes, classes: int) -> Samples:
    """Images [n, 3, 32, 32] uint8 with fine labels [n].

    ValueError for anything that is not whole records with labels below `classes`.
    """
    if not records or len(records) % RECORD:
        raise ValueError(f"{len(records)} bytes are not records of {RECORD} bytes of CIFAR-100")
    # A bytearray, so that torch is given memory it may call writable.
    rows = torch.from_numpy(np.frombuffer(bytearray(records), np.uint8)).view(-1, RECORD)
    labels = rows[:, 1].long()
    if labels.max() >= classes:
        raise ValueError(f"label {int(labels.max())} in CIFAR-100, which has {classes} classes")
    return Samples(rows[:, 2:].view(-1, 3, 32, 32), labels)


class Cifar100(Dataset[Config]):
    """50 000 train and 10 000 test images [n, 3, 32, 32] uint8, fine labels."""

    def load(self, assets: AssetFolder) -> Collection:
        """All images, unpacked into memory (185 MB)."""
        parts = [f"{FOLDER}/{part}.bin" for part in ("train", "test")]
        found = members(assets.path("cifar100", ARCHIVE), [*parts, NAMES])
        classes = class_names(found[NAMES])
        train, test = (samples(found[part], len(classes)) for part in parts)
        return Collection(train, test, SCALE, classes)
