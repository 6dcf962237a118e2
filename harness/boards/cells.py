"""From a board to the requests that fill it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.api.errors import UsageError
from harness.asking.request import Request, make_request
from harness.asking.selector import expand
from harness.boards.protocol import Attacks, Board, Track
from harness.store.canonical import sha256_of


@dataclass(frozen=True)
class BoardCell:
    """One cell: which track it stands in, and what is asked for. `options` are `request`'s."""

    track: str
    options: dict[str, Any]
    request: Request

    @property
    def identity(self) -> str:
        """What makes two cells the same, on whatever device they run."""
        return identity(self.request)

    @property
    def title(self) -> str:
        """In few words."""
        return f"{self.request.defense} × {self.request.attack}, seed {self.request.seed}"


def identity(request: Request) -> str:
    """A hash of what is asked for, but for the device: numbers of any device answer a cell."""
    return sha256_of(request.model_dump(mode="json", exclude={"device"}))


def cells_of(board: Board) -> list[BoardCell]:
    """Every cell of a board, each once: track by track, defense by defense, seed by seed."""
    found: dict[str, BoardCell] = {}
    for track in board.tracks:
        for cell in _cells_in(board, track):
            found.setdefault(cell.identity + track.name, cell)
    return list(found.values())


def _cells_in(board: Board, track: Track) -> Iterator[BoardCell]:
    seeds = sorted({seed for part in track.cells for seed in part.seeds})
    for text in track.defenses:
        for defense in expand(text):
            for seed in seeds:
                for part in track.cells:
                    if seed in part.seeds and (not part.defenses or text in part.defenses):
                        yield from _against(board, track, part, defense, seed)


def _against(
    board: Board, track: Track, part: Attacks, defense: str, seed: int
) -> Iterator[BoardCell]:
    shared = {**board.options, **track.options, **part.options}
    for text in part.attacks:
        for attack in expand(text):
            options = {**shared, "defense": defense, "attack": attack, "seed": seed}
            yield BoardCell(track.name, options, make_request(**options))


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
    found: dict[str, BoardCell] = {}
    for dataset in datasets or [make_request().dataset]:
        for defense in (each for text in defenses for each in expand(text)):
            for seed in seeds or [0]:
                for attack in (each for text in attacks for each in expand(text)):
                    asked = {
                        **options,
                        "dataset": dataset,
                        "defense": defense,
                        "attack": attack,
                        "seed": seed,
                    }
                    cell = BoardCell(dataset, asked, make_request(**asked))
                    found.setdefault(cell.identity, cell)
    return list(found.values())


def with_threads(cell: BoardCell, threads: int) -> BoardCell:
    """The same cell with so many threads, unless it says how many itself."""
    options = {"threads": threads, **cell.options}
    return BoardCell(cell.track, options, make_request(**options))
