"""What a board found, in three sentences that are computed from its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.leaderboard.leading import leading
from harness.leaderboard.numerals import counted, gained, metric_name, percent
from harness.leaderboard.view import BoardView, Leak, RowView, TrackView


def key_findings(view: BoardView) -> tuple[str, ...]:
    """What the front offers, what attacks got, and how far the numbers can be trusted."""
    if view.status == "defined":
        return (f"This board is defined and has not been run: {counted(view.missing, 'cell')}.",)
    metric = next(iter(view.metrics), "")
    ranked = {track.title: rows for track in view.tracks if (rows := _ranked(track, metric))}
    tracks = [title for title, rows in ranked.items() if any(map(protects, rows))]
    if not tracks:
        return ("No defense of this board has a number yet.", _trust(view))
    every = [row for rows in ranked.values() for row in rows]
    return (
        _front(tracks[0], ranked[tracks[0]], metric),
        _leakage(every, metric),
        _trust(view),
    )


def _ranked(track: TrackView, metric: str) -> list[RowView]:
    return [row for row in track.rows if row.rank.get(metric) and row.accuracy]


def protects(row: RowView) -> bool:
    """Whether the row is not the reference itself, whose accuracy is that without protection."""
    return row.retained is None or row.retained.value != 1.0


def _front(title: str, rows: Sequence[RowView], metric: str) -> str:
    """The two ends of the front, most learned and least leaked, but for what is not protected."""
    front = [row for row in rows if row.rank[metric] == 1]
    offers = list(filter(protects, front)) or front
    learned = max(offers, key=lambda row: (_accuracy(row), -_gain(row, metric), row.defense))
    tight = min(offers, key=lambda row: (_gain(row, metric), -_accuracy(row), row.defense))
    are = "is" if len(front) == 1 else "are"
    opening = f"{title}: {len(front)} of {counted(len(rows), 'ranked defense')} {are} on the front"
    if learned == tight:
        return f"{opening}; {_offer(learned, metric)} keeps most and leaks least."
    return f"{opening}, from {_offer(learned, metric)} to {_offer(tight, metric)}."


def _offer(row: RowView, metric: str) -> str:
    gain = f"{metric_name(metric)} gain {gained(_leak(row, metric))}"
    doubt = "" if row.verified else ", unverified"
    return f"{row.defense} (accuracy {percent(_accuracy(row))}, {gain}{doubt})"


def _accuracy(row: RowView) -> float:
    return row.accuracy.value if row.accuracy else 0.0


def _gain(row: RowView, metric: str) -> float:
    return _leak(row, metric).gain.value


def _leak(row: RowView, metric: str) -> Leak:
    leak = leading(row.leaks, metric)
    assert leak is not None, "a row with a rank has a leak"
    return leak


def _leakage(rows: Sequence[RowView], metric: str) -> str:
    """How often the strongest attack surely beats guessing, and which attack that mostly is."""
    shown = [row for row in rows if _surely_leaks(row, metric)]
    strongest = Counter(_leak(row, metric).strongest for row in shown)
    opening = (
        f"The strongest attack surely gains more than guessing against {len(shown)} of "
        f"{counted(len(rows), 'ranked row')}"
    )
    if not shown:
        return f"{opening}."
    attack, most = min(strongest.items(), key=lambda item: (-item[1], item[0]))
    return f"{opening}; most often it is {attack} ({counted(most, 'time')})."


def _surely_leaks(row: RowView, metric: str) -> bool:
    gain = _leak(row, metric).gain
    return (gain.ci[0] if gain.ci else gain.value) > 0


def _trust(view: BoardView) -> str:
    """What stands against the numbers: rows unverified, cells without a number."""
    rows = [row for track in view.tracks for row in track.rows]
    states: Counter[str] = Counter(cell.status for row in rows for cell in row.cells)
    unverified = sum(not row.verified for row in rows)
    lacks = [
        f"{states[state]} {words}"
        for state, words in (
            ("not_applicable", "cannot be"),
            ("failed", "failed"),
            ("timeout", "ran out of time"),
            ("missing", "not run yet"),
        )
        if states[state]
    ]
    cells = f"of {counted(states.total(), 'cell')} {', '.join(lacks) or 'each has a result'}"
    return f"{unverified} of {counted(len(rows), 'row')} are unverified; {cells}."
