"""What the names of shared preparations and of worst cases depend on, and what not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.api import Channel, Config, MetricSpec, Preparation
from harness.asking.plan import Cell, plan
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.running.attack import AttackStage
from harness.running.judge import JudgeStage, NullsStage, ScoreStage, name_of
from harness.running.leakage import WorstStage
from harness.running.prepare import PrepareStage
from harness.running.record import record_key
from harness.running.run import stages_of
from harness.running.stage import APART, OUTPUTS, Output
from harness.running.train import TrainStage
from harness.scoring.judgement import Help
from harness.store import provenance
from harness.store.provenance import modules_of, preparation_identity

pytestmark = pytest.mark.core

PARTIES = "harness.running.parties"
SPACE = Preparation("space", "harness.rng:derive", frozenset({Channel.PUBLIC}), ("mean",))
LAW = replace(SPACE, channels=frozenset({Channel.PUBLIC, Channel.ENCODER}))


def cell_of(**options: Any) -> Cell:
    request = make_request(**{"defense": "mixup", "attack": "lmmse", "threads": 1, **options})
    return replace(plan(request, registry()), threads=request.threads, owner="owner")


def key(made: Preparation, *, told: dict[str, Any] | None = None, **options: Any) -> str:
    cell = cell_of(**options)
    encoder = Told(told) if told else None
    assert cell.main is not None
    return PrepareStage(cell, cell.main, encoder, made).key  # type: ignore[arg-type]


@dataclass(frozen=True)
class Told:
    """The law of a defense as it turned out, without the tensors that its real class comes with."""

    values: dict[str, Any]

    def model_dump(self, mode: str) -> dict[str, Any]:
        return self.values


def test_what_knows_public_images_alone_serves_every_defense_and_attack() -> None:
    assert key(SPACE) == key(SPACE, defense="singmix[tau=1]")
    assert key(SPACE) == key(SPACE, rounds=3)
    assert key(SPACE) == key(SPACE, attack="wiener")
    assert key(SPACE) == key(SPACE, threat_model="candidates")


@pytest.mark.parametrize(
    "changed",
    [
        {"attack": "lmmse[mean=public]"},
        {"seed": 1},
        {"public_size": 50},
        {"dataset": "synthetic-gaussian"},
        {"megabytes": 100},
        {"seconds": 5.0},
        {"threads": 2},
        {"space": "vgg16"},
    ],
)
def test_it_is_another_where_options_images_or_means_are(changed: dict[str, Any]) -> None:
    assert key(SPACE, **changed) != key(SPACE)


def test_what_knows_the_law_is_made_for_each_defense_as_it_turned_out() -> None:
    assert key(LAW, told={"k": 2}) != key(LAW, told={"k": 3})
    assert key(LAW) != key(LAW, defense="singmix")
    assert key(LAW) == key(LAW, rounds=3)


def test_constants_count_as_options_do() -> None:
    constant = replace(SPACE, options=(), constants={"mean": "class"})
    assert key(constant) == key(SPACE)
    assert key(replace(constant, constants={"mean": "public"})) != key(SPACE)


def named(**options: Any) -> dict[str, str]:
    cell = cell_of(**{"attack": "linear", "release": "features", **options})
    return {name: stage.key for name, stage in stages_of(cell).items()}


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        ({}, {"targets": 9}, {"judge"}),
        ({}, {"targets_from": "heldout"}, {"release", "train", "attack", "judge"}),
        (
            {"targets_from": "heldout"},
            {"targets_from": "heldout", "targets": 9},
            {"release", "train", "attack", "judge"},
        ),
    ],
)
def test_features_leave_of_the_targets_alone_where_those_are_held_out(
    first: dict[str, Any], second: dict[str, Any], differ: set[str]
) -> None:
    one, other = named(**first), named(**second)
    assert {name for name in one if one[name] != other[name]} == differ


def test_where_images_are_judged_changes_neither_data_nor_release() -> None:
    own, released = (named(release=None, judge_at=where) for where in ("image", "release"))
    assert {name for name in own if own[name] != released[name]} == {"attack", "judge"}


def test_the_unprotected_reference_is_the_same_for_all_targets() -> None:
    held_out, private = (
        TrainStage.unprotected(cell_of(targets_from=which)) for which in ("heldout", "private")
    )
    assert [stage.key for stage in held_out] == [stage.key for stage in private]


def test_a_worst_case_depends_on_every_member_by_name() -> None:
    cell = cell_of(attack="suite")
    members = dict(cell.members)
    assert len(members) > 5
    fewer = {name: each for name, each in members.items() if name != "lmmse"}
    renamed = {name.upper(): each for name, each in members.items()}
    assert len({WorstStage(cell, each).key for each in (members, fewer, renamed)}) == 3


def test_twice_the_effort_is_another_attack() -> None:
    cell = cell_of(attack="linear")
    assert cell.main is not None
    doubled = cell.main.doubled
    assert doubled is not None
    assert doubled.attack.config.model_dump()["steps"] == 400
    assert AttackStage(cell, doubled).key != AttackStage(cell, cell.main).key
    assert cell_of(attack="lmmse").main.doubled is None  # type: ignore[union-attr]


STRANGERS = MetricSpec(
    name="strange",
    version="1",
    summary="a stranger's",
    reference="none",
    factory="harness.rng:derive",
    config=Config,
    leaks_more="higher",
    range=(0, 1),
)


def test_a_metric_that_was_not_asked_for_judges_nothing_anew() -> None:
    cell = cell_of(metrics="snr_db")
    assert cell.main is not None
    beside = replace(cell, left_out=(*cell.left_out, (STRANGERS, "not asked for")))
    assert JudgeStage(beside, cell.main).key == JudgeStage(cell, cell.main).key
    assert record_key(beside) == record_key(cell)


def test_a_metric_more_scores_by_itself_alone() -> None:
    cell = cell_of(metrics="snr_db")
    more = replace(cell, metrics=(*cell.metrics, STRANGERS))
    one, other = (ScoreStage(each, ("attack",), "snr_db", dict).key for each in (cell, more))
    assert one == other
    assert NullsStage.of(cell).key == NullsStage(more).key


# ---------------------------------------------------------------- what a stage's key follows

ROOT = Path(harness.__file__).parent


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes a module's source another, as far as hashes see."""

    def edit(module: str) -> None:
        provenance.source_sha256.cache_clear()
        real = provenance.module_sha256.__wrapped__
        assert real(module) != "none"
        monkeypatch.setattr(
            provenance,
            "module_sha256",
            lambda name: "another" if name == module else real(name),
        )

    yield edit
    monkeypatch.undo()
    provenance.source_sha256.cache_clear()


def all_keys() -> dict[str, str]:
    cell = cell_of(attack="linear", learner="classmeans")
    assert cell.main is not None
    encoder = None
    return {
        **{name.split()[0]: stage.key for name, stage in stages_of(cell).items()},
        "train": TrainStage.own(cell)[0].key,
        "prepare": PrepareStage(cell, cell.main, encoder).key,
        "nulls": NullsStage.of(cell).key,
        "record": record_key(cell),
    }


AFTER_LOAD = {"release", "train", "learn", "prepare", "attack", "judge", "nulls", "record"}


@pytest.mark.parametrize(
    ("module", "moved"),
    [
        ("running.load", {"load", *AFTER_LOAD}),
        ("rng", {"load", *AFTER_LOAD}),
        ("running.samples", AFTER_LOAD),
        ("running.encoding", AFTER_LOAD - {"prepare", "nulls"}),
        ("running.train", {"train"}),
        ("running.learn", {"learn", "record"}),
        ("running.learning", {"record"}),
        ("sandbox.lessons", {"learn", "record"}),
        ("scoring.utility", {"train", "learn", "record"}),
        ("running.prepare", {"prepare", "attack", "judge", "record"}),
        ("running.attack", {"prepare", "attack", "judge", "record"}),
        ("running.workplace", {"learn", "prepare", "attack", "judge", "record"}),
        ("running.judge", {"judge", "nulls", "record"}),
        ("scoring.judgement", {"judge", "nulls", "record"}),
        ("scoring.matching", {"judge", "nulls", "record"}),
        ("scoring.flags", {"judge", "nulls", "record"}),
        ("running.leakage", {"record"}),
        ("running.record", {"record"}),
        ("drawing.gallery", set()),
        ("drawing.plane", set()),
        ("results.ranks", set()),
        ("cli.report", set()),
        ("running.run", set()),
        ("running.rejudge", set()),
        ("scheduling.steps", set()),
        ("store.frame", set()),
    ],
)
def test_a_stage_is_made_anew_where_what_it_uses_changed(
    edited: Callable[[str], None], module: str, moved: set[str]
) -> None:
    before = all_keys()
    edited(f"harness.{module}")
    after = all_keys()
    assert {name for name in before if before[name] != after[name]} == moved


def test_half_a_record_follows_its_half_alone(edited: Callable[[str], None]) -> None:
    halves = {half: cell_of(attack="linear", only=half) for half in ("privacy", "utility")}
    before = {half: record_key(cell) for half, cell in halves.items()}
    edited("harness.running.learn")
    again = {half: record_key(cell_of(attack="linear", only=half)) for half in halves}
    assert [half for half in halves if again[half] != before[half]] == ["utility"]


def test_every_module_that_defines_an_output_counts_by_key_alone() -> None:
    found, waiting = set(), [Output]
    while waiting:
        waiting += (subclasses := waiting.pop().__subclasses__())
        found |= {each.__module__ for each in subclasses}
    counted = {f"harness.running.{name}" for name in OUTPUTS}
    assert found - {Output.__module__} == counted | {PARTIES}


def test_no_stage_of_one_owner_depends_on_the_code_of_parties() -> None:
    """Their outputs stand in for others, which nobody but a run and its record names."""
    used = {m for name in OUTPUTS for m in modules_of(f"harness.running.{name}", apart=APART)}
    assert PARTIES not in used


def test_a_preparation_that_is_told_more_is_another() -> None:
    attack = cell_of().attack
    assert preparation_identity(SPACE, attack) != preparation_identity(LAW, attack)


def test_guesses_within_batches_are_scored_anew_for_other_batches() -> None:
    torch = pytest.importorskip("torch")
    batches = [Help(4, torch.tensor(rows)) for rows in ([[0, 1], [2, 3]], [[0, 3], [1, 2]])]
    assert len({name_of(told) for told in (Help(), Help(4), *batches)}) == 4
