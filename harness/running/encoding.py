"""The owner's rounds of encoding: made on demand, piece by piece, checked and shuffled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.api import (
    CellFailed,
    Encoded,
    EncodingDefense,
    PiecewiseDefense,
    Round,
    Samples,
    SamplesOnDemand,
    Secrets,
    Splits,
    Stream,
    UsageError,
)
from harness.running.samples import on_demand, standardised
from harness.running.stage import plugin_boundary
from harness.sandbox.rebuilding import plain

LABEL_SLACK = 1e-4
"""How far rounding may lift the sum of an encoding's soft label above one."""
PIECE = 1024
"""Rows of a piece, at most."""
PIECE_VALUES = 1 << 22
"""Numbers of a piece's encodings, at most, but for a row that is larger: 16 MB. The system
would have to give and to zero the memory of larger ones anew, which takes a quarter of the time."""

Parameters = Mapping[str, float | int | str]
Law = Mapping[str, tuple[torch.Size, torch.dtype]]


def source_of(
    splits: Splits,
    defense: tuple[str, EncodingDefense[Any]] | None,
    owner: Stream,
    *,
    rounds: int = 1,
) -> Source:
    """The rounds of an encoding defense over the private images, standardised."""
    private = on_demand(splits.private, splits.scale)
    public = standardised(splits.public if defense else splits.public[:0], splits.scale)
    return Source(private, public, defense, owner, rounds, len(splits.classes))


@dataclass(frozen=True)
class Held:
    """T rounds, row-aligned: every tensor [T,n,...]. `secrets` holds weights, sources, extra.*."""

    images: Tensor
    labels: Tensor
    secrets: Mapping[str, Tensor]
    resolved: Mapping[str, Parameters]


class Source:
    """Rounds of encoding, made whenever they are asked for: the same bytes each time.

    Each round's rows are in a secret order, everything alike, so that the place of a row tells
    nothing of its image. Without an encoding defense the images themselves are the encodings.
    Raises `CellFailed` where the defense breaks its contract.
    """

    def __init__(
        self,
        private: SamplesOnDemand,
        public: Samples,
        defense: tuple[str, EncodingDefense[Any]] | None,
        owner: Stream,
        rounds: int,
        classes: int,
    ) -> None:
        self.rounds = rounds
        self.rows = len(private)
        self.name = defense[0] if defense else "none"
        self._defense = defense[1] if defense else None
        self._private, self._public = private, public
        self._owner = owner
        self._classes = classes
        self._first: tuple[tuple[int, ...], Parameters] | None = None
        self._law: Law | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one encoding."""
        return self._common()[0]

    @property
    def resolved(self) -> Mapping[str, Parameters]:
        """The public parameters as they turned out, by the defense's name."""
        return {self.name: self._common()[1]} if self._defense else {}

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        """What leaves of a round: encodings [b, *shape] with their soft labels [b, classes]."""
        for piece in self.made(round_):
            yield piece["encodings"], piece["labels"]

    def made(self, round_: int) -> Iterator[dict[str, Tensor]]:
        """A round in pieces of everything: encodings, labels, weights, sources, extra.*."""
        with plugin_boundary(self.name):
            begun = self._begun(round_)
            order = self._owner.stream(what="order", round=round_).permutation(self.rows)
            for index in torch.split(order, piece_rows(begun.shape)):
                yield self._piece(begun, index, round_)

    def held(self) -> Held:
        """All rounds at once; UsageError where this machine has less memory than they take."""
        stacked: dict[str, Tensor] = {}
        for t in range(self.rounds):
            done = 0
            for piece in self.made(t):
                if not stacked:
                    _check_memory(self.rounds * self.rows * piece["encodings"][0].nbytes)
                for name, rows in piece.items():
                    if name not in stacked:
                        shape = (self.rounds, self.rows, *rows.shape[1:])
                        stacked[name] = rows.new_empty(shape)
                    stacked[name][t, done : done + len(rows)] = rows
                done += len(piece["labels"])
        images, labels = stacked.pop("encodings"), stacked.pop("labels")
        return Held(images, labels, stacked, self.resolved)

    def _common(self) -> tuple[tuple[int, ...], Parameters]:
        """What all rounds have in common: the shape of an encoding, resolved parameters."""
        if self._first is None:
            with plugin_boundary(self.name):
                self._begun(0)
        assert self._first is not None
        return self._first

    def _begun(self, round_: int) -> Round:
        rng = self._owner.stream(what="encoding", round=round_)
        if self._defense is None:
            begun = Round(self._private.shape, self._plain)
        elif isinstance(self._defense, PiecewiseDefense):
            begun = self._defense.begin(self._private, self._public, rng)
        else:
            whole = self._complete(self._defense.encode(self._private[:], self._public, rng))
            begun = Round(tuple(whole.images.shape[1:]), whole.__getitem__, whole.resolved)
        now = begun.shape, dict(begun.resolved)
        self._first = self._first or now
        if now[0] != self._first[0]:
            raise CellFailed(self._changed(round_))
        if now[1] != self._first[1]:
            raise CellFailed(
                f"defense '{self.name}' in round {round_} resolved {now[1]}, but {self._first[1]} "
                "in round 0; calibrate on the data alone, not on a round's randomness"
            )
        return begun

    def _plain(self, index: Tensor) -> Encoded:
        made = plain(self._private[index], self._classes)
        return replace(made, secrets=replace(made.secrets, sources=index.view(-1, 1)))

    def _complete(self, whole: Encoded) -> Encoded:
        """A round that a defense made in one piece: indexed only if nothing is missing."""
        whole = _with_all_classes(whole, self._classes)
        _require_contract(self.name, whole, self.rows, self._images, self._classes)
        return whole

    @property
    def _images(self) -> int:
        """Private and public ones: what sources count."""
        return self.rows + len(self._public)

    def _piece(self, begun: Round, index: Tensor, round_: int) -> dict[str, Tensor]:
        made = _with_all_classes(begun.rows(index), self._classes)
        _require_contract(self.name, made, len(index), self._images, self._classes)
        rows = _rows(made)
        law = {name: (tensor.shape[1:], tensor.dtype) for name, tensor in rows.items()}
        self._law = self._law or law
        if law != self._law or tuple(made.images.shape[1:]) != begun.shape:
            raise CellFailed(self._changed(round_))
        return rows

    def _changed(self, round_: int) -> str:
        return f"defense '{self.name}' in round {round_} returned other shapes or types than before"


def _check_memory(size: int) -> None:
    there = psutil.virtual_memory().total
    if size > there:
        raise UsageError(
            f"All encodings together take {size / 1e9:,.0f} GB, which attacks hold at once, and "
            f"this machine has {there / 1e9:,.0f} GB of memory: ask for fewer rounds or private "
            "images, or for --only utility, which holds none of them."
        )


def piece_rows(shape: tuple[int, ...]) -> int:
    """How many encodings of this shape are made at a time."""
    return max(1, min(PIECE, PIECE_VALUES // max(1, math.prod(shape))))


def plain_round(private: Samples, classes: int) -> Held:
    """The images as they are and in their order, as one round without a copy."""
    made = plain(private, classes)
    secrets = {"weights": made.secrets.weights[None], "sources": made.secrets.sources[None]}
    return Held(made.images[None], made.labels[None], secrets, {})


def _with_all_classes(made: Encoded, classes: int) -> Encoded:
    """Classes that no image of either pool has may be missing at the end of the labels."""
    labels = made.labels
    if labels.ndim != 2 or labels.shape[1] >= classes:
        return made
    return replace(made, labels=pad(labels, (0, classes - labels.shape[1])))


def _rows(made: Encoded) -> dict[str, Tensor]:
    extra = {f"extra.{key}": value.cpu() for key, value in made.secrets.extra.items()}
    return {
        "encodings": made.images.cpu(),
        "labels": made.labels.cpu(),
        "weights": made.secrets.weights.cpu(),
        "sources": made.secrets.sources.cpu(),
        **extra,
    }


def _require_contract(name: str, made: Encoded, n: int, images: int, classes: int) -> None:
    """Raise `CellFailed` with the first way in which an encoding breaks the contract."""
    problem = (
        _image_problem(made.images, n)
        or _label_problem(made.labels, n, classes)
        or _secret_problem(made.secrets, n, images)
    )
    if problem:
        raise CellFailed(f"defense '{name}' returned {problem}")


def _image_problem(images: Tensor, n: int) -> str | None:
    if images.dtype != torch.float32 or images.ndim < 2 or len(images) != n:
        return f"images {_what(images)}; wanted [{n},...] float32"
    return None if _finite(images) else "images that are not all finite"


def _label_problem(labels: Tensor, n: int, classes: int) -> str | None:
    if labels.dtype != torch.float32 or labels.shape != (n, classes):
        return f"labels {_what(labels)}; wanted [{n},{classes}] float32"
    if not _finite(labels) or labels.min() < -LABEL_SLACK:
        return "labels that are negative or not finite"
    most = labels.sum(dim=1).max().item()
    return f"labels that sum to {most:.6g}, above 1" if most > 1 + LABEL_SLACK else None


def _secret_problem(secrets: Secrets, n: int, images: int) -> str | None:
    weights, sources = secrets.weights, secrets.sources
    if weights.dtype != torch.float32 or weights.ndim != 2 or len(weights) != n:
        return f"weights {_what(weights)}; wanted [{n},k] float32"
    if sources.dtype != torch.int64 or sources.shape != weights.shape:
        return f"sources {_what(sources)}; wanted {list(weights.shape)} int64, as the weights"
    if not _finite(weights):
        return "weights that are not all finite"
    if sources.numel() and (sources.min() < 0 or sources.max() >= images):
        return f"sources outside 0..{images - 1}, the private and public images"
    wrong = [key for key, value in secrets.extra.items() if value.ndim < 1 or len(value) != n]
    return f"extra secrets without one row for each encoding: {', '.join(wrong)}" if wrong else None


def _finite(values: Tensor) -> bool:
    """One pass and no mask in memory: what is not a number is the least and the most."""
    return not values.numel() or all(bool(end.isfinite()) for end in torch.aminmax(values))


def _what(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
