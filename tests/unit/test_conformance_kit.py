"""The conformance kit's own parts: its images, its checks by name, and what it watches."""

from dataclasses import fields
from functools import cache
from importlib import import_module

import numpy as np
import pytest
import torch

from harness.api import AssetFolder, HarnessError, NotApplicable, UsageError
from harness.asking.registry import registry
from harness.testing import Report, Result, checks_for
from harness.testing.catalogue import CHECKS
from harness.testing.datasets import CASES, Kit, KitConfig
from harness.testing.examination import ask
from harness.testing.subject import Violation, find, refusal
from harness.testing.watch import different, forgetful, unmoved, untouched

EVERY = {(group, check.name): check for group, checks in CHECKS.items() for check in checks}


@pytest.mark.parametrize("asked", EVERY, ids=" ".join)
def test_every_check_can_be_asked_and_says_what_to_fix(asked):
    module, _, name = EVERY[asked].run.partition(":")
    assert callable(getattr(import_module(f"harness.testing.{module}"), name))
    assert EVERY[asked].fix


def test_every_plugin_that_does_work_is_in_a_group():
    known = registry()
    for kind in known.entries.keys() - {"threat_models"}:
        for spec in known.specs(kind):
            assert find(spec.name, kind).group in CHECKS


@pytest.mark.parametrize("case", CASES)
def test_the_kits_images_are_all_different(case):
    held, wanted = Kit(KitConfig(case=case)).load(AssetFolder({})), CASES[case]
    images = torch.cat([held.train.images, held.test.images])
    assert images.shape == (wanted.private + wanted.public + wanted.test, *wanted.shape)
    assert len(images.flatten(1).unique(dim=0)) == len(images)
    assert (len(held.train.labels.unique()) == 1) == (case == "one-class")


def test_a_cache_may_fill_and_a_hoard_may_not_grow():
    hoard = []
    assert "nothing behind" in forgetful(cache(lambda turn: None if turn else torch.ones(1)))
    assert "nothing behind" in forgetful(lambda turn: torch.ones(5000))
    with pytest.raises(Violation, match="leaves 20 KiB behind"):
        forgetful(lambda turn: hoard.append(torch.ones(5000)))


def test_moved_generators_are_named_and_those_of_the_engine_are_not():
    unmoved(lambda: torch.rand(2, generator=torch.Generator()))
    unmoved(lambda: torch.rand(2), "torch's random numbers")
    with pytest.raises(Violation, match="numpy's random numbers"):
        unmoved(np.random.rand)


def test_inputs_that_change_are_named():
    images, labels = torch.zeros(2), torch.zeros(2)
    with (
        pytest.raises(Violation, match="changes labels in place"),
        untouched(images=images, labels=labels),
    ):
        labels.add_(1)


def test_bytes_count_and_not_values():
    nan = torch.tensor([torch.nan])
    assert different({"a": nan}, {"a": nan.clone()}) == []
    assert different({"a": nan}, {"a": nan.double(), "b": nan}) == ["a", "b"]


def _raise(error):
    raise error


def _caught(work):
    with pytest.raises(HarnessError) as caught:
        work()
    return caught.value


def test_what_a_plugin_says_itself_is_a_refusal_and_what_the_engine_says_is_none():
    own = _caught(lambda: _raise(NotApplicable("these are no images")))
    assert refusal(own) == "refuses: these are no images"
    engines = _caught(lambda: registry().spec("defenses", "mixupp"))
    with pytest.raises(UsageError, match="Unknown defense"):
        refusal(engines)


def test_one_failure_is_enough_and_a_skipped_check_is_none():
    fine, failed = Result("a", "ok", ""), Result("b", "failed", "", "mend it")
    skipped = Result("c", "skipped", "no such asset")
    report = Report("attacks", "x", "1", "y 1", (fine, skipped))
    assert report.passed
    assert not Report("attacks", "x", "1", "y 1", (fine, failed)).passed
    assert set(report.values()) == {f.name for f in fields(Report)} | {"passed"}


def test_there_is_a_test_for_each_check_and_none_runs_before_it_is_held():
    assert [str(promise) for promise in checks_for("mixup[k=2]")] == [
        check.name for check in CHECKS["encoding defenses"]
    ]


def test_what_is_made_of_other_attacks_is_asked_nothing_of_its_own_work():
    suite = find("suite")
    asked = [ask(check, suite) for check in CHECKS[suite.group] if not check.here]
    assert {(result.verdict, result.message) for result in asked} == {
        ("skipped", "it is made of other attacks, which are checked one by one")
    }
