"""From a board to the requests that fill it, and what these will take. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import Any

from harness.api.errors import UsageError
from harness.asking.request import Request, expand, make_request
from harness.boards.protocol import Attacks, Board, Track
from harness.store.provenance import sha256_of
from harness.store.record import RunRecord

OF_STEPS = {"train": "training", "reference": "training unprotected", "release": "release"}
"""Which time of a record is that of a step that is not an attack's."""
LEARNED, UNPROTECTED = "learn ", "learn unprotected "
"""How the labels begin of the times that learners took, and of those on unprotected images."""


@dataclass(frozen=True)
class BoardCell:
    """One cell: which track it stands in, and what is asked for. `options` are `request`'s.

    `alone` is one of accuracy without an attack: a point of a curve over private images.
    """

    track: str
    options: dict[str, Any]
    request: Request
    alone: bool = False

    @property
    def identity(self) -> str:
        """What makes two cells the same, on whatever device they run."""
        return identity(self.request)

    @property
    def title(self) -> str:
        """In few words."""
        asked = self.request
        if self.alone:
            times = "once" if asked.rounds == 1 else f"{asked.rounds} times"
            what = f"learned from {asked.sizes.private} images {times}"
            return f"{asked.defense}, {what}, seed {asked.seed}"
        return f"{asked.defense} × {asked.attack}, seed {asked.seed}"


def identity(request: Request) -> str:
    """A hash of what is asked for, but for the device: numbers of any device answer a cell."""
    return sha256_of(request.model_dump(mode="json", exclude={"device"}))


def cells_of(board: Board) -> list[BoardCell]:
    """Every cell of a board, each once: track by track, defense by defense, seed by seed.

    In each track, those of attacks come before those of accuracy alone.
    """
    found: dict[str, BoardCell] = {}
    for track in board.tracks:
        shared = {**board.options, **track.options}
        seeds = sorted({seed for part in track.cells for seed in part.seeds})
        attacked = _cells(track.name, track.defenses, track.cells, seeds, shared)
        for cell in (*attacked, *_learned(track, shared)):
            found.setdefault(cell.identity + track.name, cell)
    return list(found.values())


def attacked(board: Board) -> list[BoardCell]:
    """Those of a board's cells in which something is attacked, which strangers have to fill."""
    return [cell for cell in cells_of(board) if not cell.alone]


def cells_of_grids(
    defenses: Sequence[str],
    attacks: Sequence[str],
    datasets: Sequence[str],
    seeds: Sequence[int],
    options: dict[str, Any],
) -> list[BoardCell]:
    """Every defense against every attack on every dataset; each text may be a grid."""
    if not (defenses and attacks):
        raise UsageError("Name a board with --board, or at least one --defense and one --attack.")
    every = Attacks.model_construct(attacks=tuple(attacks), seeds=tuple(seeds or [0]))
    found: dict[str, BoardCell] = {}
    for dataset in datasets or [make_request().dataset]:
        shared = {**options, "dataset": dataset}
        for cell in _cells(dataset, defenses, [every], every.seeds, shared):
            found.setdefault(cell.identity, cell)
    return list(found.values())


def _cells(
    track: str,
    defenses: Iterable[str],
    parts: Sequence[Attacks],
    seeds: Sequence[int],
    shared: Mapping[str, Any],
) -> Iterator[BoardCell]:
    for text in defenses:
        able = [part for part in parts if not part.defenses or text in part.defenses]
        for defense, seed, part in product(expand(text), seeds, able):
            grids = part.attacks if seed in part.seeds else ()
            for attack in (each for grid in grids for each in expand(grid)):
                cell = {"defense": defense, "attack": attack, "seed": seed}
                options = {**shared, **part.options, **cell}
                yield BoardCell(track, options, make_request(**options))


def _learned(track: Track, shared: Mapping[str, Any]) -> Iterator[BoardCell]:
    """Cells of accuracy alone. Their attack, which does not run, is the track's first."""
    kept = {name: value for name, value in shared.items() if name != "targets"}
    attack = expand(track.cells[0].attacks[0])[0]
    for part in track.utility:
        for text in part.defenses or track.defenses:
            rounds = part.rounds or (int(shared.get("rounds", 1)),)
            every = product(expand(text), rounds, part.private_size, part.seeds)
            for defense, times, size, seed in every:
                cell = {"defense": defense, "attack": attack, "seed": seed, "only": "utility"}
                sizes = {"private_size": size, "rounds": times}
                options = {**kept, **part.options, **sizes, **cell}
                yield BoardCell(track.name, options, make_request(**options), alone=True)


def with_threads(cell: BoardCell, threads: int) -> BoardCell:
    """The same cell with so many threads, unless it says how many itself."""
    options = {"threads": threads, **cell.options}
    return replace(cell, options=options, request=make_request(**options))


class Costs:
    """Seconds that steps took in records, by how much they are alike."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self._seen: dict[tuple[object, ...], list[float]] = {}
        for record in records:
            stack = "+".join(each.name for each in record.defense)
            for step, seconds in _taken(record).items():
                name = record.attack.name if step == "attack" else stack
                for key in _likeness(step, record.request, name):
                    self._seen.setdefault(key, []).append(seconds)

    def of(self, step: str, request: Request, name: str) -> float | None:
        """The median of what came nearest to such a step; None where nothing did.

        `name` is the attack's, or the stack's where the step is none of an attack.
        """
        for key in _likeness(step, request, name):
            if key in self._seen:
                return median(self._seen[key])
        return None


def _taken(record: RunRecord) -> dict[str, float]:
    """A record's times by step."""
    timing = record.timing
    found = {step: timing[label] for step, label in OF_STEPS.items() if label in timing}
    for label, seconds in timing.items():
        if label.startswith(LEARNED):
            step = "reference" if label.startswith(UNPROTECTED) else "learn"
            found[step] = found.get(step, 0.0) + seconds
    label = f"attack {record.attack.name}"
    if label in timing:
        of_attack = (label, f"prepare {record.attack.name}", f"judge {record.attack.name}")
        found["attack"] = sum(timing.get(each, 0.0) for each in of_attack)
    return found


def _likeness(step: str, request: Request, name: str) -> list[tuple[object, ...]]:
    """Keys from the most alike to the least."""
    sizes = (request.sizes.private, request.rounds, request.targets, request.batch_size)
    written = request.attack if step == "attack" else f"{request.victim} {request.learner}"
    return [
        (step, request.dataset, written, request.defense, sizes),
        (step, request.dataset, written, name, sizes),
        (step, request.dataset, written, sizes),
        (step, request.dataset, name),
    ]


def in_words(seconds: float) -> str:
    """A duration to read: `45 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def share_done(costs: Mapping[str, float | None], done: set[str]) -> float:
    """How much of the work is done, by its cost; what nobody knows counts as the average."""
    known = [cost for cost in costs.values() if cost is not None]
    typical = sum(known) / len(known) if known else 1.0
    weights = {name: typical if cost is None else cost for name, cost in costs.items()}
    whole = sum(weights.values())
    return sum(weights[name] for name in done) / whole if whole else 1.0
