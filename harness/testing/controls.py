"""The check of an attack's positive controls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.control import ControlResult, run_controls
from harness.description import place
from harness.testing.result import Unanswered, Violation

if TYPE_CHECKING:
    from harness.testing.subject import Subject


def passed(subject: Subject) -> str:
    """Every control, in its own cell on its own data; what is stored is not run again."""
    if not subject.spec.controls:
        raise Unanswered("none is declared")
    report = run_controls(subject.text, threads=1)
    short = [result for result in report.results if not result.passed]
    lacking = [result for result in short if result.status == "unavailable"]
    if short and short == lacking:
        raise Unanswered(f"{place(short[0].control)}: {short[0].error}")
    if short:
        raise Violation("; ".join(map(_in_words, short)))
    return "; ".join(map(_in_words, report.results))


def _in_words(result: ControlResult) -> str:
    asked = result.control
    where = f"{place(asked)}: {asked.metric}"
    if result.reached is None:
        return f"{where}: {result.error}"
    return f"{where} {result.reached:.4g}, wanted {asked.at_least:g}"
