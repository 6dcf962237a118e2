"""A record's id: over what was asked, resolved and found, and over nothing that varies."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.api import IntegrityError, UsageError
from harness.asking.request import make_request
from harness.scoring.summary import MetricScore
from harness.store.record import Records, RunRecord, Stored, Used, fingerprint, parse_record

pytestmark = pytest.mark.core


def used(name: str, **config: Any) -> Used:
    return Used(name=name, version="1", distribution="d", source_sha256="0", config=config)


def made(**more: Any) -> RunRecord:
    """A small record, sealed."""
    values: dict[str, Any] = {
        "status": "ok",
        "request": make_request(threads=1),
        "defense": (used("singmix", tau=1e-4),),
        "attack": used("unet"),
        "dataset": used("fashion-mini"),
        "victim": used("cnn"),
        "space": used("pixels"),
        "threat_model": "informed",
        "release_kind": "encodings",
        "device": "cpu",
        "threads": 1,
        "privacy": {"snr_db": MetricScore(unit="dB", mean=0.1 + 0.2, n=3)},
        "artifacts": {"load": Stored(key="k", sha256="a" * 64, bytes=1)},
    }
    return RunRecord(**{**values, **more}).sealed()


@pytest.mark.parametrize(
    "varying",
    [
        {"timing": {"attack unet": 1.5}},
        {"peak_memory": {"attack unet": 99.0}},
        {"environment": {"python": "3.99"}},
        {"code": {"commit": "f00", "dirty": True}},
        {"created": "2031-01-01"},
        {"log": "a warning"},
        {"artifacts": {"load": Stored(key="other", sha256="a" * 64, bytes=2)}},
        {"request": make_request()},
        {"request": make_request(threads=1, device="cpu")},
    ],
)
def test_the_id_does_not_know_when_and_where(varying: dict[str, Any]) -> None:
    assert made(**varying).id == made().id


@pytest.mark.parametrize(
    "changed",
    [
        {"privacy": {"snr_db": MetricScore(unit="dB", mean=0.3, n=3)}},
        {"artifacts": {"load": Stored(key="k", sha256="b" * 64, bytes=1)}},
        {"defense": (used("singmix", tau=1e-3),)},
        {"request": make_request(threads=1, seed=1)},
        {"threads": 2},
        {"device": "cuda"},
        {"status": "failed"},
        {"verdict": "another"},
        {"seeds": {"seed": 1}},
    ],
)
def test_the_id_knows_what_was_asked_and_found(changed: dict[str, Any]) -> None:
    assert made(**changed).id != made().id


def test_the_order_of_names_does_not_matter() -> None:
    scores = {"a": MetricScore(mean=1.0), "b": MetricScore(mean=2.0)}
    turned = dict(reversed(scores.items()))
    one, other = made(privacy=scores), made(privacy=turned)
    assert (one.id, one.json_text()) == (other.id, other.json_text())


def test_a_record_survives_json_to_the_bit() -> None:
    record = made()
    again = parse_record(json.loads(record.json_text()))
    assert again == record
    assert again.json_text() == record.json_text()
    assert again.privacy["snr_db"].mean == 0.1 + 0.2


def test_json_names_the_schema() -> None:
    values = json.loads(made().json_text())
    assert values["schema"] == "encoding-harness/record/7"
    with pytest.raises(ValidationError):
        parse_record({**values, "surprise": 1})


def test_a_kept_record_is_found_by_id_beginning_or_file(tmp_path: Path) -> None:
    records, record = Records(tmp_path), made()
    records.save(record)
    for text in (record.id, record.id[:6], str(records.path(record.id))):
        assert records.find(text) == record
    with pytest.raises(UsageError, match="There is no record 'zz'"):
        records.find("zz")
    records.save(made(seeds={"seed": 1}))
    with pytest.raises(UsageError, match="beginning of 2 records"):
        records.find("")


@pytest.mark.parametrize(
    ("old", "new"), [('"n":3', '"n":4'), ('"tau":0.0001', '"tau":0.001'), ('"ok"', '"failed"')]
)
def test_a_record_that_was_tampered_with_is_refused(tmp_path: Path, old: str, new: str) -> None:
    records, record = Records(tmp_path), made()
    records.save(record)
    path = records.path(record.id)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(IntegrityError, match=r"do not match its id.*cache verify --remove"):
        records.find(record.id)


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "{}", "\x00"])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(IntegrityError, match="is not a record"):
        Records(tmp_path).load(path)


def test_a_cell_is_answered_by_its_own_record_alone(tmp_path: Path) -> None:
    records, record, other = Records(tmp_path), made(), made(seeds={"seed": 1})
    assert records.answer("cell") is None
    records.save(record, "cell")
    assert records.answer("cell") == record
    records.path(record.id).write_text(other.json_text())
    with pytest.raises(IntegrityError):
        records.answer("cell")
    records.path(record.id).unlink()
    assert records.answer("cell") is None


def test_a_failure_is_found_by_its_cell_and_answers_nothing(tmp_path: Path) -> None:
    records, failed = Records(tmp_path), made(status="failed", error="no luck")
    records.save_failure(failed, "cell")
    assert (records.answer("cell"), records.failure("cell")) == (None, failed)
    assert records.failure("another") is None
    records.forget("cell")
    assert records.failure("cell") is None


def test_of_recent_records_one_that_is_corrupt_is_named_and_left_out(tmp_path: Path) -> None:
    records, kept = Records(tmp_path), [made(seeds={"seed": seed}) for seed in range(3)]
    for age, record in enumerate(kept):
        records.save(record)
        os.utime(records.path(record.id), (100 - age, 100 - age))
    (tmp_path / "records" / "abc.json").write_text("{}", encoding="utf-8")
    found, faults = records.recent(3)
    assert found == [kept[1], kept[0]]
    assert len(faults) == 1
    assert "abc.json is not a record" in faults[0]


def test_a_record_from_before_an_option_existed_is_still_genuine(tmp_path: Path) -> None:
    values = made().canonical()
    del values["request"]["release"]
    values["id"] = fingerprint(values)
    records = Records(tmp_path, cache=False)
    path = records.path(values["id"])
    path.parent.mkdir()
    path.write_text(json.dumps(values), encoding="utf-8")
    assert records.find(values["id"][:8]).request.release is None
    values["verdict"] = "all is well"
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(IntegrityError, match="has been changed"):
        records.load(path)
