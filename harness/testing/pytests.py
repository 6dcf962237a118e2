"""One test for each check."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from unittest import SkipTest

from harness.testing.catalogue import checks_of
from harness.testing.examination import examine
from harness.testing.result import Report
from harness.testing.subject import SECONDS, find


class _Examination:
    """A plugin's checks, all asked when the first is looked at."""

    def __init__(self, text: str, kind: str | None, seconds: float) -> None:
        self.text, self.kind, self.seconds = text, kind, seconds

    @cached_property
    def report(self) -> Report:
        return examine(self.text, self.kind, seconds=self.seconds)


@dataclass(frozen=True)
class Promise:
    """One check of a plugin, to be held in a test."""

    name: str
    examination: _Examination

    def __str__(self) -> str:
        """As a test's id."""
        return self.name

    def hold(self) -> None:
        """AssertionError with what to fix; SkipTest where it cannot be asked."""
        report = self.examination.report
        (result,) = (result for result in report.results if result.check == self.name)
        if result.verdict == "skipped":
            raise SkipTest(result.message)
        assert result.verdict == "ok", str(result)


def checks_for(text: str, kind: str | None = None, *, seconds: float = SECONDS) -> list[Promise]:
    """Every check of the plugin that `text` selects, to be parametrised over.

    UsageError where there is no such plugin. Nothing runs before the first is held.
    """
    examination = _Examination(text, kind, seconds)
    return [Promise(each.name, examination) for each in checks_of(find(text, kind).group)]
