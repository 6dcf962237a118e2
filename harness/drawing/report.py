"""What a check of boards finds, board by board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.drawing.publishing import differing, files_of, index_of
from harness.results.build import board_view
from harness.results.material import gathered

if TYPE_CHECKING:
    from harness.boards.folder import BoardFolder
    from harness.results.view import BoardView
    from harness.submissions.checks import Verdict


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
    view = board_view(gathered(folder))
    faults = broken(folder) + _stale(folder.path, differing(folder.path, files_of(view)))
    return Report(view.name, view.records, view.missing, tuple(faults)), view


def checked_index(root: Path, views: Sequence[BoardView]) -> Report:
    """The table and the page over all boards."""
    return Report(str(root), 0, 0, tuple(_stale(root, differing(root, index_of(views)))))


def broken(folder: BoardFolder) -> list[str]:
    """What verifying finds broken, of the board and of all that was submitted to it."""
    from harness.store import cache_root
    from harness.submissions.verification import Verifier

    with Verifier(cache_root(), judge=False) as verifier:
        found = [each for each in verifier.verify(str(folder.path)) if each.outcome == "broken"]
    return [f"{each.what} {_named(each)}: {note}" for each in found for note in each.notes]


def _named(found: Verdict) -> str:
    name = Path(found.path).stem
    return f"{name[:12]} ({found.title})" if found.what == "record" else name


def _stale(folder: Path, names: Sequence[str]) -> list[str]:
    return [
        f"{folder / name} is not what the records give: run `harness leaderboard build`"
        for name in names
    ]
