"""What verifying came to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from harness.api.errors import EXIT_FAILED, EXIT_INTEGRITY

Outcome = Literal["ok", "differs", "cannot", "broken"]
What = Literal["record", "control", "submission", "board"]
Note = tuple[Outcome, str]
"""One thing that was checked, and what came of it."""

WORST: tuple[Outcome, ...] = ("broken", "differs", "cannot", "ok")
EXIT: dict[Outcome, int] = {
    "broken": EXIT_INTEGRITY,
    "differs": EXIT_FAILED,
    "cannot": EXIT_FAILED,
    "ok": 0,
}


class Verdict(BaseModel):
    """Of one thing: a record, a control's report, a submission, a board.

    `ok`: all that was checked holds. `differs`: judging or running again gave something else.
    `cannot`: something could not be checked, for the reason in `notes`. `broken`: it is not what
    its hash says, contradicts itself, or does not belong where it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: What
    path: str
    title: str = ""
    outcome: Outcome
    notes: tuple[str, ...] = ()


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """What several come to together; `ok` where there are none."""
    there = set(outcomes)
    return next(outcome for outcome in WORST if outcome in there or outcome == "ok")


def broken(notes: Iterable[Note]) -> bool:
    """Whether something is."""
    return any(outcome == "broken" for outcome, _ in notes)


def verdict(what: What, path: Path, title: str, notes: Iterable[Note]) -> Verdict:
    """What several notes on one thing come to."""
    told = list(notes)
    return Verdict(
        what=what,
        path=str(path),
        title=title,
        outcome=worst(outcome for outcome, _ in told),
        notes=tuple(dict.fromkeys(text for _, text in told)),
    )


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """0 all ok, 1 something differs or could not be checked, 3 something is broken."""
    return EXIT[worst(each.outcome for each in verdicts)]
