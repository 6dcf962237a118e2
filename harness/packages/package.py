"""Writing a package as a stream, and reading one from a stranger, of whom nothing is believed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from pydantic import ValidationError

from harness.api import CellFailed, IntegrityError, UsageError
from harness.api.errors import StoreError
from harness.api.plugins import Progress, silent
from harness.packages.statement import FLOAT, MOST_HEADER, SAID, UNSEALED, Place, Statement
from harness.store.paths import disk_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from harness.api import Encodings

PIECE_BYTES = 1 << 24
"""Bytes of a piece that is read, at most, but for a row that is larger."""
LABEL_SLACK = 1e-4
"""How far rounding may lift the sum of a soft label above one, or a share below zero."""
SPARE = 1 << 26
"""Bytes that stay free on the disk."""


def check_place(path: Path, size: int) -> None:
    """UsageError where nothing can be written, StoreError where the disk has too little room."""
    with disk_errors(path):
        if os.path.lexists(path):
            raise UsageError(f"{path} is there already; nothing is written over a release.")
        parent = path.absolute().parent
        if not parent.is_dir():
            raise UsageError(f"There is no folder {parent}.")
        free = shutil.disk_usage(parent).free
    if free < size + SPARE:
        raise StoreError(
            f"{path} takes {in_bytes(size)}, and {parent} has {in_bytes(free)} free: ask for fewer "
            "rounds, or another place."
        )


def in_bytes(count: int) -> str:
    """As people read it."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


def write_package(
    path: Path, unsealed: Statement, rounds: Encodings, progress: Progress = silent
) -> Statement:
    """Write every round as it is made; gives what the package says, with hashes and seal.

    The file appears when all of it is on the disk. Only a piece is held, and a round's labels.
    """
    check_place(path, unsealed.size)
    blank = dict.fromkeys((place.name for place in unsealed.places()), UNSEALED)
    with _beside(path) as file:
        file.write(unsealed.sealed(blank).header())
        hashes: dict[str, str] = {}
        for round_ in range(unsealed.rounds):
            hashes |= _write_round(file, unsealed, rounds, round_, progress)
        whole = unsealed.sealed(hashes)
        file.seek(0)
        file.write(whole.header())  # as long as before: every hash and the seal have 64 digits
    return whole


def _write_round(
    file: BinaryIO, said: Statement, rounds: Encodings, round_: int, progress: Progress
) -> dict[str, str]:
    """One piece is hashed and written while the next one is made."""
    encodings, labels = said.round(round_)
    digest, kept, done = hashlib.sha256(), [], 0

    def put(values: NDArray[np.float32]) -> None:
        digest.update(values.data)
        file.write(values.data)

    with ThreadPoolExecutor(1) as writer:
        written: Future[None] | None = None
        for images, soft in rounds.pieces(round_):
            if written:
                written.result()
            written = writer.submit(put, images.contiguous().numpy())
            kept.append(soft.numpy())
            done += len(soft)
            progress(round_ * said.rows + done, said.rounds * said.rows, f"round {round_ + 1}")
        if written:
            written.result()
    if done != said.rows:
        raise CellFailed(f"a round has {done} rows, and {said.rows} were announced")
    last = np.ascontiguousarray(np.concatenate(kept))
    file.write(last.data)
    return {
        encodings.name: digest.hexdigest(),
        labels.name: hashlib.sha256(last.data).hexdigest(),
    }


@contextmanager
def _beside(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path`, which it becomes if all goes well; else nothing is left of it."""
    part = path.with_name(f".{path.name}-{os.getpid()}-{token_hex(4)}")
    try:
        with disk_errors(path):
            with part.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.link(part, path)  # unlike a rename, never over what came meanwhile
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


class Package:
    """A package that is open: its statement was read and is whole, its tensors were not yet.

    It is `Encodings`: its rounds in pieces, read as they are asked for.
    """

    def __init__(self, path: Path, file: BinaryIO, said: Statement, start: int) -> None:
        self.path = path
        self.said = said
        self._file = file
        self._start = start

    @classmethod
    def open(cls, path: Path) -> Package:
        """Read what a package says.

        UsageError (2) where the file is no package, IntegrityError (3) where its statement was
        changed. Nothing is allocated by what the file says of its size before that is the size it
        has.
        """
        file = _plain_file(path)
        try:
            with disk_errors(path):
                said, start = _stated(path, file)
        except BaseException:
            file.close()
            raise
        return cls(path, file, said, start)

    def __enter__(self) -> Package:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def rounds(self) -> int:
        """How often each image was encoded."""
        return self.said.rounds

    @property
    def rows(self) -> int:
        """Encodings of one round."""
        return self.said.rows

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one encoding."""
        return self.said.shape

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        """A round's encodings [b, *shape] float32 with their soft labels [b, classes]."""
        import torch

        images, labels = self.said.round(round_)
        step = max(1, min(self.rows, PIECE_BYTES // (prod(self.shape) * FLOAT)))
        for start in range(0, self.rows, step):
            count = min(step, self.rows - start)
            part = (self._rows(each, start, count) for each in (images, labels))
            encodings, soft = map(torch.from_numpy, part)
            yield encodings, soft

    def check(self, progress: Progress = silent) -> None:
        """Read all of it once: IntegrityError unless every tensor has its hash and is sound."""
        done = 0
        for place in self.said.places():
            digest = hashlib.sha256()
            flaw = ""
            for rows in self._in_parts(place):
                digest.update(rows.data)
                flaw = flaw or _flaw(place.name, rows)
                done += rows.nbytes
                progress(done, self.said.size, place.name)
            if digest.hexdigest() != self.said.hashes[place.name]:
                raise IntegrityError(
                    f"{self.path}: `{place.name}` does not have the hash that the package "
                    "gives: it was changed, or did not come whole. Get it again from its owner."
                )
            if flaw:
                raise IntegrityError(f"{self.path}: {flaw}: no defense makes such a release.")

    def _in_parts(self, place: Place) -> Iterator[NDArray[np.float32]]:
        step = max(1, PIECE_BYTES // (prod(place.shape[1:]) * FLOAT))
        for start in range(0, self.rows, step):
            yield self._rows(place, start, min(step, self.rows - start))

    def _rows(self, place: Place, start: int, count: int) -> NDArray[np.float32]:
        rows = np.empty((count, *place.shape[1:]), "<f4")
        with disk_errors(self.path):
            self._file.seek(self._start + place.begin + start * rows[0].nbytes)
            read = self._file.readinto(rows.data.cast("B"))  # type: ignore[attr-defined]
        if read != rows.nbytes:
            raise IntegrityError(f"{self.path} was cut off while it was read.")
        return rows


def _flaw(name: str, rows: NDArray[np.float32]) -> str:
    """What no release holds; empty where these rows are sound."""
    if not np.isfinite(rows).all():
        return f"`{name}` holds values that are not finite"
    if name.startswith("labels"):
        most = rows.sum(1, dtype=np.float64).max()
        if rows.min() < -LABEL_SLACK or most > 1 + LABEL_SLACK:
            return f"`{name}` holds soft labels that are negative or sum to more than one"
    return ""


def _plain_file(path: Path) -> BinaryIO:
    """Open a plain file, and wait for nothing; UsageError for a link, a device or a pipe."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise UsageError(f"There is no package {path}.") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UsageError(f"{path} is a link; name the package itself.") from None
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UsageError(f"{path} is not a file.")
    return os.fdopen(handle, "rb")


def _stated(path: Path, file: BinaryIO) -> tuple[Statement, int]:
    """What is said, and where the tensors begin."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= length <= min(MOST_HEADER, size - 8):
        raise _no_package(path, "its header is as long as no header is")
    header = file.read(length)
    said = _parsed(path, header)
    if length.to_bytes(8, "little") + header != said.header():
        raise _no_package(path, "its header is not the one that follows from what it says")
    if set(said.hashes) != {place.name for place in said.places()}:
        raise _no_package(path, "it does not give one hash for each tensor")
    if said.seal != said.own_seal():
        raise IntegrityError(
            f"{path} does not have the seal that it gives: what it says was changed. Get it again "
            "from its owner."
        )
    if size != 8 + length + said.size:
        raise _no_package(
            path, f"it has {size} bytes, and what it says takes {8 + length + said.size}"
        )
    return said, 8 + length


def _parsed(path: Path, header: bytes) -> Statement:
    try:
        outer = json.loads(header, parse_constant=_refused)
        text = outer["__metadata__"][SAID]
        return Statement.model_validate_json(text)
    except ValidationError as error:
        raise _no_package(path, fault_of(error)) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _no_package(path, "its header cannot be read") from None


def fault_of(error: ValidationError) -> str:
    """The first thing that is wrong, and where, in a line that can be printed."""
    found: Any = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, found["loc"]))[:80]
    shown = "".join(each if each.isprintable() else "?" for each in where)
    return ": ".join(filter(None, (shown, str(found["msg"]))))


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _no_package(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path} is not a release of this kind: {reason}.")
