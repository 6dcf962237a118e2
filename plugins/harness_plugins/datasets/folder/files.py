"""Which files of a folder are images, of what class, and what names their content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.api import UsageError
from harness_plugins.datasets.folder import FolderConfig

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
PARTS = ("train", "test")
LAYOUT = "expected PATH/CLASS/image.png, or PATH/train/CLASS/… with PATH/test/CLASS/…"

Classes = dict[str, tuple[Path, ...]]


@dataclass(frozen=True)
class Layout:
    """Image files by class, in the order of their paths. `test` is None where none is set aside."""

    root: Path
    train: Classes
    test: Classes | None

    @property
    def files(self) -> list[Path]:
        """All images, train before test."""
        return [path for part in (self.train, self.test or {}) for c in part.values() for path in c]


def _shown(path: Path) -> bool:
    return not path.name.startswith(".")


def _images(folder: Path) -> tuple[Path, ...]:
    """Images in a folder and all below it, hidden ones left out, in order of their paths."""
    found = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    return tuple(sorted(found, key=lambda path: path.relative_to(folder).as_posix()))


def _classes(folder: Path) -> Classes:
    """Images by sub-folder; UsageError for fewer than two classes or one without images."""
    below = sorted(path for path in folder.iterdir() if path.is_dir() and _shown(path))
    found = {path.name: _images(path) for path in below}
    if len(found) < 2:
        raise UsageError(f"'folder': {folder} has {len(found)} sub-folders of images; {LAYOUT}")
    for name, images in found.items():
        if not images:
            kinds = " ".join(sorted(SUFFIXES))
            raise UsageError(f"'folder': no images in {folder / name}; looked for {kinds}")
    return found


def layout(path: str) -> Layout:
    """What a folder holds. UsageError where it is not there or not laid out as expected."""
    if not path:
        raise UsageError(f"'folder' needs a place: folder[path=PATH]; {LAYOUT}")
    root = Path(path).expanduser()
    if not root.is_dir():
        raise UsageError(f"'folder': there is no folder {path}; {LAYOUT}")
    if not all((root / part).is_dir() for part in PARTS):
        return Layout(root, _classes(root), None)
    train, test = (_classes(root / part) for part in PARTS)
    strangers = sorted(set(test) - set(train))
    if strangers:
        raise UsageError(f"'folder': {root}/test has classes that train has not: {strangers}")
    return Layout(root, train, test)


@lru_cache(maxsize=1 << 20)
def _digest(path: Path, _size: int, _changed: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content(path: Path) -> str:
    """SHA-256 of a file; one that did not change since is not read again by this process.

    UsageError where it cannot be read.
    """
    try:
        state = path.stat()
        return _digest(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise UsageError(f"'folder': {path} cannot be read: {error.strerror or error}") from error


def fingerprint(config: FolderConfig) -> str:
    """SHA-256 over the images' paths within the folder and their contents."""
    held, digest = layout(config.path), hashlib.sha256()
    for path in held.files:
        digest.update(f"{path.relative_to(held.root).as_posix()}\0{content(path)}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def set_aside(images: tuple[Path, ...], share: float) -> tuple[list[Path], list[Path]]:
    """(train, test) of one class of at least two images, in the order of their SHA-256.

    The test part is the first round(share·n), at least one and never all. What a file is called
    does not matter, and copies of one file stand side by side.
    """
    ordered = sorted(images, key=lambda path: (content(path), path.as_posix()))
    count = min(max(1, round(share * len(ordered))), len(ordered) - 1)
    return ordered[count:], ordered[:count]


def split(held: Layout, share: float) -> tuple[Classes, Classes]:
    """Train and test images by class; UsageError where a class has too few to be parted."""
    if held.test is not None:
        return held.train, held.test
    lone = [name for name, images in held.train.items() if len(images) < 2]
    if lone:
        raise UsageError(
            f"'folder': classes {lone} have one image each; at least two are needed, one of "
            "them for testing"
        )
    parted = {name: set_aside(images, share) for name, images in held.train.items()}
    train, test = ({name: tuple(p[i]) for name, p in parted.items()} for i in (0, 1))
    return train, test
