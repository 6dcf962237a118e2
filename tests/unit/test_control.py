"""Positive controls: what counts as reached, and what is remembered of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.api import Control, IntegrityError, UsageError
from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import Request, make_request
from harness.control import (
    ControlReport,
    control_of,
    controlled,
    judged,
    options_of,
    report_path,
    run_controls,
)
from harness.running.record import record_key
from harness.running.run import equip
from harness.scoring.findings import Finding
from harness.scoring.identification import Identification
from harness.scoring.summary import MetricScore
from harness.store.record import Records, RunRecord, Used

pytestmark = pytest.mark.core

HERE: dict[str, Any] = {"device": "cpu", "threads": 1}
SNR = MetricScore(unit="dB", mean=12.0, ci=(11.5, 12.5), n=9)
LPIPS = MetricScore(leaks_more="lower", mean=0.2, ci=(0.1, 0.3), n=9)
FINDINGS = {
    "sign_accuracy": Finding(value=0.9, ci=(0.89, 0.91), chance=0.5, n=40),
    "weight_error": Finding(value=1e-4, chance=0.2, leaks_more="lower", n=40),
}
NAMED = Identification(
    top1=0.9,
    top1_ci=(0.8, 0.95),
    top1_chance=0.01,
    top5=1.0,
    top5_ci=(0.9, 1.0),
    top5_chance=0.05,
    auc=0.97,
    auc_ci=None,
    n=100,
    candidates=100,
)


def used(name: str) -> Used:
    return Used(name=name, version="1", distribution="d", source_sha256="0", config={})


def record(request: Request | None = None, **values: Any) -> RunRecord:
    """A cell's record, made by hand."""
    request = request or make_request(**HERE)
    common: dict[str, Any] = {
        "status": "ok",
        "request": request,
        "defense": (used("none"),),
        "attack": used("identity"),
        "dataset": used("fashion-mini"),
        "victim": used("cnn"),
        "space": used("pixels"),
        "threat_model": "informed",
        "release_kind": "encodings",
        "device": "cpu",
        "threads": 1,
    }
    return RunRecord(**common | values).sealed()


def control(metric: str, at_least: float) -> Control:
    return Control("none", "fashion-mini", metric, at_least)


@pytest.mark.parametrize(
    ("metric", "at_least", "passed"),
    [
        ("snr_db", 11.9, True),
        ("snr_db", 12.0, True),
        ("snr_db", 12.1, False),
        ("lpips_vgg", 0.3, True),
        ("lpips_vgg", 0.2, True),
        ("lpips_vgg", 0.1, False),
        ("identification.top1", 0.9, True),
        ("identification.top1", 0.95, False),
        ("identification.top5", 1.0, True),
        ("identification.auc", 0.98, False),
        ("sign_accuracy", 0.9, True),
        ("sign_accuracy", 0.92, False),
        ("weight_error", 1e-3, True),
        ("weight_error", 1e-5, False),
    ],
)
def test_it_is_passed_where_at_least_as_much_leaks(
    metric: str, at_least: float, passed: bool
) -> None:
    cell = record(
        privacy={"snr_db": SNR, "lpips_vgg": LPIPS}, identification=NAMED, findings=FINDINGS
    )
    result = judged(control(metric, at_least), cell)
    assert result.passed is passed
    assert (result.status, result.error, result.record) == ("ok", None, cell.id)


def test_the_result_says_what_was_reached() -> None:
    cell = record(
        privacy={"snr_db": SNR, "lpips_vgg": LPIPS}, identification=NAMED, findings=FINDINGS
    )
    snr, lpips, top1, error = (
        judged(control(metric, 0.5), cell)
        for metric in ("snr_db", "lpips_vgg", "identification.top1", "weight_error")
    )
    assert (snr.reached, snr.ci, snr.unit, snr.leaks_more) == (12.0, (11.5, 12.5), "dB", "higher")
    assert (lpips.reached, lpips.leaks_more) == (0.2, "lower")
    assert (top1.reached, top1.ci) == (0.9, (0.8, 0.95))
    assert (error.reached, error.ci, error.leaks_more) == (1e-4, None, "lower")


@pytest.mark.parametrize("status", ["failed", "timeout", "not_applicable"])
def test_a_cell_without_a_result_fails_its_control(status: str) -> None:
    result = judged(control("snr_db", 1.0), record(status=status, error="it was not to be"))
    assert not result.passed
    assert (result.status, result.error, result.reached) == (status, "it was not to be", None)


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        ("snr_bd", "no metric and no finding 'snr_bd'. Did you mean 'snr_db'?"),
        ("ssim", "slow, so left out"),
        ("identification.top1", "it returned no candidate scores"),
        ("sign_acuracy", "no metric and no finding 'sign_acuracy'. Did you mean 'sign_accuracy'?"),
        ("identification.acu", "an identification has no 'acu'. Did you mean 'auc'?"),
    ],
)
def test_a_number_that_is_not_there_fails_the_control(metric: str, reason: str) -> None:
    scores = {"snr_db": SNR, "ssim": MetricScore(unavailable="slow, so left out")}
    cell = record(privacy=scores, findings=FINDINGS)
    result = judged(control(metric, 0.0), cell)
    assert not result.passed
    assert result.error
    assert reason in result.error


@pytest.mark.parametrize(
    ("metric", "scored"),
    [
        ("ssim", "ssim"),
        ("ssim_abs", "ssim"),
        ("identification.top1", None),
        ("sign_accuracy", None),
    ],
)
def test_a_control_scores_what_it_looks_at(metric: str, scored: str | None) -> None:
    assert options_of(control(metric, 0.0), "identity").get("metrics") == scored


def answered(root: Path, mean: float) -> None:
    """A cache in which `identity` has met its control and scored this."""
    (declared,) = controlled("identity").spec.controls
    request = make_request(
        **HERE,
        **declared.options,
        defense=declared.defense,
        dataset=declared.dataset,
        attack="identity",
        only="privacy",
        metrics=declared.metric,
    )
    key = record_key(equip(plan(request, registry()), root))
    score = MetricScore(unit="dB", mean=mean, n=9)
    Records(root).save(record(request, privacy={declared.metric: score}), key)


@pytest.mark.parametrize(("mean", "passed"), [(39.8, True), (3.0, False)])
def test_what_is_stored_is_judged_without_running_it(
    tmp_path: Path, mean: float, passed: bool
) -> None:
    answered(tmp_path, mean)
    report = run_controls("identity", root=tmp_path, **HERE)
    assert report.passed is passed
    assert [result.reached for result in report.results] == [mean]
    assert control_of(controlled("identity"), tmp_path) == report


def test_a_report_speaks_for_one_source_and_config_alone(tmp_path: Path) -> None:
    answered(tmp_path, 39.8)
    assert control_of(controlled("identity"), tmp_path) is None
    report = run_controls("identity", root=tmp_path, **HERE)
    attack = controlled("identity")
    for changed in ({"version": "2"}, {"controls": (control("snr_db", 99.0),)}):
        newer = replace(attack, spec=replace(attack.spec, **changed))
        assert control_of(newer, tmp_path) is None
    assert control_of(controlled("linear"), tmp_path) is None
    assert control_of(controlled("identity"), tmp_path) == report


@pytest.mark.parametrize("text", ["", "{}", "[1]", None])
def test_a_report_that_was_changed_is_refused(tmp_path: Path, text: str | None) -> None:
    answered(tmp_path, 3.0)
    run_controls("identity", root=tmp_path, **HERE)
    path = report_path(controlled("identity"), tmp_path)
    path.write_text(path.read_text().replace("false", "true") if text is None else text)
    with pytest.raises(IntegrityError, match="harness control identity"):
        control_of(controlled("identity"), tmp_path)


def test_a_report_survives_json(tmp_path: Path) -> None:
    answered(tmp_path, 39.8)
    report = run_controls("identity", root=tmp_path, **HERE)
    values = json.loads(json.dumps(report.canonical()))
    assert values["schema"] == "encoding-harness/control/1"
    values["schema_"] = values.pop("schema")
    assert ControlReport.model_validate(values) == report


def test_an_attack_without_a_control_says_so() -> None:
    with pytest.raises(UsageError, match="'nearest' declares no control"):
        controlled("nearest")
