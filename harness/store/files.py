"""Files that users name: one that is not there, or no such file, becomes a sentence."""

from __future__ import annotations

import hashlib
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
