"""Files that users name: one that is not there, or no such file, becomes a sentence."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api import UsageError
from harness.store.paths import disk_errors

if TYPE_CHECKING:
    from torch import Tensor


def require(path: Path, what: str) -> None:
    """UsageError unless there is a plain file."""
    with disk_errors(path):
        if not path.is_file():
            raise UsageError(f"There is no {what} at {path}.")


def sha256_of_file(path: Path, what: str) -> str:
    """SHA-256 of a plain file; UsageError where it is none or cannot be read."""
    require(path, what)
    with disk_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_secret(path: Path, secret: bytes) -> None:
    """A new file of mode 0600; UsageError where something is there already."""
    with disk_errors(path):
        if not path.absolute().parent.is_dir():
            raise UsageError(f"There is no folder {path.absolute().parent}.")
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            raise UsageError(f"{path} is there already; nothing is written over a key.") from None
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # whatever the umask
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())


def read_secret(path: Path, absent: str, strange: str, sizes: Container[int]) -> bytes:
    """What stands in a file that nobody else can read.

    UsageError otherwise: `absent` where there is none, `strange` for one of another size.
    """
    with disk_errors(path):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            raise UsageError(absent) from None
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size not in sizes:
                raise UsageError(strange)
            if found.st_mode & 0o077:
                raise UsageError(
                    f"Others can read the key {path} (mode {stat.S_IMODE(found.st_mode):04o}); "
                    f"chmod 600 {path}"
                )
            return file.read(found.st_size)


def read_tensors(path: Path, what: str) -> dict[str, Tensor]:
    """All tensors of a safetensors file; UsageError where it is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    require(path, what)
    try:
        with disk_errors(path):
            return load_file(path)
    except (SafetensorError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(
            f"The {what} {path} is not a readable safetensors file: {error}."
        ) from None
