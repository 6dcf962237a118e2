"""Parties: private images dealt out to several owners, who each encode their own.

They stand party by party in the private split, so that all stages after this one, and the judge,
number images alike. A cell of one party has nothing to do with this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from harness.api.data import Samples, Splits
from harness.api.errors import UsageError
from harness.api.plugins import StatisticsDefense
from harness.asking.partition import (
    CURIOUS,
    ByFile,
    Dirichlet,
    Iid,
    Partition,
    Shards,
    parse_partition,
)
from harness.asking.request import FEWEST
from harness.rng import KeyedStream, public_stream
from harness.running.load import LoadStage
from harness.running.samples import JudgedSplits, Truth, on_demand, standardised
from harness.running.stage import code_identity
from harness.store.artifacts import Artifact
from harness.store.record import Parties

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api.plugins import Progress
    from harness.asking.plan import Cell
    from harness.running.joining import JoinedSource
    from harness.running.rounds import Rounds
    from harness.running.run import Run

DRAWS = 100
"""How often a partition is drawn until every party has images enough."""


@dataclass(frozen=True)
class PartedSplits(Splits):
    """Splits whose private images stand party by party, `sizes` of them each.

    The first of them is the party `first`, where only one is there. The last `known` public images
    are those of a curious party, which is the last one.
    """

    sizes: tuple[int, ...] = ()
    first: int = 0
    known: int = 0

    @property
    def pool(self) -> Samples:
        """The public images that nobody owns."""
        return self.public[: len(self.public) - self.known]

    def shares(self) -> Iterator[Samples]:
        """Each party's private images."""
        for start, end in pairwise(accumulate(self.sizes, initial=0)):
            yield self.private[start:end]


def with_parties(cell: Cell) -> Cell:
    """The cell of several parties, whose private images are loaded as these have them."""
    cell.outputs[LoadStage] = PartedLoad(cell)
    if cell.threat_model.name == CURIOUS:
        cell.outputs[Truth] = OthersTruth(cell)
    return cell


@dataclass(frozen=True, eq=False)
class PartedLoad(LoadStage):
    """The splits as the dataset has them, private images party by party.

    A curious party's own images stand in the public split too, behind all others.
    """

    def facts(self) -> dict[str, Any]:
        """What one owner's splits depend on, and how they are dealt out."""
        request = self.cell.request
        partition = parse_partition(request.partition)
        return {
            **super().facts(),
            "loaded by": code_identity("harness.running.load"),
            "parties": request.parties,
            "partition": [type(partition).__name__, partition.model_dump()],
            "party": request.party,
            "curious": self.cell.threat_model.name == CURIOUS,
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Load, then sort by party."""
        request = self.cell.request
        loaded = super().make(run, progress)
        private = LoadStage.read(loaded).private
        owners = dealt(
            private,
            request.parties,
            parse_partition(request.partition),
            public_stream(request.seed).stream(stage="parties"),
        )
        order = owners.argsort(stable=True)
        sizes, first = owners.bincount(minlength=request.parties).tolist(), request.party or 0
        if request.party is not None:
            order, sizes = order[owners[order] == first], [sizes[first]]
        tensors = dict(loaded.tensors)
        for name in (name for name in tensors if name.startswith("private.")):
            tensors[name] = tensors[name][order]
        known = 0
        if self.cell.threat_model.name == CURIOUS:
            known, tensors = sizes[-1], _told(tensors, sizes[-1])
        whose = {"sizes": sizes, "first": first, "known": known}
        return Artifact(tensors, {**loaded.facts, **whose})

    @staticmethod
    def read(stored: Artifact) -> PartedSplits:
        """The splits, and whose the private images are."""
        plain, facts = LoadStage.read(stored), stored.facts
        parts = plain.private, plain.public, plain.test, plain.scale, plain.classes
        sizes, first, known = (facts[name] for name in ("sizes", "first", "known"))
        return PartedSplits(*parts, sizes=tuple(sizes), first=first, known=known)


def _told(tensors: dict[str, Tensor], known: int) -> dict[str, Tensor]:
    """The same, and the last `known` private images behind the public ones."""
    import torch

    def extended(part: str) -> Tensor:
        private = tensors[f"private.{part}"][-known:]
        return torch.cat([tensors[f"public.{part}"], private])

    parts = [name.removeprefix("public.") for name in tensors if name.startswith("public.")]
    return tensors | {f"public.{part}": extended(part) for part in parts}


@dataclass(frozen=True, eq=False)
class OthersTruth(Truth):
    """The splits as the judge has them where a party attacks: its own images are no targets."""

    def obtain(self, run: Run) -> JudgedSplits:
        """All private images before those of the last party, at most."""
        judged = super().obtain(run)
        others = sum(sizes_of(run)[:-1])
        return replace(judged, targets=min(judged.targets, others))


def parties_of(run: Run) -> Parties:
    """What a record says of a cell's parties."""
    from harness.running.joining import JoinedSource
    from harness.running.rounds import Rounds

    splits = run.splits
    assert isinstance(splits, PartedSplits)
    counts = [own.labels.bincount(minlength=len(splits.classes)) for own in splits.shares()]
    resolved: tuple[dict[str, float | int | str], ...] = ()
    if run.cell.encoding:
        source = run(Rounds.of(run.cell))
        assert isinstance(source, JoinedSource)
        resolved = tuple(dict(each) for party in source.parties for each in party.resolved.values())
    return Parties(
        sizes=splits.sizes,
        classes=tuple(tuple(each.tolist()) for each in counts),
        resolved=resolved,
    )


def sizes_of(run: Run) -> tuple[int, ...]:
    """How many private images each party has."""
    splits = run.splits
    assert isinstance(splits, PartedSplits)
    return splits.sizes


def dealt(private: Samples, parties: int, partition: Partition, stream: KeyedStream) -> Tensor:
    """[n] int64: the party of each private image.

    Drawn again while a party has fewer than two images: one alone has no partner. UsageError where
    that does not end, or subjects are asked for that the dataset does not know.
    """
    for draw in range(DRAWS):
        owners = _dealt(private, parties, partition, stream.stream(draw=draw))
        if int(owners.bincount(minlength=parties).min()) >= FEWEST:
            return owners
    raise UsageError(
        f"{len(private)} images cannot be dealt out so that each of {parties} parties has "
        f"{FEWEST}; ask for fewer parties or more private images, or another --partition."
    )


def _dealt(private: Samples, parties: int, partition: Partition, stream: KeyedStream) -> Tensor:
    """One draw of the same, whatever it gives to whom."""
    labels, order = private.labels, stream.permutation(len(private))
    if isinstance(partition, Iid):
        return _evenly(order, parties)
    if isinstance(partition, Dirichlet):
        return _by_dirichlet(labels, order, parties, partition.alpha, stream)
    if isinstance(partition, Shards):
        by_label = order[labels[order].argsort(stable=True)]
        shards = _evenly(by_label, parties * partition.classes)
        return (stream.stream(what="shards").permutation(parties * partition.classes) % parties)[
            shards
        ]
    assert isinstance(partition, ByFile)
    return _by_subject(private.subjects, parties, stream)


def _evenly(order: Tensor, parts: int) -> Tensor:
    """[n]: of which of `parts` runs of `order`, all of one length but for one, each item is."""
    import torch

    found = torch.empty_like(order)
    found[order] = torch.arange(len(order)) * parts // len(order)
    return found


def _by_dirichlet(
    labels: Tensor, order: Tensor, parties: int, alpha: float, stream: KeyedStream
) -> Tensor:
    """Each class is cut where the running sums of a draw of Dir(alpha) say."""
    import numpy as np
    import torch

    drawn = np.random.Generator(np.random.PCG64(stream.stream(what="shares").seed()))
    found = torch.empty_like(order)
    for label in range(int(labels.max()) + 1):
        rows = order[labels[order] == label]
        ends = np.cumsum(drawn.dirichlet(np.full(parties, alpha)))[:-1] * len(rows)
        places = torch.arange(len(rows), dtype=torch.float64)
        found[rows] = torch.searchsorted(torch.from_numpy(ends), places, right=True)
    return found


def _by_subject(subjects: Tensor | None, parties: int, stream: KeyedStream) -> Tensor:
    """Whole subjects, in a drawn order; a party ends where it has its share of images."""
    if subjects is None:
        raise UsageError("--partition by-file needs a dataset that knows subjects, such as xrays.")
    numbers = _renumbered(subjects)
    counts = numbers.bincount()
    order = stream.stream(what="subjects").permutation(len(counts))
    before = counts[order].cumsum(0) - counts[order]
    owner = before.new_empty(len(counts))
    owner[order] = before * parties // len(subjects)
    found: Tensor = owner[numbers]
    return found


def _renumbered(subjects: Tensor) -> Tensor:
    """[n] the same subjects, counted from 0."""
    import numpy as np
    import torch

    return torch.from_numpy(np.unique(subjects.numpy(), return_inverse=True)[1])


def joined(rounds: Rounds, run: Run) -> JoinedSource:
    """The union of what the parties release, each by a key and a calibration of its own."""
    from harness.running.joining import JoinedSource, PartySource
    from harness.running.rounds import owner_stream

    splits, scale, resolved = run.splits, run.splits.scale, rounds.defense
    assert isinstance(splits, PartedSplits)
    classes = len(splits.classes)
    owner = owner_stream(run, rounds.draw)
    public = standardised(splits.pool if resolved else splits.pool[:0], scale)

    def party(number: int, own: Samples) -> PartySource:
        named = None
        if resolved:
            named = resolved.name, run.build("defenses", resolved.spec, resolved.config)
        key = owner.stream(party=number)
        return PartySource(on_demand(own, scale), public, named, key, rounds.rounds, classes)

    every = [party(i, own) for i, own in enumerate(splits.shares(), splits.first)]
    return JoinedSource(every, splits.first)


def joined_sums(build: Callable[[], StatisticsDefense[Any]], run: Run) -> StatisticsDefense[Any]:
    """A defense that sums as the parties do: each its own images, with noise of its own."""
    from harness.running.joining import JoinedSums

    splits = run.splits
    assert isinstance(splits, PartedSplits)
    return JoinedSums([build() for _ in splits.sizes], splits.sizes, len(splits.pool), splits.first)
