"""The README's first screen, and the page on the open boards, are what the boards' records give."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from board_records import board, material, passed, record, utility

from harness.results.build import board_view
from harness.results.view import BoardView

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


def test_the_front_comes_before_the_commands(front: ModuleType) -> None:
    opening = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Two commands")[0]
    assert front.END in opening
    assert "](docs/results/boards.md)" in opening


def test_pictures_that_are_named_are_there(front: ModuleType) -> None:
    for text in front.texts().values():
        for named in (part.partition(")")[0] for part in text.split("](leaderboards/")[1:]):
            assert (ROOT / "leaderboards" / named).is_file()


def of_features(**more: object) -> BoardView:
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
        record("singmix[tau=1e-2]", "lmmse", gains=(1.6,) * 4, right=12),
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
        "| `singmix[tau=1e-2]` | once | +1.6 | 1.2 (1.6) | – | 12.0* | 52.0 |",
        "| `singmix[tau=1e-2]` | 20 times | – | 3.6 (6.1) | – | 56.0 | 80.0 |",
        "| unprotected | – | – | – | – | 90.0 | 90.0 |",
    ]


def test_boards_that_are_not_run_say_so(front: ModuleType) -> None:
    empty = board_view(material(board(stage="open")))
    assert front.first_screen(empty, empty).startswith("`tiny` is open: 0 records, 4 cells not run")
