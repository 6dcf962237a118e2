"""The README's first screen, and the page on the open boards, are what the boards' records give."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from board_records import board, material, passed, record, used, utility

from harness.results.build import board_view
from harness.results.view import BoardView, Identified, Leak, Learned, LearnerView, Number
from harness.scoring.ceilings import Proof, Proven, Reached
from harness.scoring.identification import Identification
from harness.store.record import RunRecord

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
    for path, whole in front.pages().items():
        assert whole.count(front.BEGIN) == whole.count(front.END) == 1
        assert path.read_text(encoding="utf-8") == whole
    opening = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n\n## ")[0]
    assert opening.count(front.FOUND) == opening.count(front.SO_FAR) == 1
    assert opening.index(front.SO_FAR) < opening.index(front.BEGIN)
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
        "| unprotected | – | – | – | – | 90.0 | 90.0 |",
    ]
    whole = front.table(view, brief=False)
    assert "| `singmix[tau=1e-2]` | 20 times | – | 3.6 (6.1) | not asked | 56.0%" in whole


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
    lines = front.table(view, brief=False).splitlines()
    assert "| once | +1.6 dB" in lines[2]
    assert "| 50.0% [45.0, 55.0], `lmmse` |" in lines[2]
    assert "| 50.0% [45.0, 55.0], `lmmse`, from fewer rounds |" in lines[3]


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


def of_defenses(*records: RunRecord) -> BoardView:
    """A board of features with all defenses of these records, from 8 and from 16 images once."""
    defenses = ("none", *dict.fromkeys(each.request.defense for each in records))
    plain = board(defenses, ("lmmse",), name="features-v2")
    track = {**plain.tracks[0].model_dump(), "utility": [{"private_size": [16]}]}
    of = type(plain).model_validate({**plain.model_dump(), "tracks": [track]})
    return board_view(material(of, record("none", "lmmse"), *records, controls=[passed("lmmse")]))


def taught(defense: str, *rights: int, gain: float = 1.5, **more: Any) -> tuple[RunRecord, ...]:
    """How many of 1000 test images are named rightly, from 8 images and from 16."""
    first, *second = [utility(right, 900, 1000) for right in rights]
    asked = {"private_size": 16, "only": "utility"}
    bare: dict[str, Any] = {"privacy": {}, "by_image": {}}
    gains = (gain, gain + 0.1, gain - 0.1, gain)
    return (
        record(defense, "lmmse", gains, utility=first, **more),
        *(record(defense, "lmmse", asked=asked, utility=each, **bare) for each in second),
    )


def proven(epsilon: int, *rights: int) -> tuple[RunRecord, ...]:
    """Likewise of noisy class sums that prove so much."""
    told = {"epsilon": epsilon, "delta": 1e-5, "adjacency": "replace one image of a class"}
    resolved = {f"guarantee.{name}": value for name, value in told.items()}
    defense = f"dpmeans[epsilon={epsilon}]"
    sums = used(defense).model_copy(update={"resolved": resolved})
    plain = taught(defense, *rights, gain=0.0)
    return tuple(each.model_copy(update={"defense": (sums,)}).sealed() for each in plain)


CLOSED = taught("singmix[tau=1e-4]", 489, 732)
OPEN = taught("singmix[tau=1e-2]", 767, 803, identification=asked(1.0))


def test_sums_that_teach_more_are_told_of_with_what_they_prove_and_where_not(
    front: ModuleType,
) -> None:
    """Of the budgets that win the smallest, and the number of images at which none does."""
    view = of_defenses(*CLOSED, *taught("noise", 789), *proven(2, 684, 795), *proven(8, 753, 801))
    assert front.finding(view) == (
        "Noisy class sums (`dpmeans`) that prove ε = 2 (δ = 1e-05) teach 79.5% from 16 images, "
        "more than every heuristic measured there, released once (at best `singmix[tau=1e-4]`, "
        "73.2%); from 8 not (at best `noise`, 78.9%)."
    )


def test_a_heuristic_that_teaches_more_is_left_out_only_where_its_images_are_named(
    front: ModuleType,
) -> None:
    sums = proven(2, 684, 795)
    told = front.finding(of_defenses(*CLOSED, *OPEN, *sums))
    assert "(at best `singmix[tau=1e-4]`, 48.9%) but `singmix[tau=1e-2]`, whose images" in told
    assert told.endswith("are named or brought back; from 16 too (ε = 2).")
    unseen = taught("singmix[tau=1e-2]", 767, 803)
    assert front.finding(of_defenses(*CLOSED, *unseen, *sums)) == ""
    half = taught("singmix[tau=1e-2]", 767, 803, identification=asked(0.5))
    assert front.finding(of_defenses(*CLOSED, *half, *sums)) == ""


def test_a_lead_within_the_intervals_is_none(front: ModuleType) -> None:
    assert front.finding(of_defenses(*CLOSED, *proven(2, 480, 745))) == ""


def test_what_proves_nothing_is_no_private_release(front: ModuleType) -> None:
    """A record of class sums without a guarantee does not count, whatever it teaches."""
    assert front.finding(of_defenses(*CLOSED, *taught("dpmeans[epsilon=2]", 684, 795))) == ""


def test_without_records_there_is_no_sentence(front: ModuleType) -> None:
    assert front.finding(board_view(material(board(stage="open")))) == ""
    whole = f"before{front.FOUND}old{front.SO_FAR}after"
    assert front.put(whole, "", front.FOUND, front.SO_FAR, "") == (
        f"before{front.FOUND}{front.SO_FAR}after"
    )


def test_the_brief_table_leaves_twins_and_mere_accuracy_to_the_page(
    front: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = "singmix[tau=1e-4,noise=gaussian,calibrate=public]"
    alone = "singmix[tau=1e-6,noise=gaussian,calibrate=public]"
    names = ["none", "singmix[tau=1e-4]", twin, alone, "dpmeans[epsilon=2]"]
    monkeypatch.setattr(front, "_named", lambda _: names)
    twins = (*taught(twin, 489, 732), *taught(alone, 120, 130))
    view = of_defenses(*CLOSED, *twins, *proven(2, 684, 795))
    brief, whole = (front.table(view, brief=brief) for brief in (True, False))
    assert f"`{twin}`" in whole
    assert f"`{twin}`" not in brief
    assert f"`{alone}`" in brief
    assert "| `dpmeans[epsilon=2]` | once |" in brief
    assert "| 2 (δ = 1e-05, replace one image of a class) | 68.4%" in whole
    assert "of two kinds it does not compare" in front.reading(view, brief=False)


def test_age_is_said_once_and_marks_are_those_of_the_fewer(front: ModuleType) -> None:
    def marks(*older: bool) -> tuple[list[str], str]:
        lines = [front.Line(f"mixup[k={i}]", 1, older=old) for i, old in enumerate(older)]
        said = " ".join(front._of_age(lines))
        return [front._mark(line, lines).strip() for line in lines], said

    assert marks(True, True) == (
        ["", ""],
        "All rows are older: partly of an earlier source, version or options.",
    )
    assert marks(True, True, False)[0] == ["", "", "‡"]
    assert marks(True, True, False)[1].startswith("Rows are older, but for those with ‡")
    assert marks(True, False, False)[0] == ["‡", "", ""]
    assert marks(False, False) == (["", ""], "")


def test_a_bracket_stands_in_the_whole_table_alone(
    front: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_named", lambda _: ["none", "singmix[tau=1e-4]"])
    proof = Proof(
        quantities={"pooled_snr_db": Proven(value=4.0, interval=(3.7, 4.3))},
        reached={"lmmse": Reached(value=3.6, interval=(3.4, 3.8), bound="pooled_snr_db")},
    )
    view = of_defenses(*taught("singmix[tau=1e-4]", 489, 732, ceilings={"exchangeable": proof}))
    assert "| 3.60 … 4.00 |" in front.table(view, brief=False)
    assert "Reached … ceiling is pooled SNR" in front.reading(view, brief=False)
    assert "…" not in front.table(view, brief=True)


@pytest.mark.parametrize("sentence", ["", "x" * 340])
def test_a_full_board_leaves_the_readme_one_page(
    front: ModuleType, monkeypatch: pytest.MonkeyPatch, sentence: str
) -> None:
    """All rows that the board of features may come to show, with every number there."""
    sizes = (1000, 10_000, 45_000)
    once = ["mixup[k=2]", "instahide[k=2]", "noise"]
    mixed = [f"singmix[tau={tau}]" for tau in ("1", "1e-2", "1e-4", "1e-6")]
    dull = [f"dpmeans[epsilon={e}]" for e in (1, 2, 8)] + [f"dpmix[epsilon={e}]" for e in (2, 8)]
    cells = [(name, 1) for name in (*once, *dull)]
    cells += [(name, rounds) for name in mixed for rounds in (1, 20, 200)]
    lines = [full_line(front, *cell, sizes) for cell in cells]
    monkeypatch.setattr(front, "lines_of", lambda _: lines)
    features, pixels = front._view(front.FEATURES), front._view(front.PIXELS)
    whole = front.README.read_text(encoding="utf-8")
    whole = front.put(whole, front.first_screen(pixels, features))
    whole = front.put(whole, sentence, front.FOUND, front.SO_FAR)
    assert whole.count("| once |") == len(once + mixed + dull)
    assert len(whole.encode()) <= 8 * 1024


def full_line(front: ModuleType, defense: str, rounds: int, sizes: Iterable[int]) -> Any:
    """A row with every number; from 200 rounds one learner alone, and no attack."""
    tried = [LearnerView(name=name, accuracy=Number(value=0.7)) for name in ("ridge", "network")]
    attack = "classsums" if "dpmeans" in defense else "lmmse"
    leak = Leak(
        metric="snr_db",
        unit="dB",
        leaks_more="higher",
        mean=Number(value=1.0),
        null=0.0,
        gain=Number(value=12.2, ci=(12.0, 12.4)),
        strongest=attack,
    )
    named = Identified(
        attack="sphere",
        threat_model="candidates",
        top1=Number(value=1.0),
        top1_chance=0.001,
        auc=Number(value=1.0),
        auc_chance=0.5,
        candidates=2000,
        n=200,
        asked="encodings",
        fewer_rounds=None if rounds == 1 else 1,
    )
    points = {
        n: Learned(
            private_size=n,
            rounds=rounds,
            accuracy=Number(value=0.771, ci=(0.76, 0.78)),
            learners=tuple(tried[: 1 if rounds == 200 or n == 45_000 else 2]),
        )
        for n in sizes
    }
    return front.Line(
        defense,
        rounds,
        leak=leak if rounds < 200 else None,
        attack=attack,
        named=named if "singmix" in defense else None,
        learned=points,
        older=defense == "noise",
    )
