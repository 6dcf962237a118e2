"""Boards and records as tables for notebooks: shape, values, and files that hold the same."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from io import BytesIO, StringIO
from pathlib import Path

import pandas as pd
import pytest
from board_records import board, ended, material, passed, record, tiny_board, used
from pandas.testing import assert_frame_equal

import harness
from harness.api import UsageError
from harness.boards.folder import BoardFolder
from harness.boards.protocol import FILE
from harness.drawing.publishing import files_of, write
from harness.results.build import board_view
from harness.results.material import gathered
from harness.results.tables import OF_BOARDS, as_csv, exported, load_board
from harness.scoring.ceilings import Proof, Proven, Reached
from harness.scoring.flags import Flag
from harness.store.frame import COLUMNS
from harness.store.record import Member, Records

pytestmark = pytest.mark.core
BOARDS = Path(__file__).parents[2] / "leaderboards"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board of two defenses against two attacks, by two metrics; an attack shows no images."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / FILE).write_text(tiny_board("linear", "lmmse", "chen"), encoding="utf-8")
    kept = BoardFolder(folder)
    for defense, attack, gain in (
        ("none", "linear", 9.0),
        ("none", "lmmse", 11.0),
        ("mixup[k=2]", "linear", 1.0),
        ("mixup[k=2]", "lmmse", 4.0),
    ):
        decibels = record(defense, attack, (gain,) * 4, right=60)
        alike = record(defense, attack, (gain,) * 4, metric="mse", leaks_more="lower")
        both = {
            "privacy": {**decibels.privacy, **alike.privacy},
            "by_image": {**decibels.by_image, **alike.by_image},
        }
        kept.keep(decibels.model_copy(update=both).sealed())
    for defense in ("none", "mixup[k=2]"):
        kept.keep(record(defense, "chen", right=60, privacy={}, by_image={}))
    for attack in ("linear", "lmmse", "chen"):
        kept.keep_control(passed(attack))
    write(folder, files_of(board_view(gathered(kept))))
    return folder


@pytest.fixture(scope="module")
def scores(whole: Path) -> pd.DataFrame:
    return load_board(whole)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A board with a record, one that failed, and two cells without any."""
    (tmp_path / FILE).write_text(tiny_board("linear", "lmmse"), encoding="utf-8")
    records = Records(tmp_path, cache=False)
    records.save(record("mixup[k=2]", gains=(1, 2, 3, 4), flags=["still_rising", "below_null"]))
    records.save(ended("failed", "out of memory", "mixup[k=2]", "lmmse"))
    BoardFolder(tmp_path).keep_control(passed("linear"))
    return tmp_path


def test_a_record_has_a_row_for_each_metric() -> None:
    table = record("mixup[k=2]", gains=(1, 2, 3, 4)).to_frame()
    assert list(table.columns) == list(COLUMNS)
    (row,) = table.to_dict("records")
    assert (row["defense"], row["attack"], row["seed"]) == ("mixup[k=2]", "linear", 0)
    assert (row["metric"], row["unit"], row["leaks_more"]) == ("snr_db", "dB", "higher")
    assert (row["mean"], row["null"], row["null_name"]) == (5.0, 2.5, "class_mean")
    assert (row["gain"], row["worst"], row["n"]) == (2.5, 8.0, 4)
    assert row["gain_low"] < 2.5 < row["gain_high"]
    assert (row["accuracy"], row["reference"], row["chance"]) == (0.8, 0.9, 0.1)
    assert pd.isna(row["member"])


def test_a_record_without_scores_has_one_row() -> None:
    (row,) = ended("failed", "out of memory").to_frame().to_dict("records")
    assert (row["status"], row["error"]) == ("failed", "out of memory")
    assert all(pd.isna(row[name]) for name in ("metric", "mean", "n", "accuracy"))


def bounded(attacks: Sequence[str], name: str = "pooled_snr_db") -> dict[str, Proof]:
    """What a ceiling says of whoever reads labels or none, and a certificate."""
    reached = Reached(value=3.6, interval=(3.4, 3.8), bound=name)
    quantities = {
        "pooled_snr_db": Proven(value=4.0, interval=(3.7, 4.3)),
        "identification": Proven(value=0.36),
        "pooled_snr_db_labels": Proven(value=5.5, interval=(5.2, 5.8)),
        "identification_labels": Proven(value=0.5),
    }
    certificate = Proof(
        quantities={"epsilon": Proven(value=19.9, detail="at delta = 1e-05")},
        assumptions=("replace one: of the same class. Not to be compared", "images are bounded"),
    )
    ceiling = Proof(quantities=quantities, reached=dict.fromkeys(attacks, reached))
    return {"exchangeable": ceiling, "dp": certificate}


DP = {"dp": used("dp[delta=1e-5]", "ceilings").model_copy(update={"config": {"delta": 1e-5}})}


def test_a_record_has_what_was_reached_beside_its_ceiling_and_what_is_proven() -> None:
    told = record("mixup[k=2]", ceilings=bounded(["linear"]), ceiling_plugins=DP)
    (row,) = told.to_frame().to_dict("records")
    assert (row["reached_db"], row["reached_low"], row["reached_high"]) == (3.6, 3.4, 3.8)
    assert (row["ceiling_db"], row["ceiling_low"], row["ceiling_high"]) == (4.0, 3.7, 4.3)
    assert (row["ceiling_vacuous"], row["identification_ceiling"]) == (False, 0.36)
    assert (row["epsilon"], row["delta"]) == (19.9, 1e-5)
    assert row["adjacency"] == "replace one: of the same class"


def test_each_member_stands_beside_its_own_ceiling_and_the_suite_beside_none() -> None:
    """The best of several attacks image by image is not bounded."""
    members = {
        name: Member(status="ok", attack=used(name), privacy=record().privacy)
        for name in ("linear", "carlini")
    }
    whole = record(
        attack="suite", members=members, ceilings=bounded(["linear"], "pooled_snr_db_labels")
    )
    table = whole.to_frame()
    assert table["ceiling_db"].fillna(-9).to_list() == [-9, 5.5, -9]
    assert table["identification_ceiling"].fillna(-9).to_list() == [-9, 0.5, -9]
    assert table["epsilon"].isna().all(), "no certificate without its options"


def test_a_certificate_of_the_defense_comes_before_that_of_a_ceiling() -> None:
    told = {"epsilon": 2.0, "delta": 1e-6, "adjacency": "add or remove one image"}
    own = used("mixup[k=2]").model_copy(
        update={"resolved": {f"guarantee.{name}": value for name, value in told.items()}}
    )
    plain = record("mixup[k=2]", ceilings=bounded([]), ceiling_plugins=DP)
    (row,) = plain.model_copy(update={"defense": (own,)}).to_frame().to_dict("records")
    assert {name: row[name] for name in told} == told


def test_the_board_s_table_has_the_same_of_each_row() -> None:
    told = record("mixup[k=2]", ceilings=bounded(["linear"]), ceiling_plugins=DP)
    text = as_csv(board_view(material(board(attacks=("linear",)), record(), told)))
    lines = list(csv.DictReader(StringIO(text)))
    row, bare = (
        next(line for line in lines if (line["kind"], line["defense"]) == ("row", name))
        for name in ("mixup[k=2]", "none")
    )
    assert (row["reached_by"], row["reached_db"], row["ceiling_db"]) == ("linear", "3.6", "4.0")
    assert (row["ceiling_reads_labels"], row["ceiling_vacuous"]) == ("False", "False")
    assert (row["identification_ceiling"], row["epsilon"], row["delta"]) == (
        "0.36",
        "19.9",
        "1e-05",
    )
    assert row["adjacency"] == "replace one: of the same class"
    assert [bare[name] for name in ("ceiling_db", "epsilon", "no_ceiling")] == ["", "", ""]


def test_members_of_a_suite_have_rows_of_their_own() -> None:
    plain = record()
    flag = Flag(name="below_null", message="it fails")
    good = Member(status="ok", attack=used("linear"), privacy=plain.privacy, flags=(flag,))
    bad = Member(status="timeout", error="too long", attack=used("unet"))
    whole = record(attack="suite", gains=(2,) * 4, members={"linear": good, "unet": bad})
    table = whole.to_frame()
    assert table["member"].fillna("").to_list() == ["", "linear", "unet"]
    assert table["status"].to_list() == ["ok", "ok", "timeout"]
    assert table["gain"].fillna(-9).to_list() == [2.0, 1.0, -9.0]
    assert table["flags"].to_list() == ["", "below_null", ""]
    assert set(table["attack"]) == {"suite"}


def test_a_board_has_a_row_for_each_record_and_metric(scores: pd.DataFrame, whole: Path) -> None:
    records = BoardFolder(whole).kept()
    scored = {
        (each.id, name): score
        for each in records
        for name, score in each.privacy.items()
        if score.mean is not None
    }
    without = [each for each in records if not any(key[0] == each.id for key in scored)]
    assert scores.shape == (len(scored) + len(without), len(OF_BOARDS)) == (10, 59)
    assert scores["record"].nunique() == len(records) == 6
    found = scores.dropna(subset="metric").set_index(["record", "metric"])
    assert {key: score.mean for key, score in scored.items()} == found["mean"].to_dict()
    assert {key: score.gain for key, score in scored.items()} == found["gain"].to_dict()
    assert {key: score.n for key, score in scored.items()} == found["n"].to_dict()


def test_a_row_has_the_rank_of_its_defense(scores: pd.DataFrame, whole: Path) -> None:
    """As the table that is built says."""
    ranked = scores[scores["rank"].notna()]
    assert set(ranked["metric"]) == {"snr_db"}
    cells = pd.read_csv(whole / "leaderboard.csv").query("kind == 'row' and metric == 'snr_db'")
    expected = cells.dropna(subset="rank").set_index(["track", "defense"])["rank"].to_dict()
    found = ranked.groupby(["track", "defense"])["rank"].agg(["min", "max"])
    assert found["min"].to_dict() == found["max"].to_dict() == expected
    assert not scores.loc[scores["defense"] == "none", "rank"].notna().any()


def test_numbers_can_be_reckoned_with(scores: pd.DataFrame) -> None:
    linear = scores.query("track == 'once' and metric == 'snr_db' and attack == 'lmmse'")
    best = linear.sort_values("gain").iloc[-1]
    assert (best["defense"], best["seed"], best["rounds"]) == ("none", 0, 1)
    assert scores["gain"].dtype == scores["accuracy"].dtype == "float64"
    assert scores["verified"].dtype == "boolean"


def test_a_cell_without_a_record_is_a_row_that_says_so(tiny: Path) -> None:
    table = harness.load_board(str(tiny))
    assert table[["defense", "attack", "status"]].to_numpy().tolist() == [
        ["none", "linear", "missing"],
        ["none", "lmmse", "missing"],
        ["mixup[k=2]", "linear", "ok"],
        ["mixup[k=2]", "lmmse", "failed"],
    ]
    assert table["seed"].to_list() == [0] * 4
    assert table["flags"].fillna("").to_list() == ["", "", "still_rising below_null", ""]
    assert table["rank"].isna().all(), "the only attack that ran does worse than guessing"
    assert not table["verified"].any()


def test_csv_holds_the_same(tiny: Path) -> None:
    table = load_board(tiny)
    read = pd.read_csv(BytesIO(exported(table, "csv")), dtype=OF_BOARDS)
    assert_frame_equal(read, table.replace("", pd.NA), check_exact=True)


@pytest.mark.parametrize("begun", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_cell_of_csv_is_a_formula(tiny: Path, begun: str) -> None:
    """Somebody's words, and numbers, of which a negative one begins like a formula."""
    told = f"{begun}cmd|' /C calc'!A0"
    failed = ended("failed", told, attack="lmmse")
    below = record("none", "linear", (-9.0,) * 4)
    view = board_view(material(board(), failed, below))
    lines = [*csv.DictReader(StringIO(as_csv(view), newline=""))]
    guarded = "'" + told.replace("\r", " ")
    assert guarded in {line["reason"] for line in lines}
    assert min(float(line["gain"] or 0) for line in lines) == -9
    folder = BoardFolder(tiny)
    folder.keep(failed)
    written = exported(load_board(tiny), "csv").decode()
    folder.drop(failed.id)
    assert guarded in {line["error"] for line in csv.DictReader(StringIO(written, newline=""))}


def test_json_holds_the_same(tiny: Path, scores: pd.DataFrame) -> None:
    for table in (load_board(tiny), scores):
        values = json.loads(exported(table, "json"))
        read = pd.DataFrame(values, columns=list(OF_BOARDS)).astype(OF_BOARDS)
        assert_frame_equal(read, table, check_exact=True)
    assert values[0]["rank"] is None


def test_parquet_holds_the_same(scores: pd.DataFrame) -> None:
    pytest.importorskip("pyarrow")
    read = pd.read_parquet(BytesIO(exported(scores, "parquet")))
    assert_frame_equal(read, scores, check_exact=True)


def test_parquet_says_what_it_needs(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"needs pyarrow.*encoding-harness\[parquet\]"):
        exported(load_board(tiny), "parquet")


def test_an_unknown_board_offers_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BOARDS.parent)
    with pytest.raises(UsageError, match=r"Did you mean 'features-v2'\?"):
        harness.load_board("feature-v2")
    assert len(harness.load_board("paper-v1").query("status == 'missing'")) == 210
