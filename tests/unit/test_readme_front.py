"""What the README says first is what the board of CIFAR-10 says."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from harness.store.record import Records

pytestmark = pytest.mark.core
ROOT = Path(__file__).parents[2]
TAUS = ("1", "1e-1", "1e-2")
LINEAR = "linear[preset=paper]"
WORDS = {1: "one", 2: "two", 3: "three", 6: "six", 7: "seven", 8: "eight", 9: "nine"}


@pytest.fixture(scope="module")
def opening() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return " ".join(text.partition("## Two commands")[0].split())


@pytest.fixture(scope="module")
def lines() -> list[dict[str, str]]:
    with (ROOT / "leaderboards/cifar10-v1/leaderboard.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    return [line for line in found if line["track"] == "once" and line["metric"] == "snr_db"]


def row(lines: list[dict[str, str]], defense: str) -> dict[str, str]:
    return next(x for x in lines if x["kind"] == "row" and x["defense"] == defense)


def gains(lines: list[dict[str, str]], attack: str) -> list[float]:
    cells = {x["defense"]: x for x in lines if x["kind"] == "cell" and attack in x.values()}
    return [float(cells[f"singmix[tau={tau}]"]["gain"]) for tau in TAUS]


def test_it_opens_with_the_front_of_cifar10(opening: str) -> None:
    assert "](leaderboards/cifar10-v1/front.png)" in opening
    assert (ROOT / "leaderboards/cifar10-v1/front.png").exists()


def test_what_singularized_mixup_keeps_and_leaks(opening: str, lines: list[dict[str, str]]) -> None:
    mild, strong = row(lines, "singmix[tau=1]"), row(lines, "singmix[tau=1e-4]")
    assert f"keeps {float(mild['accuracy']):.1%}".replace("%", " %") in opening
    assert f"where {float(mild['reference']):.1%}".replace("%", " %") in opening
    assert f"{float(mild['gain']):.1f} dB nearer" in opening
    assert f"({float(strong['accuracy']):.1%};".replace("%", " %") in opening
    assert f"gives {float(strong['chance']):.2%})".replace("%", " %") in opening
    assert float(strong["accuracy_low"]) <= float(strong["chance"])
    assert float(strong["gain_low"]) <= 0


def test_the_closed_form_beats_the_paper_s_attack(
    opening: str, lines: list[dict[str, str]]
) -> None:
    best, paper = gains(lines, "lmmse"), gains(lines, LINEAR)
    assert "{:.1f}, {:.1f} and {:.1f} dB better than guessing".format(*best) in opening
    assert "{:.1f}, {:.1f} and {:.1f} dB worse".format(*(-gain for gain in paper)) in opening


def test_candidates_are_found_where_no_image_is_shown(opening: str) -> None:
    records = map(Records(Path()).load, (ROOT / "leaderboards/cifar10-v1/records").glob("*.json"))
    (sphere,) = (
        record.identification
        for record in records
        if (record.attack.name, record.request.defense) == ("sphere", "singmix[tau=1e-4]")
    )
    assert sphere.top1 == 0.5
    assert sphere.asked == "encodings"
    assert f"from {sphere.candidates} candidates, `sphere` still puts an image" in opening
    assert "first for half of the encodings" in opening


def test_the_encodings_are_counted(opening: str, lines: list[dict[str, str]]) -> None:
    encoded = [x for x in lines if x["kind"] == "row" and x["defense"] != "none"]
    front = [x for x in encoded if x["rank"] == "1"]
    useless = [x for x in front if float(x["accuracy_low"]) <= float(x["chance"])]
    assert f"1000 CIFAR-10 images once, in {WORDS[len(encoded)]} ways. None of them" in opening
    assert f"{WORDS[len(front)]} are on the front" in opening
    assert f"{WORDS[len(useless)]} of them not surely above chance" in opening


def test_without_protection_there_is_no_rank(lines: list[dict[str, str]]) -> None:
    assert row(lines, "none")["rank"] == ""
