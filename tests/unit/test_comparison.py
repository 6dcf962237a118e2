"""How far numbers may lie apart before judging or running again says that they differ."""

from __future__ import annotations

from typing import Any

import pytest
from handed_in import record_of

from harness.asking.request import make_request
from harness.boards.cells import BoardCell
from harness.scoring.findings import Finding
from harness.scoring.summary import MetricScore
from harness.store.record import RunRecord
from harness.submissions.again import judged_otherwise, outside, same_bits, unmeasured
from harness.submissions.checks import exit_code, verdict, worst

pytestmark = pytest.mark.core
ASKED = {"attack": "linear", "defense": "mixup[k=2]"}
RECORD = record_of(BoardCell("once", ASKED, make_request(**ASKED))).model_copy(
    update={"findings": {"pair_auc": Finding(value=0.8, ci=(0.7, 0.9), n=5)}}
)


def moved(by: float, metric: str = "snr_db", **fields: Any) -> dict[str, MetricScore]:
    """The record's scores with one mean moved."""
    score = RECORD.privacy[metric]
    assert score.mean is not None
    changed = score.model_copy(update={"mean": score.mean + by, **fields})
    return {**RECORD.privacy, metric: changed}


def judged(privacy: dict[str, MetricScore], **changed: Any) -> list[str]:
    return list(judged_otherwise(RECORD, rerun(privacy=privacy, **changed)))


def test_what_is_judged_the_same_is_the_same() -> None:
    assert judged(dict(RECORD.privacy)) == []


@pytest.mark.parametrize(
    ("metric", "by", "differs"),
    [
        ("snr_db", 0.009, False),
        ("snr_db", 0.02, True),
        ("ssim", 0.0005, False),
        ("ssim", -0.005, True),
    ],
)
def test_another_machine_may_round_otherwise(metric: str, by: float, differs: bool) -> None:
    assert bool(judged(moved(by, metric))) is differs


def test_one_image_that_scores_otherwise_is_seen() -> None:
    kept = RECORD.by_image["snr_db"]
    first, *others = kept.attack
    assert first is not None
    other = kept.model_copy(update={"attack": (first + 1, *others)})
    found = judged(dict(RECORD.privacy), by_image={**RECORD.by_image, "snr_db": other})
    assert found == ["snr_db: 1 of 8 scores by image (attack) are others"]


def test_a_finding_that_is_not_found_again_is_seen() -> None:
    assert judged(dict(RECORD.privacy), findings={}) == ["pair_auc: it is not found again"]


def test_a_metric_that_is_not_here_is_named_with_its_reason() -> None:
    absent = {**RECORD.privacy, "ssim": MetricScore(unavailable="its weights are not here")}
    assert judged(absent) == []
    assert unmeasured(RECORD.privacy, absent) == ["ssim: its weights are not here"]


def rerun(**changed: Any) -> RunRecord:
    return RECORD.model_copy(update=changed)


def test_a_run_is_the_same_to_the_bit_or_within_its_intervals_or_outside() -> None:
    score = RECORD.privacy["snr_db"]
    assert score.ci
    assert score.mean is not None
    within = rerun(privacy=moved((score.ci[1] - score.mean) / 2))
    beyond = rerun(privacy=moved(2 * (score.ci[1] - score.mean)))
    assert same_bits(RECORD, rerun(created="2031-01-01", timing={}))
    assert not same_bits(RECORD, within)
    assert outside(RECORD, within) == []
    assert outside(RECORD, beyond)[0].startswith("snr_db is ")


def test_a_run_that_fails_or_learns_less_is_outside() -> None:
    assert RECORD.utility
    worse = RECORD.utility.model_copy(update={"accuracy": 0.1})
    assert outside(RECORD, rerun(status="failed", error="out of memory")) == [
        "it ended as failed, not ok: out of memory"
    ]
    assert outside(RECORD, rerun(utility=worse))[0].startswith("accuracy is 0.1, outside of [")
    assert outside(RECORD, rerun(findings={}))[0].startswith("pair_auc is missing")


def test_the_worst_outcome_counts(tmp_path: Any) -> None:
    notes = {"ok": 0, "cannot": 1, "differs": 1, "broken": 3}
    for outcome, code in notes.items():
        found = verdict("record", tmp_path, "", [("ok", "fine"), (outcome, "so")])  # type: ignore[list-item]
        assert exit_code([found]) == code
    assert worst(["cannot", "differs"]) == "differs"
    assert worst([]) == "ok"
