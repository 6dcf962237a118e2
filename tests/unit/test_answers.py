"""Which record answers which cell: plugins, versions and options have to be what they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from harness.asking.plan import Cell, plan
from harness.asking.registry import registry
from harness.asking.request import Resolved, make_request
from harness.boards.answering import answered_by
from harness.store.record import Member, RunRecord, Used

pytestmark = pytest.mark.core

SUITE = {"defense": "mixup", "attack": "suite"}


def cell(**options: Any) -> Cell:
    return plan(
        make_request(threads=1, **{"defense": "mixup", "attack": "lmmse", **options}), registry()
    )


def used(plugin: Resolved, **changed: Any) -> Used:
    """A plugin as a record tells of it."""
    values = {
        "name": plugin.name,
        "version": plugin.spec.version,
        "distribution": "d",
        "source_sha256": "0",
        "config": plugin.config.model_dump(mode="json"),
    }
    return Used.model_validate({**values, **changed})


def record(of: Cell, **more: Any) -> RunRecord:
    """What is kept of a cell that came to an end."""
    members = {name: used(each.attack) for name, each in of.members.items()}
    members |= {name: used(of.attack) for name in of.excluded}
    values: dict[str, Any] = {
        "status": "ok",
        "request": of.request,
        "defense": tuple(used(each) for each in of.defenses),
        "attack": used(of.attack),
        "dataset": used(of.dataset),
        "public": used(of.public) if of.public else None,
        "victim": used(of.victim),
        "space": used(of.space),
        "threat_model": "informed",
        "release_kind": "encodings",
        "device": "cpu",
        "threads": 1,
        "members": said(members),
        "learners": {name: used(each) for name, each in of.learners.items()},
    }
    return RunRecord(**{**values, **more}).sealed()


def said(attacks: Mapping[str, Used]) -> dict[str, Member]:
    return {name: Member(status="ok", attack=each) for name, each in attacks.items()}


@pytest.mark.parametrize(
    "options", [{}, {"public": "fashion-mini"}, SUITE, {"defense": "gradprune+mixup"}]
)
def test_a_cell_is_answered_by_what_was_made_of_it(options: dict[str, Any]) -> None:
    assert answered_by(cell(**options), record(cell(**options)))


def test_another_version_or_option_of_any_plugin_answers_nothing() -> None:
    asked = cell(public="fashion-mini")
    kinds = {
        name: getattr(asked, name) for name in ("attack", "dataset", "public", "victim", "space")
    }
    for name, plugin in kinds.items():
        for changed in ({"version": "another"}, {"config": {"another": 1}}):
            assert not answered_by(asked, record(asked, **{name: used(plugin, **changed)})), name
    assert not answered_by(asked, record(asked, public=None))
    assert not answered_by(cell(), record(asked))


def test_other_learners_answer_nothing() -> None:
    asked = cell()
    fewer = {name: used(each) for name, each in list(asked.learners.items())[1:]}
    assert not answered_by(asked, record(asked, learners=fewer))


def test_a_stack_has_all_its_defenses() -> None:
    asked = cell(defense="gradprune+mixup")
    one, _ = record(asked).defense
    assert not answered_by(asked, record(asked, defense=(one,)))


def test_a_suite_has_the_attacks_that_it_had() -> None:
    asked = cell(**SUITE)
    names = {name: used(each.attack) for name, each in asked.members.items()}
    names |= {name: used(asked.attack) for name in asked.excluded}
    first = next(iter(asked.members))
    other = used(asked.members[first].attack, version="another")
    assert not answered_by(asked, record(asked, members=said({**names, first: other})))
    assert not answered_by(asked, record(asked, members=said({**names, "more": other})))
    del names[first]
    assert not answered_by(asked, record(asked, members=said(names)))


def test_a_suite_that_failed_has_none() -> None:
    asked = cell(**SUITE)
    assert answered_by(asked, record(asked, status="failed", members={}))
