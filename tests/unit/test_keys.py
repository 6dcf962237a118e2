"""What the names of shared preparations and of worst cases depend on, and what not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.api import Channel, Preparation, ReleaseKind
from harness.asking.plan import AttackPlan, plan
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.running.keys import Keys

pytestmark = pytest.mark.core

SPACE = Preparation("space", "harness.rng:derive", frozenset({Channel.PUBLIC}), ("mean",))
LAW = replace(SPACE, channels=frozenset({Channel.PUBLIC, Channel.ENCODER}))


def keys(**options: Any) -> Keys:
    request = make_request(**{"defense": "mixup", "attack": "lmmse", "threads": 1, **options})
    return Keys(replace(plan(request, registry()), threads=request.threads), "owner")


def key(made: Preparation, *, told: dict[str, Any] | None = None, **options: Any) -> str:
    found = keys(**options)
    return found.preparation_of(made, found.cell.attack, told)


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


NAMES = ("load", "release", "train", "attack", "judge")


def named(**options: Any) -> dict[str, str]:
    found = keys(**{"attack": "linear", "release": "features", **options})
    assert found.cell.main is not None
    return found.of(found.cell.main)


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
    assert {name for name in NAMES if one[name] != other[name]} == differ


def test_the_unprotected_reference_is_the_same_for_all_targets() -> None:
    held_out, private = keys(targets_from="heldout"), keys()
    encodings = ((), ReleaseKind.ENCODINGS)
    assert held_out.train_of(*encodings) == private.train_of(*encodings)


def test_a_worst_case_depends_on_every_member_by_name() -> None:
    found = keys(attack="suite")
    members = dict(found.cell.members)
    assert len(members) > 5
    fewer = {name: each for name, each in members.items() if name != "lmmse"}
    renamed = {name.upper(): each for name, each in members.items()}
    names = [found.worst_of(each) for each in (members, fewer, renamed)]
    assert len(set(names)) == 3


def test_twice_the_effort_is_another_attack() -> None:
    found = keys(attack="linear")
    assert isinstance(found.cell.main, AttackPlan)
    doubled = found.cell.main.doubled
    assert doubled is not None
    assert doubled.attack.config.model_dump()["steps"] == 400
    assert found.attack_of(doubled) != found.attack_of(found.cell.main)
    assert keys(attack="lmmse").cell.main.doubled is None  # type: ignore[union-attr]
