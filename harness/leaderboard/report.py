"""What a check of boards finds, board by board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.leaderboard.build import board_view
from harness.leaderboard.checking import faults_of
from harness.leaderboard.material import gathered
from harness.leaderboard.publishing import differing, files_of, index_of

if TYPE_CHECKING:
    from harness.boards.folder import BoardFolder
    from harness.leaderboard.view import BoardView


@dataclass(frozen=True)
class Report:
    """What is wrong with one board, or with the index over all; `missing` counts cells."""

    name: str
    records: int
    missing: int
    faults: tuple[str, ...]

    def wrong(self, complete: bool) -> bool:
        """Whether anything is; missing cells are only where it must be `complete`."""
        return bool(self.faults or (complete and self.missing))

    def values(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "faults": list(self.faults)}


def checked(folder: BoardFolder) -> tuple[Report, BoardView]:
    """One board: its records, and whether its files are what they give."""
    material = gathered(folder)
    view = board_view(material)
    faults = faults_of(material) + _stale(folder.path, differing(folder.path, files_of(view)))
    return Report(view.name, view.records, view.missing, tuple(faults)), view


def checked_index(root: Path, views: Sequence[BoardView]) -> Report:
    """The table and the page over all boards."""
    return Report(str(root), 0, 0, tuple(_stale(root, differing(root, index_of(views)))))


def _stale(folder: Path, names: Sequence[str]) -> list[str]:
    return [
        f"{folder / name} is not what the records give: run `harness leaderboard build`"
        for name in names
    ]
