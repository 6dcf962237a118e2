"""Reading Tiny-ImageNet: decoded once, memory-mapped ever after.

The decoded images lie beside the archive, which the engine has verified, in a file named by the
sums of the members it was made from: another archive never meets them.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from harness.api import AssetFolder, CellFailed, Collection, Config, Dataset, Samples, Scale
from harness_plugins.datasets.tiny_imagenet import ARCHIVE
from harness_plugins.datasets.tiny_imagenet.archive import SIDE, contents, pictures, tag

SCALE = Scale(mean=(0.4802, 0.4481, 0.3975), std=(0.2770, 0.2691, 0.2821))


def _write(archive: zipfile.ZipFile, names: tuple[str, ...], path: Path) -> None:
    """Decode the members into one .npy [n, 3, 64, 64]; it appears whole or not at all."""
    handle, unfinished = tempfile.mkstemp(prefix=f"{path.stem}.", suffix=".part", dir=path.parent)
    os.close(handle)
    fresh = Path(unfinished)
    try:
        shape = (len(names), 3, SIDE, SIDE)
        rows = np.lib.format.open_memmap(fresh, "w+", np.uint8, shape)
        for row, picture in enumerate(pictures(archive, names)):
            rows[row] = picture
        rows.flush()
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def decoded(archive: zipfile.ZipFile, names: tuple[str, ...], folder: Path) -> Tensor:
    """The members as one memory-mapped tensor [n, 3, 64, 64] uint8, decoded where need be.

    CellFailed where there is no room or leave to write the decoded file into `folder`.
    """
    path = folder / f"decoded-{tag(archive, names)}.npy"
    if not path.is_file():
        try:
            _write(archive, names, path)
        except OSError as error:
            size = len(names) * 3 * SIDE * SIDE / 1e6
            raise CellFailed(
                f"'tiny-imagenet' decodes its images once into {path} ({size:.0f} MB), which "
                f"cannot be written: {error.strerror or error}. Make room, or choose another "
                "place with HARNESS_CACHE."
            ) from error
    # Copy-on-write, so that torch is given memory it may call writable.
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


class TinyImagenet(Dataset[Config]):
    """100 000 train and 10 000 test images [n, 3, 64, 64] uint8."""

    def load(self, assets: AssetFolder) -> Collection:
        """All images, memory-mapped; the first call decodes them."""
        path = assets.path("tiny-imagenet", ARCHIVE)
        with zipfile.ZipFile(path) as archive:
            held = contents(archive)
            images = decoded(archive, held.names, path.parent)
        every = Samples(images, torch.tensor(held.labels))
        return Collection(every[: held.train], every[held.train :], SCALE, held.classes)
