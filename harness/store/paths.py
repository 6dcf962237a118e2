"""Where things live on this machine, and writing them so that a kill leaves nothing half done."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from secrets import token_hex

from harness.api.errors import StoreError

ENVIRONMENT = "HARNESS_CACHE"
ADVICE = {
    errno.ENOSPC: f"free some space, run `harness cache prune`, or set {ENVIRONMENT} elsewhere",
    errno.EDQUOT: f"free some space, run `harness cache prune`, or set {ENVIRONMENT} elsewhere",
    errno.EACCES: f"make it writable or set {ENVIRONMENT} to a folder that is",
    errno.EPERM: f"make it writable or set {ENVIRONMENT} to a folder that is",
    errno.EFBIG: f"raise the limit on file sizes (ulimit -f) or set {ENVIRONMENT} elsewhere",
    errno.EROFS: f"set {ENVIRONMENT} to a folder that can be written",
    errno.ENOTDIR: f"a file is in the way; remove it or set {ENVIRONMENT} elsewhere",
    errno.EEXIST: f"a file is in the way; remove it or set {ENVIRONMENT} elsewhere",
}


def cache_root() -> Path:
    """The folder of everything kept between runs: `$HARNESS_CACHE`, or the user's cache."""
    chosen = os.environ.get(ENVIRONMENT)
    if chosen:
        return _usable(Path(chosen))
    from platformdirs import user_cache_path

    return user_cache_path("encoding-harness", appauthor=False)


def _usable(chosen: Path) -> Path:
    """An absolute path that can be looked at, whether anything is there yet or not."""
    try:
        root = chosen.expanduser().absolute()
    except RuntimeError as error:
        raise StoreError(f"{ENVIRONMENT}={chosen}: {error}") from None
    with disk_errors(root):
        (root / "records").is_dir()
    return root


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusals into a StoreError that says where and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        advice = ADVICE.get(error.errno, f"check the disk or set {ENVIRONMENT} elsewhere")
        where = error.filename or path
        raise StoreError(f"{where}: {error.strerror or error}; {advice}.") from error


@contextmanager
def scratch_folder(root: Path, label: str) -> Iterator[Path]:
    """A fresh folder below the root, removed at the end whatever happens."""
    with disk_errors(root):
        (root / "tmp").mkdir(parents=True, exist_ok=True)
        prefix = f"{platform.node()}@{os.getpid()}@{label}-"
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root / "tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove the scratch folders of this machine's processes that were killed."""
    from psutil import pid_exists

    for folder in (root / "tmp").glob(f"{escape(platform.node())}@*@*"):
        number = folder.name.split("@")[-2]
        if number.isdigit() and not pid_exists(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is either wholly there or not at all."""
    part = path.with_name(f".{path.name}-{os.getpid()}-{token_hex(4)}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise
