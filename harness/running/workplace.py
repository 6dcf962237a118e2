"""Where attacks and learners work: their processes and folders, and what both are handed alike."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from pydantic import ConfigDict, Field, FiniteFloat, RootModel, ValidationError

from harness.api.errors import CellFailed
from harness.api.plugins import Progress
from harness.api.view import Budget
from harness.store.paths import scratch_folder, write_atomically
from harness.store.provenance import plain_config

if TYPE_CHECKING:
    from torch import Tensor

    from harness.asking.request import Resolved
    from harness.sandbox.feed import Feed
    from harness.sandbox.jobs import Named
    from harness.sandbox.process import Spent


ROOM = 1 << 16
"""Bytes that there is room for where a disk is not full."""
MOST_RESULT, MOST_DIAGNOSTICS = 1 << 34, 1 << 20
"""Bytes that are read of what a process left: its tensors, and its numbers."""


class Process(Protocol):
    """Where one attack or learner does its jobs, one after another."""

    @property
    def walls(self) -> Mapping[str, Any]:
        """What confines it, once it has done a job."""
        ...

    def ask(
        self,
        job: Mapping[str, Any],
        budget: Budget,
        progress: Progress,
        *,
        spent: float = 0.0,
        who: str = "the attack",
        feed: Feed | None = None,
    ) -> Spent:
        """Have a job done; CellFailed or CellTimedOut where it fails."""
        ...

    def confine(self, reads: Iterable[Path], writes: Iterable[Path]) -> None:
        """Leave it no other folders, besides what Python needs; before its first job."""
        ...


class Processes(Protocol):
    """Lends each attack a process; more may be `expected`, so that one is started ahead."""

    expected: int

    def warm(self) -> None:
        """Start the next one now."""
        ...

    def take(self) -> AbstractContextManager[Process]:
        """A process for one attack."""
        ...


@dataclass(frozen=True)
class Workplace:
    """The process of one attack, and its folders: the views before and of the release, and out."""

    process: Process
    base: Path
    before: Path
    view: Path
    out: Path


def workplaces() -> Path:
    """Where attacks work: the system's temporary folder, far from the store."""
    return Path(tempfile.gettempdir()) / f"encoding-harness-{os.getuid()}"


@contextmanager
def workplace(process: Process, label: str, reads: Iterable[Path] = ()) -> Iterator[Workplace]:
    """Folders for one attack, gone when it is done; whatever else it `reads` stays.

    StoreError where it failed and there is no room to write either: then that is why, or may be.
    """
    with scratch_folder(workplaces(), label.replace(" ", "-")) as base:
        folders = base / "before", base / "view", base / "out"
        for folder in folders:
            folder.mkdir()
        process.confine([base, *reads], [base / "out"])
        try:
            yield Workplace(process, base, *folders)
        except CellFailed:
            write_atomically(base / "room", bytes(ROOM))
            raise


def confinement(walls: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """How several processes were confined at least; None where there were none."""
    if not walls:
        return None
    return {
        "landlock": min(each.get("landlock", 0) for each in walls),
        "seccomp": all(each.get("seccomp", False) for each in walls),
    }


def law_of(encoding: Resolved, resolved: Mapping[str, Mapping[str, float | int | str]]) -> Named:
    """An encoding defense with its parameters as they turned out, by name."""
    from harness.sandbox.jobs import Named

    config = {**plain_config(encoding), **resolved.get(encoding.name, {})}
    return Named(name=encoding.name, config=config)


def tensors_in(path: Path, who: str = "the attack") -> dict[str, Tensor]:
    """What a process left in a file; CellFailed, naming `who`, where that cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = left_by(path, MOST_RESULT, who)
    try:
        return load(data)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CellFailed(f"{who} left no readable result: {error}") from None


class Diagnostics(RootModel[dict[Annotated[str, Field(max_length=200)], FiniteFloat]]):
    """Numbers by name."""

    model_config = ConfigDict(strict=True)


def diagnostics_in(path: Path, who: str = "the attack") -> dict[str, float]:
    """Numbers by name that a process left; CellFailed, naming `who`, where it left others."""
    data = left_by(path, MOST_DIAGNOSTICS, who)
    try:
        return Diagnostics.model_validate_json(data).root
    except ValidationError as error:
        raise CellFailed(
            f"{who} left diagnostics that are none: {error.errors()[0]['msg']}"
        ) from None


def left_by(path: Path, most: int, who: str) -> bytes:
    """What stands in a file; CellFailed unless it is a plain one, of a size to read.

    It is copied: whoever left it may still write to it.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise CellFailed(f"{who} left no readable result: {path.name} is missing") from None
    except OSError:
        raise CellFailed(f"{who} left no readable result: {path.name} is no plain file") from None
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode):
        os.close(opened)
        raise CellFailed(f"{who} left no readable result: {path.name} is no plain file")
    with os.fdopen(opened, "rb") as file:
        if found.st_size > most:
            raise CellFailed(
                f"{who} left {found.st_size >> 20} MB in {path.name}: too much to read"
            )
        return file.read(most)
