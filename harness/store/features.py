"""Features of images on disk, extracted once: `features/<key>-<shape>/{rows.f32,index,shape}`.

Rows are named by their image's content, so any split of any seed that meets an image again finds
its features. `rows.f32` is read through a memory map. `index` says which image each row belongs
to and what the row's hash is; it is written after the rows, so a killed run leaves at worst rows
that nobody names, and a damaged row is extracted again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.api.plugins import Progress, silent
from harness.store.artifacts import Store
from harness.store.paths import disk_errors, write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Extract = Callable[[Tensor], Tensor]

FOLDER = "features"
ROWS, INDEX, SHAPE = "rows.f32", "index", "shape"
BATCH = 32
"""Images that go through the extractor at a time: always so many, for the same bits per image."""

_HASH, _CHECK = 16, 8
_ENTRY = _HASH + _CHECK


class FeatureStore:
    """The features of one extractor for images of one shape."""

    def __init__(self, store: Store, key: str, shape: tuple[int, ...]) -> None:
        name = "x".join(map(str, shape))
        self.folder = store.root / FOLDER / f"{key}-{name}"
        self.store = store

    def obtain(self, images: Tensor, extract: Extract, progress: Progress = silent) -> Tensor:
        """Features [n, ...] float32 of images [n, c, h, w], in their order.

        What is missing or damaged is extracted, `BATCH` of the images at a time.
        Raises StoreError where the disk refuses.
        """
        names = content_names(images)
        first = {name: at for at, name in reversed(list(enumerate(names)))}
        with disk_errors(self.folder), self.store.lock(f"{FOLDER}-{self.folder.name}"):
            known = intact(self.folder, set(names))
            missing = [at for name, at in first.items() if name not in known]
            for done, (rows, features) in enumerate(_extracted(images, missing, extract), start=1):
                _append(self.folder, [names[row] for row in rows], features)
                progress(min(done * BATCH, len(missing)), len(missing))
            return _gather(self.folder, names)


def content_names(images: Tensor) -> list[bytes]:
    """What each image of [n, ...] is called: a hash of its bytes."""
    return [
        hashlib.blake2b(image.numpy().tobytes(), digest_size=_HASH).digest() for image in images
    ]


def _extracted(
    images: Tensor, rows: list[int], extract: Extract
) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    """Row numbers and their features, batch by batch; a short last batch is filled up."""
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        filled = part + [part[-1]] * (BATCH - len(part))
        features = extract(images[filled])[: len(part)].float().cpu().contiguous()
        yield part, features.numpy()


def _append(folder: Path, names: list[bytes], features: NDArray[np.float32]) -> None:
    """Add rows, then their entries; what an interrupted writer left behind goes first."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SHAPE, "x".join(map(str, features.shape[1:])).encode())
    entries = b"".join(name + _check(row) for name, row in zip(names, features, strict=True))
    count = _entries(folder)
    _write_at(folder / ROWS, count * features[0].nbytes, features.tobytes())
    _write_at(folder / INDEX, count * _ENTRY, entries)


def _entries(folder: Path) -> int:
    index = folder / INDEX
    return index.stat().st_size // _ENTRY if index.exists() else 0


def _write_at(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b" if path.exists() else "xb") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _check(row: NDArray[np.float32]) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=_CHECK).digest()


def _index(folder: Path) -> list[tuple[bytes, bytes]]:
    """Name and check of each row, in the order of the rows."""
    path = folder / INDEX
    text = path.read_bytes() if path.exists() else b""
    starts = range(0, len(text) - _ENTRY + 1, _ENTRY)
    return [(text[i : i + _HASH], text[i + _HASH : i + _ENTRY]) for i in starts]


def _shape(folder: Path) -> tuple[int, ...]:
    path = folder / SHAPE
    return tuple(map(int, path.read_text().split("x"))) if path.exists() else (1,)


def _mapped(folder: Path) -> NDArray[np.float32]:
    """The rows [rows, d] of a folder."""
    path, width = folder / ROWS, int(np.prod(_shape(folder)))
    count = path.stat().st_size // (4 * width) if path.exists() else 0
    if not count:
        return np.empty((0, width), dtype=np.float32)
    return np.memmap(path, dtype=np.float32, mode="r", shape=(count, width))


def intact(folder: Path, wanted: set[bytes] | None = None) -> dict[bytes, int]:
    """By image, of those wanted: the row with its features, where it is what was written."""
    rows = _mapped(folder)
    return {
        name: at
        for at, ((name, check), row) in enumerate(zip(_index(folder), rows, strict=False))
        if (wanted is None or name in wanted) and _check(row) == check
    }


def damaged(folder: Path) -> int:
    """How many images of a folder have no intact row."""
    return len({name for name, _ in _index(folder)} - set(intact(folder)))


def _gather(folder: Path, names: list[bytes]) -> Tensor:
    import torch

    where = {name: at for at, (name, _) in enumerate(_index(folder))}
    rows = _mapped(folder)[[where[name] for name in names]]
    os.utime(folder)
    return torch.from_numpy(np.ascontiguousarray(rows)).view(-1, *_shape(folder))
