"""What several parties release, as the server that joins it has it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from harness.api import (
    CellFailed,
    Measured,
    Samples,
    SamplesOnDemand,
    StatisticsDefense,
    Stream,
)
from harness.running.encoding import Parameters, Source, piece_rows
from harness.running.stage import plugin_boundary

PARTY = "extra.party"
"""Which party each row is of, among what is known of a release's rows."""


class PartySource(Source):
    """One party's rounds: what it would release if there were nobody else."""

    def turns(self, round_: int, count: int) -> Iterator[dict[str, Tensor] | None]:
        """A round in `count` pieces as even as can be; None in the place of one without rows.

        The rows, their order and all their bytes are those of `made`, whatever the pieces.
        """
        with plugin_boundary(self.name):
            begun = self._begun(round_)
            order = self._owner.stream(what="order", round=round_).permutation(self.rows)
            for index in order.tensor_split(count):
                yield self._piece(begun, index, round_) if len(index) else None


class JoinedSource(Source):
    """The union of parties' rounds. Every piece has rows of every party, as many as its share.

    Sources count all private images, party by party, and `extra.party` says whose a row is, the
    first of these parties being `number`.
    """

    def __init__(self, parties: Sequence[PartySource], number: int = 0) -> None:
        first = parties[0]
        every = _Together([party._private for party in parties])
        named = (first.name, first._defense) if first._defense else None
        super().__init__(every, first._public, named, first._owner, first.rounds, first._classes)
        self.parties = parties
        self._number = number

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one encoding; the parties' agree."""
        shapes = {party.shape for party in self.parties}
        if len(shapes) > 1:
            raise CellFailed(f"the parties' encodings have shapes {sorted(shapes)}, not one")
        return shapes.pop()

    @property
    def resolved(self) -> Mapping[str, Parameters]:
        """One set of parameters for all: where parties' own differ, their root mean square.

        Each party's stay with its source.
        """
        own = [party.resolved.get(self.name, {}) for party in self.parties]
        if not self.parties[0].resolved:
            return {}
        sizes = [party.rows for party in self.parties]
        return {self.name: {name: merged([o[name] for o in own], sizes, name) for name in own[0]}}

    def made(self, round_: int) -> Iterator[dict[str, Tensor]]:
        """A round in pieces of everything."""
        count = max(1, -(-self.rows // piece_rows(self.shape)))
        for parts in zip(*(party.turns(round_, count) for party in self.parties), strict=True):
            yield self._union(parts)

    def _union(self, parts: Sequence[dict[str, Tensor] | None]) -> dict[str, Tensor]:
        starts = [0, *accumulate(party.rows for party in self.parties)]
        pieces = []
        for number, part in enumerate(parts):
            if part is not None:
                rows, own = self.parties[number].rows, part["sources"]
                sources = torch.where(own < rows, own + starts[number], own - rows + self.rows)
                whose = torch.full((len(own),), number + self._number)
                pieces.append({**part, "sources": sources, PARTY: whose})
        if len({frozenset(piece) for piece in pieces}) > 1:
            raise CellFailed(f"defense '{self.name}' keeps other secrets of one party than another")
        return {name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]}


def merged(
    values: Sequence[float | int | str], weights: Sequence[int], name: str
) -> float | int | str:
    """One value for several parties': theirs where it is the same, else the root mean square.

    The energy of noise is a square, and the union's is the mean over rows. CellFailed for words
    that differ.
    """
    if len(set(values)) == 1:
        return values[0]
    numbers = [float(v) for v in values if not isinstance(v, str)]
    if len(numbers) < len(values):
        raise CellFailed(f"the parties resolved '{name}' to {sorted(map(str, set(values)))}")
    squares = (w * v * v for v, w in zip(numbers, weights, strict=True))
    return math.sqrt(math.fsum(squares) / sum(weights))


class _Together:
    """The parties' images one after another, made where they are asked for."""

    def __init__(self, parts: Sequence[SamplesOnDemand]) -> None:
        self._parts = parts
        self.labels = torch.cat([part.labels for part in parts])
        self.shape = parts[0].shape

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: slice | Tensor) -> Samples:
        """Some of them, in the order asked for."""
        rows = torch.arange(len(self))[index]
        images = torch.empty(len(rows), *self.shape)
        for part, (start, end) in zip(self._parts, self._spans(), strict=True):
            own = (rows >= start) & (rows < end)
            images[own] = part[rows[own] - start].images
        return Samples(images, self.labels[rows])

    def _spans(self) -> Iterator[tuple[int, int]]:
        return pairwise(accumulate((len(part) for part in self._parts), initial=0))


class JoinedSums(StatisticsDefense[Any]):
    """The sum of parties' noisy sums: each image is in one of them, and noise adds up."""

    def __init__(
        self,
        parties: Sequence[StatisticsDefense[Any]],
        sizes: Sequence[int],
        pool: int,
        first: int = 0,
    ) -> None:
        super().__init__(parties[0].config)
        self._parties, self._sizes, self._pool, self._first = parties, sizes, pool, first

    def measure(
        self, private: SamplesOnDemand, public: Samples, classes: int, rng: Stream
    ) -> Measured:
        """What the server has after adding; a party's guarantee is of its own images.

        CellFailed where parties' guarantees differ.
        """
        spans = pairwise(accumulate(self._sizes, initial=0))
        made = [
            party.measure(
                private[start:end], public[: self._pool], classes, rng.stream(party=number)
            )
            for number, (party, (start, end)) in enumerate(
                zip(self._parties, spans, strict=True), self._first
            )
        ]
        first = made[0]
        if any(each.guarantee != first.guarantee for each in made):
            raise CellFailed("the parties' guarantees differ, and a sum of them has none")
        return Measured(
            sums=torch.stack([each.sums for each in made]).sum(0),
            counts=torch.stack([each.counts for each in made]).sum(0),
            noise=math.hypot(*(each.noise for each in made)),
            count_noise=math.hypot(*(each.count_noise for each in made)),
            basis=first.basis,
            guarantee=first.guarantee,
        )

    def embed(self, images: Tensor, basis: Mapping[str, Tensor]) -> Tensor:
        """As every party does."""
        return self._parties[0].embed(images, basis)
