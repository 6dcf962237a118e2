"""Learners learn each time from another release of the same images; attackers get the first."""

import pytest
import torch

from harness import evaluate
from harness.running.learn import LearnStage
from harness.running.rounds import Rounds
from harness.running.run import Run

SMALL = {
    "dataset": "fashion-mini",
    "preset": "quick",
    "private_size": 30,
    "public_size": 40,
    "test_size": 40,
    "only": "utility",
}


@pytest.fixture
def run(tmp_path):
    def opened(**options):
        return Run.open(SMALL | options, cache=tmp_path)

    return opened


def first_images(run, draw):
    with run:
        cell = run.cell
        return run(Rounds.under(cell, cell.defenses, draw)).held().images


def test_draws_of_one_release_differ_and_the_first_is_what_leaves(run):
    cell = run(defense="singmix[tau=1e-2]", learner="classmeans", repeats=2)
    first, second = (first_images(cell, draw) for draw in (0, 1))
    assert first.shape == second.shape
    assert not torch.equal(first, second)
    assert torch.equal(first, cell(Rounds.of(cell.cell)).held().images)
    assert cell(Rounds.of(cell.cell)).resolved == cell(Rounds.under(*under(cell, 1))).resolved


def under(run, draw):
    return run.cell, run.cell.defenses, draw


def test_a_closed_form_learns_from_every_draw_and_once_from_plain_images(run):
    cell = run(defense="mixup", learner="classmeans", repeats=3).cell
    own, plain = LearnStage.own(cell), LearnStage.unprotected(cell)
    assert [len(own), len(plain)] == [3, 1]
    assert len({stage.inputs[0].key for stage in own}) == 3
    unchanged = run(defense="none", learner="classmeans", repeats=3).cell
    assert len(LearnStage.own(unchanged)) == 1


@pytest.mark.parametrize("defense", ["singmix[tau=1e-2]", "dpmeans[epsilon=1]"])
def test_an_accuracy_is_the_mean_over_draws(defense, tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    learner = "noisymeans" if "dp" in defense else "classmeans"
    record = evaluate(**SMALL, defense=defense, learner=learner, repeats=3)
    found = record.utility.accuracies[learner]
    assert len(found.trainings) == 3
    assert len(set(found.trainings)) > 1, "three draws of the noise"
    assert found.mean == pytest.approx(sum(found.trainings) / 3)
    once = evaluate(**SMALL, defense=defense, learner=learner)
    assert once.utility.accuracies[learner].trainings == found.trainings[:1]
