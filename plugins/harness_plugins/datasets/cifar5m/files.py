"""Which files hold CIFAR-5m, and what names their content."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.api import UsageError
from harness_plugins.datasets.cifar5m import Cifar5mConfig

TEST_PART = 5
MEMBERS = ("X.npy", "Y.npy")


def part_file(folder: str, part: int) -> Path:
    """The file of one part, as published or with `cifar5m_` before its name."""
    if not folder:
        raise UsageError("'cifar5m' needs its files: cifar5m[path=FOLDER] of part0.npz … part5.npz")
    names = (f"part{part}.npz", f"cifar5m_part{part}.npz")
    paths = [Path(folder).expanduser() / name for name in names]
    found = next((path for path in paths if path.is_file()), None)
    if found is None:
        raise UsageError(f"'cifar5m': no {' or '.join(names)} in {folder}")
    return found


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """One part's zip directory; UsageError where the file is damaged or lacks a member."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, KeyError) as error:
        wanted = " and ".join(name.removesuffix(".npy") for name in MEMBERS)
        raise UsageError(f"'cifar5m': {path} is no whole .npz of {wanted}: {error}") from error


def fingerprint(config: Cifar5mConfig) -> str:
    """Names, sizes and CRC-32s of the members of the two files that `config` reads."""
    lines = []
    for part in (config.part, TEST_PART):
        with opened(part_file(config.path, part)) as archive:
            entries = [archive.getinfo(name) for name in MEMBERS]
        lines += [f"{part}/{e.filename} {e.file_size} {e.CRC:08x}" for e in entries]
    return "; ".join(lines)
