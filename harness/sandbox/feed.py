"""How the pieces of a release come to a learner's process: as files, one for each piece.

The learner's side asks by round and number, the owner's says where the piece lies. What was
mapped stays what it was for as long as it is used: a piece has a file of its own, which is gone
from the folder by the time the next one is asked for. While the learner works on a piece, the
owner makes the one after it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from harness.api import CellFailed, Encodings
from harness.sandbox.lines import ChildLines, Message
from harness.store.paths import disk_errors

NO_PIECE = "the learner asked for a piece that there is not"


class Feed:
    """The owner's side: pieces of a release in files, made in order and one ahead."""

    def __init__(self, release: Encodings, folder: Path) -> None:
        self._release = release
        self._folder = folder
        self._place = (0, 0)
        self._pieces: Iterator[tuple[Tensor, Tensor]] | None = None
        self._rows = self._files = 0
        self._ready: Message | None = None
        self._given: Message | None = None
        self.seconds = 0.0
        """How long pieces were made."""

    def piece(self, round_: int, number: int) -> Message:
        """The file of a piece, its rows, and whether it is its round's last.

        CellFailed where there is none; the file given before is removed.
        """
        self._remove(self._given)
        if (round_, number) != self._place:
            self._seek(round_, number)
        self.make_ahead()
        if self._ready is None:
            raise CellFailed(NO_PIECE)
        self._given, self._ready = self._ready, None
        if self._given["last"]:
            self._place, self._pieces = (round_ + 1, 0), None
        else:
            self._place = (round_, number + 1)
        return self._given

    def make_ahead(self) -> None:
        """Make the next piece, unless it is there already or there is none."""
        if self._ready is not None or self._place[0] >= self._release.rounds:
            return
        started = time.perf_counter()
        found = self._next()
        self._ready = self._written(*found) if found else None
        self.seconds += time.perf_counter() - started

    def _seek(self, round_: int, number: int) -> None:
        """Begin a round anew, up to a piece."""
        if not (0 <= round_ < self._release.rounds and number >= 0):
            raise CellFailed(NO_PIECE)
        self._remove(self._ready)
        self._place, self._pieces, self._ready = (round_, number), None, None
        for _ in range(number):
            if self._next() is None:
                raise CellFailed(NO_PIECE)

    def _next(self) -> tuple[Tensor, Tensor] | None:
        if self._pieces is None:
            self._pieces, self._rows = self._release.pieces(self._place[0]), 0
        found = next(self._pieces, None)
        self._rows += len(found[1]) if found else 0
        return found

    def _written(self, images: Tensor, labels: Tensor) -> Message:
        self._files += 1
        path = self._folder / f"piece-{self._files}"
        with disk_errors(path), path.open("wb") as file:
            for tensor in (images, labels):
                file.write(tensor.contiguous().numpy().data)
        return {"file": str(path), "rows": len(labels), "last": self._rows >= self._release.rows}

    def _remove(self, message: Message | None) -> None:
        if message is not None:
            Path(message["file"]).unlink(missing_ok=True)


@dataclass(frozen=True)
class Fed:
    """The learner's side: encodings that `fetch` tells the files of. They are its `Encodings`."""

    rounds: int
    rows: int
    shape: tuple[int, ...]
    classes: int
    device: torch.device
    fetch: Callable[[int, int], Message]

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        """A round's encodings with their soft labels, for as long as they are used."""
        number, last = 0, False
        while not last:
            said = self.fetch(round_, number)
            yield self._mapped(said["file"], said["rows"])
            number, last = number + 1, said["last"]

    def _mapped(self, file: str, rows: int) -> tuple[Tensor, Tensor]:
        """A file's tensors: memory of this process alone, once it writes there."""
        width = math.prod(self.shape)
        held = torch.from_file(file, shared=False, size=rows * (width + self.classes))
        images, labels = torch.split(held, [rows * width, rows * self.classes])
        return (
            images.view(rows, *self.shape).to(self.device),
            labels.view(rows, self.classes).to(self.device),
        )


class Giver:
    """Answers, in a thread of its own, what a process asks of a feed; it is watched meanwhile."""

    def __init__(self, feed: Feed, lines: ChildLines) -> None:
        self._feed = feed
        self._lines = lines
        self._thread = ThreadPoolExecutor(1)
        self._answers: list[Future[None]] = []
        self._asked: float | None = None
        self._waited = 0.0

    def __enter__(self) -> Giver:
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    @property
    def waited(self) -> float:
        """How many seconds the process has waited for pieces."""
        asked = self._asked
        return self._waited + (time.monotonic() - asked if asked is not None else 0.0)

    def give(self, round_: int, number: int) -> None:
        """Begin to answer; CellFailed where it has not heard the last answer yet."""
        if self._asked is not None:
            raise CellFailed("the learner asked for two pieces at once")
        self._asked = time.monotonic()
        self._answers.append(self._thread.submit(self._answer, round_, number))

    def check(self) -> None:
        """Raise what went wrong while pieces were made."""
        while self._answers and self._answers[0].done():
            self._answers.pop(0).result()

    def _answer(self, round_: int, number: int) -> None:
        said = self._feed.piece(round_, number)
        self._waited, self._asked = self.waited, None
        with suppress(BrokenPipeError):  # its end is noticed when it is listened to
            self._lines.send(**said)
        self._feed.make_ahead()
