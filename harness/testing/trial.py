"""One check in a process of its own: asked here, answered in a file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.api import AssetUnavailable, HarnessError, NotApplicable, UsageError
from harness.running.context import plugin_boundary
from harness.store.paths import ENVIRONMENT
from harness.testing.catalogue import Check, checks_of
from harness.testing.refusal import raised_by_plugin
from harness.testing.result import Result, Unanswered, Violation
from harness.testing.subject import Subject, find


def trial(job: Mapping[str, Any]) -> None:
    """What a job asks for: `kind`, `plugin`, `seconds`, `check`; the result goes to `out`.

    `cache` is where assets are. Nothing that a plugin raises leaves here.
    """
    os.environ[ENVIRONMENT] = job["cache"]
    subject = find(job["plugin"], job["kind"], job["seconds"])
    check = next(check for check in checks_of(subject.group) if check.name == job["check"])
    Path(job["out"]).write_text(json.dumps(asdict(ask(check, subject))), encoding="utf-8")


def ask(check: Check, subject: Subject) -> Result:
    """Ask one check of a plugin."""
    started = time.perf_counter()
    verdict, message, fix = _answer(check, subject)
    return Result(check.name, verdict, message, fix, round(time.perf_counter() - started, 2))


def _answer(check: Check, subject: Subject) -> tuple[Any, str, str]:
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
