"""What became of each check of a plugin."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.api.errors import HarnessError

Verdict = Literal["ok", "failed", "skipped"]


class Violation(HarnessError):
    """A plugin does not keep its contract; `fix` is the remedy where the check's own is not it."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class Unanswered(HarnessError):
    """A check cannot be asked of this plugin, or not on this machine; says why."""


@dataclass(frozen=True)
class Result:
    """One check: what was found, and where it failed what to fix."""

    check: str
    verdict: Verdict
    message: str
    fix: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        """One line, and the remedy on a second."""
        line = f"{self.check}: {self.message}"
        return f"{line}\n  fix: {self.fix}" if self.fix else line


@dataclass(frozen=True)
class Report:
    """All checks of one plugin, as it is installed and was configured."""

    kind: str
    plugin: str
    version: str
    distribution: str
    results: tuple[Result, ...]

    @property
    def failed(self) -> tuple[Result, ...]:
        """What must be fixed."""
        return tuple(result for result in self.results if result.verdict == "failed")

    @property
    def passed(self) -> bool:
        """Whether nothing must be fixed."""
        return not self.failed

    def values(self) -> dict[str, Any]:
        """As JSON values."""
        results = [asdict(result) for result in self.results]
        return {**asdict(self), "results": results, "passed": self.passed}
