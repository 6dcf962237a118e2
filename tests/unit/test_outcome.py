"""How a step ended, told from one process to another."""

from __future__ import annotations

import pytest

from harness.api.errors import HarnessError, IntegrityError, StoreError, UsageError
from harness.scheduling.queue import Outcome

pytestmark = pytest.mark.core


@pytest.mark.parametrize("kind", [IntegrityError, StoreError, UsageError])
def test_a_fatal_error_keeps_its_class(kind: type[HarnessError]) -> None:
    again = Outcome.of(kind("what is wrong")).raised()
    assert (type(again), str(again)) == (kind, "what is wrong")


@pytest.mark.parametrize("kind", ["Unheard", "nearest", "EXIT_USAGE", ""])
def test_one_of_another_class_is_no_usage_error(kind: str) -> None:
    again = Outcome(status="fatal", error="what is wrong", kind=kind).raised()
    assert (type(again), str(again)) == (HarnessError, f"{kind}: what is wrong")
