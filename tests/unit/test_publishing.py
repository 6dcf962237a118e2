"""What a board's records give: its table, its values, its picture; and whether they are there."""

from __future__ import annotations

import csv
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from board_records import board, ended, material, passed, record
from PIL import Image

from harness.leaderboard.build import board_view
from harness.leaderboard.front import front_of
from harness.leaderboard.markdown import index, readme
from harness.leaderboard.publishing import differing, files_of, write
from harness.leaderboard.sheet import as_csv
from harness.leaderboard.view import BoardView

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
    rows = [line.split(" | ") for line in lines if line.startswith("| 1 | `")]
    assert rows[0][:3] == ["| 1", "`none`", "90.0% [82.6, 94.5]"]
    assert rows[0][4:6] == ["+9.0 dB [+9.0, +9.0]", "`linear`"]
    assert rows[0][6] == "no |"


def test_a_cell_without_a_number_has_a_footnote(view: BoardView) -> None:
    text = readme(view)
    assert "| `mixup[k=2]` | +1.0 | failed (1) |" in text
    assert "\n1. out of | memory\n" in text
    assert "| `none` | +9.0 | +8.0 ? |" in text  # lmmse failed its control


def test_claims_stand_beside_what_was_measured(view: BoardView) -> None:
    assert "| `none` | `linear` | SNR | 9.5 | 11.5 [10.5, 12.5] | X |  |" in readme(view)


def test_values_are_numbers(view: BoardView) -> None:
    lines = list(csv.DictReader(StringIO(as_csv(view))))
    rows = [line for line in lines if line["kind"] == "row"]
    cells = [line for line in lines if line["kind"] == "cell"]
    assert [(r["defense"], float(r["gain"]), int(r["rank"])) for r in rows] == [
        ("none", 9.0, 1),
        ("mixup[k=2]", 1.0, 1),
    ]
    assert [(c["attack"], c["status"], c["gain"], c["reason"]) for c in cells[-2:]] == [
        ("linear", "ok", "1.0", ""),
        ("lmmse", "failed", "", "out of | memory"),
    ]


def test_the_picture_shows_every_ranked_row(view: BoardView) -> None:
    plane = front_of(view)
    assert plane is not None
    assert [(p.series, p.accuracy, p.leakage) for p in plane.points] == [
        ("mixup", 0.6, 1.0),
        ("none", 0.9, 9.0),
    ]
    assert plane.front == (0, 1)
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
    assert "| [tiny](tiny/README.md) | Tiny |" in index([view])
