"""The README's first screen, and the page on the open boards, are what the boards' records give."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from board_records import board, material, passed, record, utility

from harness.results.build import board_view
from harness.results.view import BoardView
from harness.scoring.identification import Identification

pytestmark = pytest.mark.core
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def front() -> ModuleType:
    """The script that makes both."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import front
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return front


def test_both_files_hold_what_the_script_makes(front: ModuleType) -> None:
    """`python benchmarks/front.py --write` puts it there."""
    for path, text in front.texts().items():
        whole = path.read_text(encoding="utf-8")
        assert whole.count(front.BEGIN) == whole.count(front.END) == 1
        assert front.put(whole, text) == whole
    for path, made in front.pictures().items():
        assert path.read_bytes() == made.read_bytes()


def test_the_front_comes_before_the_commands(front: ModuleType) -> None:
    opening = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Two commands")[0]
    assert front.END in opening
    assert "](docs/results/boards.md)" in opening


def test_pictures_that_are_named_are_there(front: ModuleType) -> None:
    for text in front.texts().values():
        for named in (part.partition(")")[0] for part in text.split("](leaderboards/")[1:]):
            assert (ROOT / "leaderboards" / named).is_file()


def asked(top1: float) -> Identification:
    """Of 200 encodings among 2000 candidates."""
    return Identification(
        top1=top1,
        top1_ci=(top1 - 0.05, top1 + 0.05),
        top1_chance=0.001,
        top5=top1,
        top5_ci=None,
        top5_chance=0.005,
        auc=0.9,
        auc_ci=(0.88, 0.92),
        n=200,
        candidates=2000,
        asked="encodings",
    )


def of_features(**more: Any) -> BoardView:
    """A board of two defenses, accuracy at two numbers of images, once and in twenty rounds."""
    plain = board(("none", "singmix[tau=1e-2]"), ("lmmse",), name="features-v2")
    track = plain.tracks[0].model_dump()
    track["utility"] = [{"private_size": [16]}, {"private_size": [8, 16], "rounds": [20]}]
    of = type(plain).model_validate({**plain.model_dump(), "tracks": [track]})

    def alone(defense: str, private: int, rounds: int, right: int) -> object:
        asked = {"private_size": private, "rounds": rounds, "only": "utility"}
        own = {"privacy": {}, "by_image": {}, "utility": utility(right)}
        return record(defense, "lmmse", asked=asked, **own)

    records = [
        record("none", "lmmse", right=90),
        record("singmix[tau=1e-2]", "lmmse", gains=(1.6,) * 4, right=12, **more),
        *(alone("singmix[tau=1e-2]", *each) for each in ((16, 1, 52), (8, 20, 56), (16, 20, 80))),
    ]
    return board_view(material(of, *records, controls=[passed("lmmse")]))


def test_the_table_has_leakage_beside_what_is_learned(
    front: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = of_features()
    told = {"whole": {"0.01": {"1": 1.2, "20": 3.6}}, "first 9": {"0.01": {"1": 1.6, "20": 6.1}}}
    monkeypatch.setattr(front, "genie", lambda: told)
    monkeypatch.setattr(front, "_named", lambda _: ["none", "singmix[tau=1e-2]"])
    lines = front.table(view, brief=True).splitlines()
    assert lines[0] == (
        "| defense | released | `lmmse`, dB | genie, dB | named | 8 images | 16 images |"
    )
    assert lines[2:] == [
        "| `singmix[tau=1e-2]` | once | +1.6 | 1.2 (1.6) | not asked | 12.0*† | 52.0† |",
        "| `singmix[tau=1e-2]` | 20 times | – | 3.6 (6.1) | not asked | 56.0† | 80.0† |",
        "| unprotected | – | – | – | – | 90.0 | 90.0 |",
    ]


def test_a_row_with_one_measured_point_stands_in_the_table(
    front: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_named", lambda _: ["none", "mixup[k=2]"])
    view = board_view(material(board(attacks=("lmmse",)), record("mixup[k=2]", "lmmse", right=60)))
    lines = front.table(view, brief=True).splitlines()
    assert lines[2] == "| `mixup[k=2]` | once | +1.0 | not asked | 60.0† |"


def test_the_reading_says_who_learned_and_what_the_genie_is(
    front: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_named", lambda _: ["none", "singmix[tau=1e-2]"])
    assert "and no ceiling" in front.reading(of_features(), brief=True)
    text = front.reading(of_features(), brief=False)
    assert "† one learner alone tried: `plain`" in text
    assert "(no network at 8 and 16 images)" in text
    assert "another measure, and no ceiling" in text
    assert "of 500 other images under Gaussian noise" in text
    assert "the mean over 8 of 8 private images" in text


def test_what_is_named_once_is_named_in_more_rounds(
    front: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_named", lambda _: ["none", "singmix[tau=1e-2]"])
    view = of_features(identification=asked(0.5))
    lines = front.table(view, brief=True).splitlines()
    assert "| once | +1.6 |" in lines[2]
    assert "| 50.0% |" in lines[2]
    assert "| 50.0%, from fewer rounds |" in lines[3]


def test_the_genie_s_column_is_its_file_s(front: ModuleType) -> None:
    """README's figures are those that `python benchmarks/genie.py --out` wrote, and of what."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| `singmix[tau=")
    ]
    assert len(rows) >= 6
    told = json.loads((ROOT / "benchmarks" / "genie.json").read_text(encoding="utf-8"))
    assert told["options"]["space"] == "resnet50"
    assert len(told["options"]["commit"]) == 40
    for defense, released, _, shown, *_ in rows:
        tau = f"{float(re.findall(r'tau=([^],]+)', defense)[0]):g}"
        rounds = "1" if released == "once" else released.partition(" ")[0]
        whole, first = (told[name][tau][rounds] for name in ("whole", "first 1024"))
        assert shown == f"{whole:.1f} ({first:.1f})"


def test_boards_that_are_not_run_say_so(front: ModuleType) -> None:
    empty = board_view(material(board(stage="open")))
    assert front.first_screen(empty, empty).startswith("`tiny` is open: 0 records, 4 cells not run")
