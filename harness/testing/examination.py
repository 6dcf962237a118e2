"""All checks of one plugin, each watched: what hangs, dies or hoards is ended and reported."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from unittest import SkipTest

from harness.api.errors import (
    AssetUnavailable,
    CellFailed,
    CellTimedOut,
    HarnessError,
    NotApplicable,
    UsageError,
    nearest,
)
from harness.api.plugins import silent
from harness.api.view import Budget
from harness.running.run import Observer
from harness.sandbox.process import AttackProcess
from harness.store import cache_root
from harness.store.paths import ENVIRONMENT, scratch_folder
from harness.testing.catalogue import CHECKS, Check
from harness.testing.subject import (
    SECONDS,
    Subject,
    Unanswered,
    Violation,
    find,
    raised_by_plugin,
)

MEGABYTES = 8192
GRACE = 15.0
"""Seconds that a check may take for itself, beside the plugin's."""
STOPPED = "look at budget.seconds, and let no loop wait for what may never come"
DIED = "let it raise an error that says what is wrong"

Verdict = Literal["ok", "failed", "skipped"]


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
        return {**asdict(self), "passed": self.passed}


def examine(
    text: str,
    kind: str | None = None,
    *,
    seconds: float = SECONDS,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    observer: Observer | None = None,
) -> Report:
    """Check the plugin that `text` selects.

    `seconds` is the budget of an attack, and of anything else. UsageError where there is no such
    plugin or check.
    """
    subject = find(text, kind, seconds)
    checks = _chosen(subject, only, skip)
    if find_spec("torch") is None:
        raise UsageError(
            "A plugin is checked at work, which needs torch, and that is not installed."
        )
    observer = observer or Observer()
    results: list[Result] = []
    with observer.stage(f"check {subject.name}") as progress:
        for result in _results(subject, checks):
            results.append(result)
            progress(len(results), len(checks), result.check)
    origin = subject.origin
    return Report(
        kind=subject.kind,
        plugin=subject.text,
        version=subject.spec.version,
        distribution=f"{origin.distribution} {origin.version}",
        results=tuple(results),
    )


def _chosen(subject: Subject, only: Collection[str], skip: Collection[str]) -> list[Check]:
    checks = {check.name: check for check in CHECKS[subject.group]}
    for name in (*only, *skip):
        if name not in checks:
            raise UsageError(
                f"There is no check '{name}' of {subject.group}.{nearest(name, checks)}"
            )
    return [c for n, c in checks.items() if (not only or n in only) and n not in skip]


def _results(subject: Subject, checks: list[Check]) -> Iterator[Result]:
    """One after another; when one was ended, the rest of what runs the plugin is left out.

    A cause is told once: what is built on a check that failed is not asked, and what fails by the
    very fault of another says so.
    """
    from harness.running.workplace import workplaces

    ended, faults = "", dict[str, str]()
    with (
        scratch_folder(workplaces(), "checks") as folder,
        closing(_Bench(subject, folder)) as bench,
    ):
        for check in checks:
            if why := _left_out(check, ended, faults):
                yield Result(check.name, "skipped", f"not asked: {why}")
                continue
            result = ask(check, subject) if check.here else bench.result(check)
            ended = check.name if bench.ended else ""
            yield _once(result, faults)
            if result.verdict == "failed":
                faults[check.name] = result.message


def _left_out(check: Check, ended: str, faults: Mapping[str, str]) -> str:
    """Why a check is not asked; empty if it is."""
    if ended:
        return f"'{ended}' had to be ended"
    return f"'{check.after}' failed" if check.after in faults else ""


def _once(result: Result, faults: Mapping[str, str]) -> Result:
    """A result; of one that fails by the fault of an earlier check, which that is."""
    same = [name for name, fault in faults.items() if fault in result.message]
    if result.verdict != "failed" or not same:
        return result
    said = f"it fails by the same fault as '{same[0]}'"
    return replace(result, verdict="skipped", message=said, fix="")


class _Bench:
    """A process that asks the checks, started with the first of them."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self.subject = subject
        self.ended = False
        """Whether the last check had to be ended, or ended its process."""
        self._folder = folder
        self._process: AttackProcess | None = None

    def close(self) -> None:
        """End the process and whatever it started."""
        if self._process:
            self._process.close()

    def result(self, check: Check) -> Result:
        """What becomes of a check, whatever it does to its process."""
        limit = self.subject.seconds * check.runs + GRACE
        out = self._folder / f"{check.name}.json"
        try:
            self._ask(check, out, limit)
        except CellTimedOut:
            self.ended = True
            return Result(check.name, "failed", f"it did not end within {limit:g} s", STOPPED)
        except CellFailed as error:
            self.ended = True
            return Result(check.name, "failed", _first_line(error), DIED)
        return Result(**json.loads(out.read_text(encoding="utf-8")))

    def _ask(self, check: Check, out: Path, limit: float) -> None:
        self._process = self._process or AttackProcess(self._folder / "log", threads=1)
        subject = self.subject
        job = {
            "action": "call",
            "function": f"{__name__}:{trial.__name__}",
            "kind": subject.kind,
            "plugin": subject.text,
            "seconds": subject.seconds,
            "check": check.name,
            "cache": str(cache_root()),
            "out": str(out),
        }
        self._process.ask(job, Budget(limit, MEGABYTES, 1), silent)


def _first_line(error: Exception) -> str:
    """Of an attack the engine speaks; here it may be any plugin."""
    first = str(error).partition("\n")[0]
    return first.replace("the attack's", "its").replace("the attack", "it")


def trial(job: Mapping[str, Any]) -> None:
    """Ask the check that a job names, in a process of its own: the result goes to `out`.

    The job says `kind`, `plugin`, `seconds`, `check`, and `cache`, where assets are. Nothing that
    a plugin raises leaves here.
    """
    os.environ[ENVIRONMENT] = job["cache"]
    subject = find(job["plugin"], job["kind"], job["seconds"])
    (check,) = _chosen(subject, [job["check"]], ())
    Path(job["out"]).write_text(json.dumps(asdict(ask(check, subject))), encoding="utf-8")


def ask(check: Check, subject: Subject) -> Result:
    """Ask one check of a plugin."""
    started = time.perf_counter()
    verdict, message, fix = _answer(check, subject)
    return Result(check.name, verdict, message, fix, round(time.perf_counter() - started, 2))


def _answer(check: Check, subject: Subject) -> tuple[Verdict, str, str]:
    from harness.running.stage import plugin_boundary

    try:
        with plugin_boundary(subject.name):
            return "ok", check(subject), ""
    except (Unanswered, AssetUnavailable, NotApplicable) as error:
        return "skipped", str(error), ""
    except Violation as error:
        return "failed", str(error), error.fix or check.fix
    except HarnessError as error:
        if isinstance(error, UsageError) and raised_by_plugin(error):
            return "skipped", str(error), ""
        return "failed", str(error), check.fix


def conforms(text: str, kind: str | None = None, *, seconds: float = SECONDS) -> None:
    """Check a plugin; AssertionError lists what must be fixed."""
    failed = examine(text, kind, seconds=seconds).failed
    assert not failed, "\n".join(map(str, failed))


@dataclass(frozen=True)
class Promise:
    """One check of a plugin, to be held in a test."""

    name: str
    examined: Callable[[], Report]
    """All of the plugin's checks, which are asked once."""

    def __str__(self) -> str:
        """As a test's id."""
        return self.name

    def hold(self) -> None:
        """AssertionError with what to fix; SkipTest where it cannot be asked."""
        results = self.examined().results
        (result,) = (result for result in results if result.check == self.name)
        if result.verdict == "skipped":
            raise SkipTest(result.message)
        assert result.verdict == "ok", str(result)


def checks_for(text: str, kind: str | None = None, *, seconds: float = SECONDS) -> list[Promise]:
    """Every check of the plugin that `text` selects, to be parametrised over.

    UsageError where there is no such plugin. Nothing runs before the first is held.
    """
    examined = cache(partial(examine, text, kind, seconds=seconds))
    return [Promise(each.name, examined) for each in CHECKS[find(text, kind).group]]
