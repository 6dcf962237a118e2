"""From a board's records to its view. Pure: the same records give the same view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harness.asking.request import Request
from harness.results.attackers import attack_views
from harness.results.claims import claim_view
from harness.results.groups import Line, lines
from harness.results.leading import ranking
from harness.results.rows import Shown, ranked, row_view
from harness.results.strongest import intervals, worst_cases
from harness.results.trust import Controls
from harness.results.view import BoardView, TrackView

if TYPE_CHECKING:
    from harness.boards.protocol import Board, Track
    from harness.results.material import Material


def board_view(material: Material) -> BoardView:
    """All of a board, from its protocol, its records and the reports on its attacks' controls."""
    board, controls = material.board, Controls(material.controls)
    rows = shown(lines(material), controls)
    return BoardView(
        name=board.name,
        title=board.title,
        about=board.about.strip(),
        status=board.status,
        dataset=str(board.options.get("dataset", Request().dataset)),
        metrics=ranking(each.view.leaks for each in rows),
        tracks=tuple(_track(board, track, rows, controls) for track in board.tracks),
        claims=tuple(claim_view(claim, rows) for claim in board.claims),
        frozen=dict(board.frozen),
        records=len({each.record.id for each in material.kept}),
        missing=sum(each.view.missing for each in rows),
    )


def shown(found: Iterable[Line], controls: Controls) -> list[Shown]:
    """Every line with its worst cases, and as it is seen; not yet ranked."""
    cases = [(line, worst_cases(line.groups)) for line in found]
    sure = intervals(case for _, own in cases for case in own)
    return [Shown(line, own, row_view(line, own, sure, controls)) for line, own in cases]


def _track(board: Board, track: Track, rows: Sequence[Shown], controls: Controls) -> TrackView:
    own = [each for each in rows if each.line.track == track.name]
    metrics = ranking(each.view.leaks for each in own)
    return TrackView(
        name=track.name,
        title=track.title,
        about=track.about.strip(),
        rows=tuple(ranked([each.view for each in own], metrics)),
        attacks=tuple(attack_views(own, controls, metrics)),
        protocol={name: str(value) for name, value in {**board.options, **track.options}.items()},
    )
