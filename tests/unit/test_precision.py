"""What networks are trained in: bfloat16 in their forward passes, and nothing else."""

import json
import re
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from harness import evaluate
from harness.api.precision import multiplies_bfloat16
from harness.api.training import computing, descend
from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.running.learn import LearnStage

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SMALL = {"dataset": "fashion-mini", "private_size": 40, "public_size": 60, "test_size": 40}


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def seen_inside(model):
    """The types that the second layer is shown, as they come."""
    found = []
    model[2].register_forward_pre_hook(lambda _, given: found.append(given[0].dtype))
    return found


def test_only_what_a_network_in_training_computes_is_reduced():
    model, inputs = network(), torch.randn(4, 6)
    inside = seen_inside(model)
    with computing(model, "bfloat16"):
        answer = model.train()(inputs)
        beside = inputs @ inputs.T
        asked = model.eval()(inputs)
    model.train()(inputs)
    assert inside == [torch.bfloat16, torch.float32, torch.float32]
    assert {answer.dtype, beside.dtype, asked.dtype, model[0].weight.dtype} == {torch.float32}


def test_networks_of_a_list_are_reduced_each_by_itself():
    towers = nn.ModuleList([network(), network()])
    inside = [seen_inside(tower) for tower in towers]
    with computing(towers, "bfloat16"):
        towers.train()
        assert all(tower(torch.randn(4, 6)).dtype is torch.float32 for tower in towers)
    assert inside == [[torch.bfloat16], [torch.bfloat16]]


def test_a_network_that_fails_leaves_autocast():
    model = network()
    with computing(model, "bfloat16"), pytest.raises(RuntimeError, match="shapes"):
        model.train()(torch.randn(4, 5))
    assert not torch.is_autocast_enabled("cpu")


def test_descent_in_float32_is_the_plain_loop():
    inputs, wanted = torch.randn(12, 6), torch.randn(12, 2)
    ours, plain = network(), network()
    optimizer = torch.optim.Adam(ours.parameters())
    losses = descend(
        ours, optimizer, torch.arange(12).split(4), lambda i: mse_loss(ours(inputs[i]), wanted[i])
    )
    by_hand = torch.optim.Adam(plain.parameters())
    for rows, found in zip(torch.arange(12).split(4), losses, strict=True):
        by_hand.zero_grad()
        loss = mse_loss(plain(inputs[rows]), wanted[rows])
        loss.backward()
        by_hand.step()
        assert not found.requires_grad
        assert torch.equal(found, loss)
    assert all(map(torch.equal, ours.parameters(), plain.parameters()))


def test_descent_in_bfloat16_learns_too():
    inputs = torch.randn(64, 6)
    wanted, model = inputs[:, :2], network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = descend(
        model,
        optimizer,
        range(300),
        lambda _: mse_loss(model(inputs), wanted),
        precision="bfloat16",
    )
    first, *_, last = losses
    assert last < 0.05 * first
    assert model[0].weight.dtype is torch.float32


def planned(precision, *, reduces, **options):
    asked = make_request(**{**SMALL, "attack": "unet", "precision": precision, **options})
    return replace(plan(asked, registry()), reduces=reduces)


def test_auto_reduces_what_says_that_it_learns_as_well():
    cell = planned("auto", reduces=True)
    spec = cell.victim.spec
    as_well, worse = replace(spec, bfloat16=True), replace(spec, bfloat16=False)
    assert cell.precision(as_well) == "bfloat16"
    assert cell.precision(as_well, worse) == "float32"
    assert planned("auto", reduces=False).precision(as_well) == "float32"
    assert planned("float32", reduces=True).precision(as_well) == "float32"
    assert planned("bfloat16", reduces=False).precision(worse) == "bfloat16"


def test_a_stage_is_another_one_in_another_precision():
    keys = [
        next(s for s in LearnStage.own(planned(asked, reduces=True)) if s.written == "network").key
        for asked in ("float32", "bfloat16")
    ]
    assert keys[0] != keys[1]


def test_the_record_says_what_was_asked_and_what_it_came_to():
    options = {**SMALL, "learner": "network", "victim": "cnn[epochs=1,width=4]"}
    found = {
        asked: evaluate(defense="none", only="utility", precision=asked, threads=1, **options)
        for asked in ("float32", "bfloat16")
    }
    assert {asked: record.precision for asked, record in found.items()} == {
        "float32": "float32",
        "bfloat16": "bfloat16",
    }
    assert {record.request.precision for record in found.values()} == {*found}


def test_what_no_cpu_has_is_not_taken(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert not multiplies_bfloat16("cpu")
    assert not multiplies_bfloat16("mps")


def test_a_cell_that_trains_nothing_reduces_nothing():
    learns = planned("auto", reduces=True, learner="network", defense="none", attack="lmmse")
    spec = replace(learns.learners["network"].spec, bfloat16=True)
    learner = replace(learns.learners["network"], spec=spec)
    victim = replace(learns.victim, spec=replace(learns.victim.spec, bfloat16=True))
    taught = replace(learns, learners={"network": learner}, victim=victim)
    attacked = replace(taught, request=taught.request.model_copy(update={"only": "privacy"}))
    assert taught.least_precision == "bfloat16"
    assert attacked.least_precision == "float32"


@pytest.fixture(scope="module")
def compared():
    """What `python benchmarks/precision.py --out benchmarks/precision.json` found."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from precision import Compared
    finally:
        sys.path.remove(str(BENCHMARKS))
    kept = json.loads((BENCHMARKS / "precision.json").read_text(encoding="utf-8"))
    rows = [{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()} for row in kept]
    return [Compared(**row) for row in rows]


def test_a_plugin_says_that_it_learns_as_well_where_the_comparison_found_so(compared):
    assert all(len(case.float32) >= 5 for case in compared)
    found = defaultdict(list)
    for case in compared:
        for name in case.plugins:
            found[name].append(case.as_well)
    as_well = {name for name, each in found.items() if all(each)}
    said = {
        f"{kind}:{name}"
        for kind, entries in registry().entries.items()
        for name, entry in entries.items()
        if getattr(entry.spec, "bfloat16", False)
        and entry.spec.factory.startswith("harness_plugins.")
    }
    assert said == as_well


def test_the_page_on_speed_has_what_was_compared(compared):
    page = (BENCHMARKS.parent / "docs" / "results" / "speed.md").read_text(encoding="utf-8")
    for case in compared:
        plain, reduced = fmean(case.float32), fmean(case.bfloat16)
        taken = "yes" if case.as_well else "no"
        found = re.search(
            rf"\| {plain:.2f} \| {reduced:.2f} {case.unit} \| [^|]+ \| (\w+) \|", page
        )
        assert found
        assert found[1] == taken
