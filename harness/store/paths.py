"""Where things live on this machine, and writing them so that a kill leaves nothing half done.

Entries of the cache bear its seal, a hash under a key that lies beside them: what somebody wrote
there who has not read the key, and what the disk changed, is found when it is read.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from secrets import token_bytes, token_hex

from harness.api.errors import IntegrityError, StoreError

ENVIRONMENT = "HARNESS_CACHE"
ADVICE = {
    errno.ENOSPC: "free some space (`harness cache prune` drops what was not used for long)",
    errno.EDQUOT: "free some space (`harness cache prune` drops what was not used for long)",
    errno.EACCES: "let this user read and write it",
    errno.EPERM: "let this user read and write it",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.EROFS: "nothing can be written there",
    errno.ENOTDIR: "a file is in the way; remove it",
    errno.EEXIST: "a file is in the way; remove it",
}
"""What to do about what the system says."""
ELSEWHERE = f", or set {ENVIRONMENT} to another folder"
"""What also helps in the cache, and nowhere else."""
KEY, KEY_BYTES = "key", 32
"""The file with what a cache seals its entries by, and how long it is."""
UNSEALED = (
    "it does not bear this cache's seal (`harness cache verify --adopt` gives it to what an older "
    "version or another cache left)"
)
REMEDY = "`harness cache verify --remove` drops what is corrupt; then run the same command again."
"""Of what is corrupt in the cache."""


def cache_root() -> Path:
    """The folder of everything kept between runs: `$HARNESS_CACHE`, or the user's cache."""
    if not (chosen := os.environ.get(ENVIRONMENT)):
        return _default()
    try:
        root = Path(chosen).expanduser().absolute()
    except RuntimeError as error:
        raise StoreError(f"{ENVIRONMENT}={chosen}: {error}") from None
    with disk_errors(root):
        (root / "records").is_dir()  # raises where it cannot be looked at
    return root


def _default() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("encoding-harness", appauthor=False)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusals into a StoreError that says where and what to do.

    `path` is what was being read or written; only below the cache is another cache of any help.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        advice = ADVICE.get(error.errno, "check the disk")
        other = ELSEWHERE if _in_cache(path) else ""
        where = error.filename or path
        raise StoreError(f"{where}: {error.strerror or error}; {advice}{other}.") from error
    except RuntimeError as error:  # how Python 3.11 words a loop of links
        if not str(error).startswith("Symlink loop"):
            raise
        raise StoreError(f"{path}: {error}.") from None


def _in_cache(path: Path) -> bool:
    """Whether a path lies in the cache, as far as it is named."""
    chosen = os.environ.get(ENVIRONMENT)
    root = Path(os.path.expanduser(chosen)) if chosen else _default()  # noqa: PTH111  never raises
    return path.absolute().is_relative_to(root.absolute())


def listed(folder: Path, ending: str = "") -> list[Path]:
    """What lies in a folder under names with this ending, by name; nothing where there is none.

    StoreError where the system does not tell: a folder that cannot be read is not an empty one,
    which is what `Path.glob` takes it for.
    """
    with disk_errors(folder), suppress(FileNotFoundError), os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.endswith(ending))
        return [folder / name for name in names]
    return []


def holding(folder: Path, file: str) -> list[Path]:
    """The folders in a folder that hold this file, by name; StoreError as of `listed`."""
    with disk_errors(folder):
        return [path for path in listed(folder) if (path / file).is_file()]


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


@contextmanager
def lock(root: Path, name: str) -> Iterator[None]:
    """Hold a lock between processes; the system frees it when its holder dies."""
    from filelock import FileLock

    with disk_errors(root):
        (root / "locks").mkdir(parents=True, exist_ok=True)
        held = FileLock(root / "locks" / f"{name}.lock")
        held.acquire()
    try:
        yield
    finally:
        held.release()


def seal(root: Path, *what: str) -> str:
    """What only this cache says of these words: a hash under its key."""
    return _hash(own_key(root), what)


def sealed(root: Path, told: object, *what: str) -> bool:
    """Whether a seal is that of this cache on these words. IntegrityError as of `cache_key`."""
    key = cache_key(root)
    return bool(key) and hmac.compare_digest(
        str(told).encode("ascii", "replace"), _hash(key, what).encode()
    )


def own_key(root: Path) -> bytes:
    """The cache's key, which is made where it has none yet. IntegrityError as of `cache_key`."""
    path = root / KEY
    with disk_errors(path):
        if not path.exists():
            with lock(root, KEY):
                if not path.exists():
                    write_atomically(path, token_bytes(KEY_BYTES), mode=0o600)
    return cache_key(root)


def cache_key(root: Path) -> bytes:
    """The cache's key; empty where it has none yet. IntegrityError where it is damaged."""
    path = root / KEY
    with disk_errors(path):
        if not path.exists():
            return b""
        key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise IntegrityError(f"The cache is corrupt: {path} is no key. {REMEDY}")
    return key


def _hash(key: bytes, what: tuple[str, ...]) -> str:
    return hmac.digest(key, json.dumps(what).encode(), "sha256").hex()


def write_atomically(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file that is either wholly there or not at all; `mode` is less the user's mask."""
    part = path.with_name(f".{path.name}-{os.getpid()}-{token_hex(4)}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.touch(mode, exist_ok=False)
            with part.open("r+b") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise
