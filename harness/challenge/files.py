"""Files that users name: what the system refuses becomes a sentence."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api import UsageError

if TYPE_CHECKING:
    from torch import Tensor


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn the system's refusals into UsageErrors that say where."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise UsageError(f"{where}: {error.strerror or error}.") from None
    except RuntimeError as error:  # how Python 3.11 words a loop of links
        raise UsageError(f"{path}: {error}.") from None


def require(path: Path, what: str) -> None:
    """UsageError unless there is a plain file."""
    with refusals(path):
        if not path.is_file():
            raise UsageError(f"There is no {what} at {path}.")


def sha256_of_file(path: Path, what: str) -> str:
    """SHA-256 of a plain file; UsageError where it is none or cannot be read."""
    require(path, what)
    with refusals(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_tensors(path: Path, what: str) -> dict[str, Tensor]:
    """All tensors of a safetensors file; UsageError where it is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    require(path, what)
    try:
        with refusals(path):
            return load_file(path)
    except (SafetensorError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(
            f"The {what} {path} is not a readable safetensors file: {error}."
        ) from None
