"""Features of images on disk, extracted once: `features/<key>-<shape>/{rows,index,shape}`.

Rows are named by their image's content, so any split of any seed that meets an image again finds
its features. They are float32 or float16, as the extractor returns them; `shape` says which.
`index` says which image each row belongs to and what the hash of both is, under the cache's key; it
is written after the rows, so a killed run leaves at worst rows that nobody names and goes on where
it was, and a row that is damaged, or that this cache did not write, is extracted again. Rows are
read one by one, never through a memory map: its pages would count as the process's memory beside
the tensor that they are copied to.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.api.plugins import Progress, silent
from harness.store.artifacts import Store
from harness.store.paths import cache_key, disk_errors, lock, own_key, write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Extract = Callable[[Tensor], Tensor]
    Rows = NDArray[np.float32 | np.float16]

FOLDER = "features"
ROWS, INDEX, SHAPE = "rows", "index", "shape"
BATCH = 32
"""Images that go through the extractor at a time: always so many, for the same bits per image."""
KEPT = 16 * BATCH
"""Images whose features are written together: what a killed run loses at most."""

_HASH, _CHECK = 16, 8
_ENTRY = _HASH + _CHECK


class FeatureStore:
    """The features of one extractor for images of one shape."""

    def __init__(self, store: Store, key: str, shape: tuple[int, ...]) -> None:
        name = "x".join(map(str, shape))
        self.folder = store.root / FOLDER / f"{key}-{name}"
        self.store = store

    def obtain(self, images: Tensor, extract: Extract, progress: Progress = silent) -> Tensor:
        """Features [n, ...] of images [n, c, h, w], in their order.

        What is missing or damaged is extracted, `BATCH` of the images at a time. Raises StoreError
        where the disk refuses.
        """
        names = content_names(images)
        first = {name: at for at, name in reversed(list(enumerate(names)))}
        with disk_errors(self.folder), lock(self.store.root, f"{FOLDER}-{self.folder.name}"):
            known = intact(self.folder, set(names))
            missing = [at for name, at in first.items() if name not in known]
            with _batches_beside_each_other() as pool:
                for start in range(0, len(missing), KEPT):
                    rows = missing[start : start + KEPT]
                    features = _extracted(images, rows, extract, pool)
                    _append(self.folder, [names[row] for row in rows], features)
                    progress(start + len(rows), len(missing))
            return _gather(self.folder, names)


def content_names(images: Tensor) -> list[bytes]:
    """What each image of [n, ...] is called: a hash of its bytes."""
    return [
        hashlib.blake2b(image.numpy().tobytes(), digest_size=_HASH).digest() for image in images
    ]


@contextmanager
def _batches_beside_each_other() -> Iterator[ThreadPoolExecutor]:
    """A pool of as many threads as torch has, each of which computes on one core.

    So each batch is computed in the same order whatever the number of cores, to the same bits.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield pool
    finally:
        torch.set_num_threads(threads)


def _extracted(images: Tensor, rows: list[int], extract: Extract, pool: ThreadPoolExecutor) -> Rows:
    """The features of some images; a short last batch is filled up."""

    def batch(start: int) -> Rows:
        part = rows[start : start + BATCH]
        filled = part + [part[-1]] * (BATCH - len(part))
        features = extract(images[filled])[: len(part)].cpu().contiguous()
        found: Rows = (features if features.dtype.itemsize == 2 else features.float()).numpy()
        return found

    return np.concatenate(list(pool.map(batch, range(0, len(rows), BATCH))))


def _append(folder: Path, names: list[bytes], features: Rows) -> None:
    """Add rows, then their entries; what an interrupted writer left behind goes first."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = f"{features.dtype} {'x'.join(map(str, features.shape[1:]))}"
    write_atomically(folder / SHAPE, kind.encode())
    key, named = own_key(folder.parents[1]), zip(names, features, strict=True)
    entries = b"".join(name + _check(key, name, row) for name, row in named)
    count = _entries(folder)
    _write_at(folder / ROWS, count * features[0].nbytes, features.data)
    _write_at(folder / INDEX, count * _ENTRY, entries)


def _entries(folder: Path) -> int:
    index = folder / INDEX
    return index.stat().st_size // _ENTRY if index.exists() else 0


def _write_at(path: Path, offset: int, data: bytes | memoryview) -> None:
    with path.open("r+b" if path.exists() else "xb") as file:
        file.truncate(offset)
        file.seek(offset)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _check(key: bytes, name: bytes, row: Rows) -> bytes:
    digest = hashlib.blake2b(name, digest_size=_CHECK, key=key)
    digest.update(row.data)
    return digest.digest()


def _index(folder: Path) -> list[tuple[bytes, bytes]]:
    """Name and check of each row, in the order of the rows."""
    path = folder / INDEX
    text = path.read_bytes() if path.exists() else b""
    starts = range(0, len(text) - _ENTRY + 1, _ENTRY)
    return [(text[i : i + _HASH], text[i + _HASH : i + _ENTRY]) for i in starts]


def _empty(folder: Path, count: int) -> Rows:
    """Room for rows [count, ...] of a folder."""
    kind, _, shape = (folder / SHAPE).read_text().partition(" ")
    return np.empty((count, *map(int, shape.split("x"))), np.dtype(kind))


def _read(folder: Path, wanted: Iterable[tuple[int, Rows]]) -> Iterator[bool]:
    """Fill each row with that of this number; False where the file ends before it."""
    with (folder / ROWS).open("rb") as file:
        for at, row in wanted:
            file.seek(at * row.nbytes)
            yield file.readinto(row.data.cast("B")) == row.nbytes


def intact(folder: Path, wanted: set[bytes] | None = None) -> dict[bytes, int]:
    """By image, of those wanted: the row with its features, where it is what was written."""
    index = _index(folder) if (folder / ROWS).exists() else []
    asked = [at for at, (name, _) in enumerate(index) if wanted is None or name in wanted]
    key = cache_key(folder.parents[1])
    if not asked or not key:
        return {}
    try:
        row = _empty(folder, 1)[0]
    except (FileNotFoundError, ValueError, TypeError):  # its shape is gone, or none
        return {}
    there = zip(asked, _read(folder, ((at, row) for at in asked)), strict=True)
    checks = {at: _check(key, index[at][0], row) for at, whole in there if whole}
    return {index[at][0]: at for at, check in checks.items() if check == index[at][1]}


def damaged(folder: Path) -> int:
    """How many images of a folder have no intact row."""
    return len({name for name, _ in _index(folder)} - set(intact(folder)))


def _gather(folder: Path, names: list[bytes]) -> Tensor:
    import torch

    where = {name: at for at, (name, _) in enumerate(_index(folder))}
    rows = _empty(folder, len(names))
    wanted = ((where[name], row) for name, row in zip(names, rows, strict=True))
    if not all(_read(folder, wanted)):
        raise OSError(errno.EIO, "rows of features were cut off while they were read", str(folder))
    os.utime(folder)
    return torch.from_numpy(rows)
