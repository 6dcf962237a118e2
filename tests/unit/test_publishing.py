"""What a board's records give: its table, its values, its picture; and whether they are there."""

from __future__ import annotations

import csv
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from board_records import board, ended, material, passed, record, utility
from PIL import Image

from harness.drawing.markdown import index, readme
from harness.drawing.pages import render
from harness.drawing.plane import front_of
from harness.drawing.publishing import differing, files_of, write
from harness.drawing.svg import TOP, drawing
from harness.results.build import board_view
from harness.results.tables import as_csv
from harness.results.view import BoardView

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def view() -> BoardView:
    """Two defenses against two attacks, one of which failed on one of them."""
    records = [
        record(gains=(9, 9, 9, 9), right=90),
        record(attack="lmmse", gains=(8, 8, 8, 8), right=90),
        record("mixup[k=2]", right=60),
        ended("failed", "out of | memory", "mixup[k=2]", "lmmse"),
    ]
    controls = [passed("linear"), passed("lmmse", False)]
    claims = [
        {"defense": "none", "attack": "linear", "metric": "snr_db", "value": 9.5, "source": "X"}
    ]
    return board_view(material(board(claims=claims), *records, controls=controls))


def test_the_table_ranks_rows_and_names_the_strongest_attack(view: BoardView) -> None:
    lines = readme(view).splitlines()
    row = next(line.split(" | ") for line in lines if line.startswith("| 1 | `"))
    assert row[:4] == ["| 1", "`mixup[k=2]`", "1", "60.0% [50.2, 69.1]"]
    assert row[5:] == ["+1.0 dB [+1.0, +1.0]", "`linear`", "no |"]
    (reference,) = (line.split(" | ") for line in lines if line.startswith("| ref | "))
    assert reference[:4] == ["| ref", "`none`", "1", "90.0% [82.6, 94.5]"]


def test_a_table_says_what_its_signs_mean(view: BoardView) -> None:
    line = next(x for x in readme(view).splitlines() if x.startswith("Gain in SNR"))
    assert line == "Gain in SNR; (1), (2), …: why there is no number, below; ?: unverified."


def test_what_a_stranger_writes_stays_text() -> None:
    hostile = "no\n\n# Injected\n\n<img src=x> [a](http://b) | `c` - *d*\n1. e"
    records = [record("mixup[k=2]"), ended("failed", hostile, "mixup[k=2]", "lmmse")]
    text = readme(board_view(material(board(), *records)))
    assert (
        "\n1. no \\# Injected \\<img src=x\\> \\[a\\](http\\://b) | \\`c\\` - \\*d\\* 1. e\n"
        in text
    )
    assert not [line for line in text.splitlines() if line.startswith("# Inj")]


def test_a_board_that_is_not_whole_says_so_first() -> None:
    some = board_view(material(board(), record("mixup[k=2]", right=60)))
    text = readme(some)
    assert "\nThis board has 3 cells not run yet: 1 of 1 row of defenses lack" in text
    assert "**Not whole:** 3 cells of this track have not been run, and rows that lack any" in text
    assert "No defense of this board has a rank yet." in text
    assert "| – | `mixup[k=2]` | 1 | 60.0%" in text
    assert index([some]).count("This board has 3 cells not run yet") == 1
    assert front_of(some) is None


def test_the_number_of_seeds_stands_in_the_table() -> None:
    learned = [record("mixup[k=2]", seed=seed) for seed in (0, 1)]
    one = record("mixup[k=2]", "lmmse", gains=(5, 5, 5, 5))
    whole = [*learned, one, record("mixup[k=2]", "lmmse", gains=(5, 5, 5, 5), seed=1)]
    text = readme(board_view(material(board(seeds=(0, 1)), *whole)))
    assert "| 1 | `mixup[k=2]` | 2 | 80.0%" in text
    text = readme(board_view(material(board(seeds=(0, 1)), *learned, one)))
    assert "| – | `mixup[k=2]` | 2, leak 1 | 80.0%" in text


def test_claims_keep_their_digits() -> None:
    claims = [
        {"defense": "none", "attack": "linear", "metric": "snr_db", "value": v, "source": "a_b"}
        for v in (0.85, -7.45, 50)
    ]
    text = readme(board_view(material(board(claims=claims), record())))
    assert [f"| {v} | 3.5 " in text for v in ("0.85", "−7.45", "50")] == [True] * 3
    assert "| a\\_b |" in text


def test_one_line_stands_for_no_protection() -> None:
    """That of most seeds, though rows of fewer seeds were held against another accuracy."""
    few = record("noise", utility=utility(50, reference=70))
    more = [
        record("mixup[k=2]", seed=seed, utility=utility(50, reference=right))
        for seed, right in ((0, 70), (1, 90))
    ]
    cells = [
        {"attacks": ["linear"], "defenses": [name], "seeds": seeds}
        for name, seeds in (("noise", [0]), ("mixup[k=2]", [0, 1]))
    ]
    track = {"name": "once", "title": "All", "defenses": ["noise", "mixup[k=2]"], "cells": cells}
    view = board_view(material(board(tracks=[track]), few, *more))
    assert {row.reference.value for row in view.tracks[0].rows if row.reference} == {0.7, 0.8}
    plane, drawn = front_of(view), drawing(view.tracks[0], "snr_db")
    assert plane is not None
    assert [number.value for number in plane.unprotected] == [0.8]
    assert drawn is not None
    assert drawn.reference is not None
    assert drawn.reference[1].startswith("80.0%")


def test_picture_and_page_know_the_same_marks() -> None:
    """Options of a stack say whose they are, and far gains stand at the edge of both."""
    names = ["gradprune[p=0.9]+gradnoise[scale=0.1]", "gradprune[p=0.9]+gradnoise[scale=0.2]"]
    records = [record(name, gains=(g,) * 4) for name, g in zip(names, (50, 70), strict=True)]
    view = board_view(material(board(names, ["linear"]), *records))
    plane, drawn = front_of(view), drawing(view.tracks[0], "snr_db")
    assert plane is not None
    assert drawn is not None
    assert [point.label for point in plane.points] == ["gradnoise.scale=0.1", "gradnoise.scale=0.2"]
    assert {mark.label.text for mark in drawn.marks if mark.label} == {
        p.label for p in plane.points
    }
    assert plane.lines == ((0, 1),)
    assert len(drawn.lines) == 1
    assert plane.off_scale == 60
    assert sorted(mark.y == TOP for mark in drawn.marks) == [False, True]


def test_a_cell_without_a_number_has_a_footnote(view: BoardView) -> None:
    text = readme(view)
    assert "| `mixup[k=2]` | +1.0 | failed (1) |" in text
    assert "\n1. out of | memory\n" in text
    assert "| `none` | +9.0 | +8.0 ? |" in text  # lmmse failed its control


def test_claims_stand_beside_what_was_measured(view: BoardView) -> None:
    assert "| `none` | `linear` | SNR | 9.5 | 11.5 [10.5, 12.5] | X |  |" in readme(view)


def test_files_are_of_the_metric_that_a_board_is_ranked_by() -> None:
    """One that nobody here knows, of which lower leaks more."""
    theirs = {"metric": "blur", "leaks_more": "lower"}
    claims = [{"defense": "none", "attack": "linear", "metric": "blur", "value": 2, "source": "X"}]
    records = [
        record(defense, attack, gains=(0.25,) * 4, **theirs)
        for defense in ("none", "mixup[k=2]")
        for attack in ("linear", "lmmse")
    ]
    view = board_view(material(board(ranked_by=["blur"], claims=claims), *records))
    plane, text, page = front_of(view), readme(view), render(view)
    assert plane is not None
    assert plane.up == "gain in blur over guessing   higher leaks more →"
    assert [point.leakage.value for point in plane.points] == [0.25, 0.25]
    assert "| rank | defense | seeds | accuracy | of unprotected | blur gain |" in text
    assert "| 1 | `linear` | informed | +0.250 [+0.250, +0.250] | 1 | 4 images | not run |" in text
    assert "| `none` | `linear` | blur | 2 | 2.250 [" in text
    assert "SNR" not in text.partition("How to read")[0]
    assert '<label for="metric-0">blur</label>' in page
    assert "blur gain +0.250 [+0.250, +0.250]" in page
    lines = list(csv.DictReader(StringIO(as_csv(view))))
    scored = [line for line in lines if line["kind"] != "learner"]
    assert {(line["metric"], line["leaks_more"]) for line in scored} == {("blur", "lower")}


def test_values_are_numbers(view: BoardView) -> None:
    lines = list(csv.DictReader(StringIO(as_csv(view))))
    rows = [line for line in lines if line["kind"] == "row"]
    cells = [line for line in lines if line["kind"] == "cell"]
    assert [(r["defense"], float(r["gain"]), r["rank"]) for r in rows] == [
        ("mixup[k=2]", 1.0, "1"),
        ("none", 9.0, ""),
    ]
    assert [(c["attack"], c["status"], c["gain"], c["reason"]) for c in cells[:2]] == [
        ("linear", "ok", "1.0", ""),
        ("lmmse", "failed", "", "out of | memory"),
    ]


def test_the_picture_shows_every_ranked_row_and_the_reference(view: BoardView) -> None:
    plane = front_of(view)
    assert plane is not None
    assert [(p.series, p.accuracy.value, p.leakage.value) for p in plane.points] == [
        ("mixup", 0.6, 1.0),
        ("none", 0.9, 9.0),
    ]
    assert [p.front for p in plane.points] == [True, False]
    (bare,) = plane.unprotected
    assert (bare.value, bare.ci) == (0.9, pytest.approx((0.8256, 0.9448), abs=1e-4))
    assert plane.up.startswith("gain in SNR over guessing (dB)")


def test_a_board_without_numbers_has_no_picture() -> None:
    empty = board_view(material(board()))
    assert front_of(empty) is None
    assert "front.png" not in files_of(empty)
    assert "4 cells not run yet" in readme(empty)


def test_the_same_view_gives_the_same_files(view: BoardView, tmp_path: Path) -> None:
    files = files_of(view)
    assert sorted(files) == ["README.md", "front.png", "index.html", "leaderboard.csv"]
    assert len(write(tmp_path, files)) == 4
    assert write(tmp_path, files_of(view)) == []


def test_what_was_changed_by_hand_is_found(view: BoardView, tmp_path: Path) -> None:
    files = files_of(view)
    write(tmp_path, files)
    table = tmp_path / "README.md"
    table.write_text(table.read_text("utf-8").replace("+9.0", "+0.9"), encoding="utf-8")
    (tmp_path / "leaderboard.csv").unlink()
    assert differing(tmp_path, files) == ["README.md", "leaderboard.csv"]


def test_a_picture_may_be_packed_otherwise_but_not_show_otherwise(
    view: BoardView, tmp_path: Path
) -> None:
    files = {"front.png": files_of(view)["front.png"]}
    with Image.open(BytesIO(files["front.png"])) as drawn:
        drawn.save(tmp_path / "front.png", compress_level=1)
        assert (tmp_path / "front.png").read_bytes() != files["front.png"]
        assert differing(tmp_path, files) == []
        drawn.paste((0, 0, 0), (300, 300, 400, 400))
        drawn.save(tmp_path / "front.png")
    assert differing(tmp_path, files) == ["front.png"]
    (tmp_path / "front.png").write_bytes(b"no picture")
    assert differing(tmp_path, files) == ["front.png"]


def test_the_index_names_every_board(view: BoardView) -> None:
    assert "| [tiny](tiny/README.md) | frozen | Tiny |" in index([view])
