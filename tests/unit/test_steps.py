"""Cells as steps: what they share, what waits for what, what each leaves in the store."""

from __future__ import annotations

import pytest

from harness.api.errors import (
    AssetUnavailable,
    CellFailed,
    CellTimedOut,
    HarnessError,
    IntegrityError,
    NotApplicable,
    PluginError,
    StoreError,
)
from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.running.run import settle
from harness.scheduling.queue import Outcome
from harness.scheduling.steps import Task, tasks_of
from harness.store.paths import cache_root

pytestmark = pytest.mark.core


def steps(**options: object) -> dict[str, Task]:
    """The tasks of a cell by step."""
    cell = settle(plan(make_request(**options), registry()), cache_root())
    return {task.step: task for task in tasks_of(cell, options)}


def ids(tasks: dict[str, Task]) -> set[str]:
    return {task.id for task in tasks.values()}


def test_a_cell_is_released_learned_from_attacked_and_recorded() -> None:
    found = steps(defense="mixup", attack="lmmse")
    assert list(found) == ["release", "reference", "learn", "attack", "companions", "record"]
    release = found["release"].id
    assert [found[name].needs for name in ("attack", "companions")] == [(release,)] * 2
    assert found["learn"].needs == (), "learners are given rounds as these are made"
    assert set(found["record"].needs) == ids(found) - {found["record"].id}


def test_attacks_share_release_learners_and_companions() -> None:
    one, other = steps(defense="mixup", attack="lmmse"), steps(defense="mixup", attack="wiener")
    shared = ("release", "reference", "learn", "companions")
    assert ids(one) & ids(other) == {one[name].id for name in shared}


def test_defenses_share_what_learns_unprotected_alone() -> None:
    one, other = steps(defense="mixup", attack="lmmse"), steps(defense="singmix", attack="lmmse")
    assert ids(one) & ids(other) == {one["reference"].id}


def test_half_an_evaluation_has_half_the_steps() -> None:
    assert list(steps(only="utility")) == ["reference", "learn", "record"]
    assert list(steps(only="privacy")) == ["release", "attack", "companions", "record"]


def test_what_the_owner_trains_itself_is_trained_and_not_learned_from() -> None:
    found = steps(defense="gradprune", attack="gradmatch")
    assert list(found)[1:3] == ["reference", "train"]


def test_a_cell_that_cannot_be_is_only_recorded() -> None:
    assert list(steps(defense="mixup", attack="gradmatch", release="encodings")) == ["record"]


def test_an_attack_that_is_many_runs_with_its_record() -> None:
    assert list(steps(attack="suite")) == ["release", "reference", "learn", "record"]


def test_every_step_but_the_record_says_what_it_leaves_in_the_store() -> None:
    found = steps(defense="mixup", attack="lmmse", learner="network", repeats=2)
    record = found.pop("record")
    assert record.makes == ()
    assert {name: [stage for stage, _ in task.makes] for name, task in found.items()} == {
        "release": ["release"],
        "reference": ["learn", "learn"],
        "learn": ["learn", "learn"],
        "attack": ["attack", "judge"],
        "companions": ["judge", "judge"],
    }


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CellFailed("e"), "failed"),
        (PluginError("e"), "failed"),
        (CellTimedOut("e"), "timeout"),
        (NotApplicable("e"), "not_applicable"),
        (StoreError("e"), "fatal"),
        (IntegrityError("e"), "fatal"),
        (AssetUnavailable("e"), "fatal"),
    ],
)
def test_a_cell_that_fails_is_a_record_and_anything_worse_stops_the_run(
    error: HarnessError, status: str
) -> None:
    crossed = Outcome.model_validate_json(Outcome.of(error).model_dump_json())
    assert crossed.status == status
    again = crossed.raised()
    assert (type(again), str(again), again.exit_code) == (type(error), "e", error.exit_code)
