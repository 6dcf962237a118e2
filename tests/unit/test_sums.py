"""A record's numbers agree with one another, and no edit of one of them goes unseen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from handed_in import TARGETS, make_board, record_of

from harness.asking.request import make_request
from harness.boards.cells import BoardCell
from harness.scoring.summary import OTHERS
from harness.store.record import Records, RunRecord, parse_record
from harness.submissions.sums import faults

pytestmark = pytest.mark.core
COMMITTED = sorted((Path(__file__).parents[2] / "benchmarks" / "records").glob("*.json"))

Values = dict[str, Any]


@pytest.fixture(scope="module")
def record() -> RunRecord:
    asked = {"attack": "linear", "defense": "mixup[k=2]", "seed": 1}
    return record_of(BoardCell("once", asked, make_request(**asked)))


def edited(record: RunRecord, change: Callable[[Values], object]) -> RunRecord:
    """The same record after an edit by hand, under an id that is right again."""
    values = json.loads(record.json_text())
    change(values)
    return parse_record(values).sealed()


def test_what_the_judge_summed_up_agrees(record: RunRecord) -> None:
    assert faults(record) == []


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem[:10])
def test_so_do_all_committed_records(path: Path) -> None:
    assert faults(Records(path.parent).load(path)) == []


def narrow(score: Values) -> None:
    """Take a tenth off an interval that still holds its number."""
    low, high = score["gain_ci"]
    score["gain_ci"] = [low + 0.1 * (high - low), high]


def member(values: Values, **change: float) -> Values:
    """An attack of many that scores as the record does, but for what changes."""
    privacy = {"snr_db": {**values["privacy"]["snr_db"], **change}}
    return {"status": "ok", "attack": values["attack"], "privacy": privacy}


EDITS: dict[str, Callable[[Values], object]] = {
    "mean 12.* is not": lambda v: v["privacy"]["snr_db"].update(mean=12.0),
    "gain 0.1 is not": lambda v: v["privacy"]["snr_db"].update(gain=0.1),
    "worst 9.5 is not": lambda v: v["privacy"]["snr_db"].update(worst=9.5),
    "not the one that leaks most": lambda v: v["privacy"]["snr_db"].update(worst_index=99),
    "median missing is not": lambda v: v["privacy"]["snr_db"].update(median=None),
    "std 0 is not": lambda v: v["privacy"]["snr_db"].update(std=0.0),
    "interval is not": lambda v: v["privacy"]["snr_db"].update(ci=[0.0, 90.0]),
    "gain .* outside": lambda v: v["privacy"]["snr_db"].update(gain_ci=[0.0, 0.1]),
    "gain's interval is not": lambda v: narrow(v["privacy"]["snr_db"]),
    "gain's interval should be": lambda v: v["privacy"]["ssim"].update(gain_ci=None),
    "not that of 'class_mean'": lambda v: v["privacy"]["snr_db"].update(null=0.0),
    "not the best of its nulls": lambda v: v["privacy"]["snr_db"]["nulls"].update(mean_image=9.0),
    "better than the best": lambda v: v["by_image"]["snr_db"].update(guess=[-9.0] * TARGETS),
    "null 'mean_image' -9": lambda v: v["privacy"]["snr_db"]["nulls"].update(mean_image=-9.0),
    "a mean and scores by image: mean_image": lambda v: v["by_image"]["snr_db"].update(nulls={}),
    "a mean and scores by image: weak": lambda v: v["privacy"]["ssim"]["nulls"].update(weak=-9.0),
    "no null 'answers_to_others'": lambda v: v["privacy"]["ssim"]["nulls"].pop(OTHERS),
    "score where others are true": lambda v: v["by_image"]["ssim"].update(misplaced=[]),
    "no scores by image of ssim": lambda v: v["by_image"].pop("ssim"),
    "3 of 8 images cannot": lambda v: v["privacy"]["ssim"].update(n=3),
    "not of its targets": lambda v: v["splits"].update(targets=7),
    "another direction": lambda v: v["by_image"]["ssim"].update(leaks_more="lower"),
    "no mean, null and gain": lambda v: v["privacy"]["ssim"].update(mean=None),
    "accuracy 0.99 is not": lambda v: v["utility"].update(accuracy=0.99),
    "no share of 40 images": lambda v: v["utility"]["accuracies"]["plain"].update(trainings=[0.77]),
    "reference 0.5 is not": lambda v: v["utility"].update(reference_accuracy=0.5),
    "'mixup' ran": lambda v: v["request"].update(defense="none"),
    "the attack 'unet' was asked": lambda v: v["request"].update(attack="unet"),
    "cannot be read": lambda v: v["request"].update(attack="unet["),
    "the seed is 1": lambda v: v["request"].update(seed=2),
    "the threat model": lambda v: v.update(threat_model="released"),
    "features were released": lambda v: v.update(
        release_kind="features", request={**v["request"], "release": "encodings"}
    ),
    "hold no scores by image": lambda v: v.update(schema="encoding-harness/record/3"),
    "no records of the schema": lambda v: v.update(schema="encoding-harness/record/33"),
    "it names many attacks": lambda v: v.update(members={"linear": member(v)}),
    "'strong' alone has 90": lambda v: v.update(members={"strong": member(v, mean=90.0)}),
    "it says failed": lambda v: v.update(status="failed"),
    "has no scores": lambda v: v.update(privacy={}, by_image={}, utility=None),
}


@pytest.mark.parametrize("told", EDITS)
def test_an_edit_is_seen(record: RunRecord, told: str) -> None:
    found = faults(edited(record, EDITS[told]))
    assert any(re.search(told, fault) for fault in found), found


def test_scores_by_image_without_a_value_count_as_undefined(record: RunRecord) -> None:
    def drop(values: Values) -> None:
        kept = values["by_image"]["ssim"]
        kept["attack"][0] = kept["guess"][0] = None

    assert any("ssim" in fault for fault in faults(edited(record, drop)))


def test_what_was_not_scored_has_no_sums(tmp_path: Path) -> None:
    board = make_board(tmp_path / "board")
    record = next(iter(board.kept()))
    bare = record.model_copy(
        update={
            "status": "not_applicable",
            "error": "it cannot be",
            "privacy": {},
            "by_image": {},
            "utility": None,
        }
    )
    assert faults(bare.sealed()) == []
