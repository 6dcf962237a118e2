"""What a board found, in three sentences that are computed from its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from harness.boards.answering import MISSING
from harness.boards.answering import lacking as cells_to_run
from harness.results.identified import FEWER, in_words
from harness.results.numbers import code, counted, gained, metric_name, off_scale, percent
from harness.results.view import WEAK, BoardView, Leak, RowView

LACKS = {
    "not_applicable": "cannot be",
    "failed": "failed",
    "timeout": "ran out of time",
    "missing": MISSING,
}
"""How a cell without a number ended, in words."""


def key_findings(view: BoardView) -> tuple[str, ...]:
    """What the front offers, what attacks got, and how far the numbers can be trusted.

    Of a board that is not whole, first of all that it is not. Names stand in backticks.
    """
    if view.status == "defined":
        return (f"This board is defined and has not been run: {counted(view.missing, 'cell')}.",)
    return (*_lacking(view), *_found(view), _trust(view))


def in_short(view: BoardView) -> tuple[str, ...]:
    """The front and how many rows to doubt: for a page that has little room.

    How many cells are to run is left to the page.
    """
    if view.status == "defined" or not any(row.rank for row in view.rows):
        return key_findings(view)
    return (_found(view)[0], f"{_doubts(view)}.")


def _lacking(view: BoardView) -> Iterator[str]:
    """What is still to run, and what follows for the ranks."""
    rows = [row for row in view.rows if row.protected]
    lacking = sum(row.missing > 0 for row in rows)
    if to_run := cells_to_run(view.missing, view.again):
        which = f"{lacking} of {counted(len(rows), 'row')} of defenses lack some and have no rank"
        moved = "; versions or options of what is to run again have moved on" if view.again else ""
        yield f"This board has {to_run}{f': {which}' if lacking else ''}{moved}."
    weak = [code(row.defense) for row in rows if row.only_weak]
    if weak:
        yield f"{', '.join(weak)}: {WEAK}."


def _found(view: BoardView) -> tuple[str, ...]:
    metric = next(iter(view.metrics), "")
    every = [row for row in view.rows if metric in row.rank]
    if not every:
        return ("No defense of this board has a rank yet.",)
    title = next(track.title for track in view.tracks if track.name == every[0].track)
    first = [row for row in every if row.track == every[0].track]
    return (_front(title, first, metric), _leakage(every, metric), *_naming(view))


def _front(title: str, rows: Sequence[RowView], metric: str) -> str:
    """How many are on the front, and its ends, but for those at chance or wide open."""
    front = [row for row in rows if row.rank[metric] == 1]
    useless = [row for row in front if row.at_chance]
    rest = [row for row in front if row not in useless]
    open_ = [row for row in rest if _gain(row, metric) >= off_scale(_leak(row, metric).unit)]
    offers = [row for row in rest if row not in open_]
    are = "is" if len(front) == 1 else "are"
    opening = f"{title}: {len(front)} of {counted(len(rows), 'ranked defense')} {are} on the front"
    words = [
        f"{len(some)} with {what}"
        for some, what in (
            (useless, "an accuracy that is not surely above chance"),
            (open_, "the images as good as given away"),
        )
        if some
    ]
    if words:
        opening = f"{opening}, {' and '.join(words)}"
    return f"{opening}{_ends(offers, metric, bool(words))}."


def _ends(offers: Sequence[RowView], metric: str, others: bool) -> str:
    """The row of most accuracy and that of least leakage; of the others, or of all."""
    if not offers:
        return ""
    learned = max(offers, key=lambda row: (_accuracy(row), -_gain(row, metric), row.defense))
    tight = min(offers, key=lambda row: (_gain(row, metric), -_accuracy(row), row.defense))
    if len(offers) == 1:
        return f"{'; the other is' if others else ':'} {_offer(learned, metric)}"
    if learned == tight:
        these = "the others" if others else "these"
        return f"; of {these} {_offer(learned, metric)} learns most and leaks least"
    they = "the others" if others else "they"
    return f"; {they} go from {_offer(learned, metric)} to {_offer(tight, metric)}"


def _offer(row: RowView, metric: str) -> str:
    gain = f"{metric_name(metric)} gain {gained(_leak(row, metric))}"
    doubt = ("" if row.verified else ", unverified") + (", older" if row.older else "")
    named = ", images named among candidates" if row.names_images else ""
    if named and _inherited(row):
        named = f"{named} {FEWER}"
    return f"{code(row.defense)} (accuracy {percent(_accuracy(row))}, {gain}{named}{doubt})"


def _accuracy(row: RowView) -> float:
    return row.accuracy.value if row.accuracy else 0.0


def _gain(row: RowView, metric: str) -> float:
    return _leak(row, metric).gain.value


def _leak(row: RowView, metric: str) -> Leak:
    leak = row.leak(metric)
    assert leak is not None, "a row with a rank has a leak"
    return leak


def _leakage(rows: Sequence[RowView], metric: str) -> str:
    """How often the strongest attack surely beats guessing, and which attack that mostly is."""
    shown = [row for row in rows if _leak(row, metric).gain.low > 0]
    strongest = Counter(_leak(row, metric).strongest for row in shown)
    opening = (
        f"Over all tracks, the strongest attack surely gains more than guessing against "
        f"{len(shown)} of {counted(len(rows), 'ranked row')}"
    )
    if not shown:
        return f"{opening}."
    attack, most = min(strongest.items(), key=lambda item: (-item[1], item[0]))
    return f"{opening}; most often it is {code(attack)} ({counted(most, 'time')})."


def _naming(view: BoardView) -> Iterator[str]:
    """In how many rows images are named among candidates, and who does it best."""
    asked = [row for row in view.rows if row.protected and row.identified]
    if not asked:
        return
    named = [row for row in asked if row.names_images]
    inherited = sum(map(_inherited, named))
    opening = (
        f"Among candidates, images are named in {len(named)} of the {counted(len(asked), 'row')} "
        f"where an attack asked{f', {inherited} of them {FEWER}' if inherited else ''}"
    )
    found = [(row.identified, row.defense) for row in named if row.identified]
    if not found:
        yield f"{opening}."
        return
    best, defense = max(found, key=lambda each: each[0].top1.value)
    yield f"{opening}: under {code(defense)}, {code(best.attack)} puts {in_words(best)}."


def _inherited(row: RowView) -> bool:
    return row.identified is not None and row.identified.fewer_rounds is not None


def _trust(view: BoardView) -> str:
    """What stands against the numbers: rows unverified, cells without a number."""
    states: Counter[str] = Counter(cell.status for row in view.rows for cell in row.cells)
    lacks = [f"{states[state]} {words}" for state, words in LACKS.items() if states[state]]
    pairs = f"of {counted(states.total(), 'pair')} of a defense and an attack"
    return f"{_doubts(view)}; {pairs} " + (
        f"{', '.join(lacks)}." if lacks else "each has a result."
    )


def _doubts(view: BoardView) -> str:
    """How many rows are unverified, and how many older."""
    rows = view.rows
    unverified = sum(not row.verified for row in rows)
    older = sum(bool(row.older) for row in rows)
    doubts = f"{unverified} of {counted(len(rows), 'row')} are unverified"
    if older:
        doubts = f"{doubts}, {older} older: of earlier source, versions or options"
    return doubts
