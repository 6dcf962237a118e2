"""How well images are told among candidates: in the row, on the plane, and in advice."""

from __future__ import annotations

import csv
from io import StringIO
from typing import Any

import pytest
from board_records import board, material, passed, record

from harness.advice import Advice, Wish, advise
from harness.drawing.markdown import readme
from harness.drawing.pages import render
from harness.drawing.plane import make_plane, row_plane
from harness.drawing.svg import drawing
from harness.results.build import board_view
from harness.results.headline import key_findings
from harness.results.tables import as_csv
from harness.results.view import BoardView, RowView
from harness.scoring.identification import Identification
from harness.store.record import Member, RunRecord

pytestmark = pytest.mark.core
INFORMED = frozenset({"encodings", "public", "weights"})


def asked(top1: float, reach: float = 0.05, auc: float = 0.5) -> Identification:
    """Of 200 encodings among 2000 candidates."""
    return Identification(
        top1=top1,
        top1_ci=(max(0.0, top1 - reach), min(1.0, top1 + reach)),
        top1_chance=0.001,
        top5=top1,
        top5_ci=None,
        top5_chance=0.005,
        auc=auc,
        auc_ci=(auc - 0.02, auc + 0.02),
        n=200,
        candidates=2000,
        asked="encodings",
    )


def listed(top1: float, attack: str = "lmmse", **more: Any) -> RunRecord:
    """A record of an attack that asked who is in the encodings."""
    told = {"identification": asked(top1, **more), "channels_used": ("encodings", "candidates")}
    return record("mixup[k=2]", attack, (-2.0,) * 4, right=60, **told)


def view(*records: RunRecord) -> BoardView:
    controls = [passed("linear"), passed("lmmse")]
    of = board(("none", "mixup[k=2]"))
    reference = [record(attack=attack, right=90) for attack in ("linear", "lmmse")]
    plain = record("mixup[k=2]", gains=(0.0,) * 4, right=60)
    return board_view(material(of, *reference, plain, *records, controls=controls))


def row(of: BoardView) -> RowView:
    return next(each for each in of.rows if each.defense == "mixup[k=2]")


def test_what_was_identified_stands_in_the_row() -> None:
    found = row(view(listed(0.5, auc=0.9)))
    assert found.identified is not None
    assert (found.identified.attack, found.identified.top1.value) == ("lmmse", 0.5)
    assert (found.identified.candidates, found.identified.n) == (2000, 200)
    assert (found.identified.top1_chance, found.identified.auc.value) == (0.001, 0.9)
    assert found.names_images


@pytest.mark.parametrize(
    ("told", "names"),
    [
        (asked(0.002), False),  # an interval with zero in it
        (asked(0.0, auc=0.6), True),  # never first, but true ones stand before false ones
        (asked(0.1), True),
        (asked(0.0005, reach=0.0), False),
    ],
)
def test_images_are_named_where_that_is_surely_more_than_chance(
    told: Identification, names: bool
) -> None:
    found = row(view(listed(0.5).model_copy(update={"identification": told})))
    assert found.identified is not None
    assert found.names_images is names


def test_nobody_who_did_not_ask_found_nothing() -> None:
    found = row(view(record("mixup[k=2]", "lmmse", right=60)))
    assert found.identified is None
    assert not found.names_images


def test_the_best_attack_counts_and_a_sure_one_before_a_lucky_one() -> None:
    lucky = record("mixup[k=2]", right=60, identification=asked(0.3, reach=0.31))
    found = row(view(listed(0.1), lucky))  # the newer of the two records of `linear` counts
    assert found.identified is not None
    assert found.identified.attack == "lmmse"


def test_members_of_a_suite_identify_too() -> None:
    own = listed(0.4)
    member = Member(status="ok", attack=own.attack, identification=own.identification)
    suite = own.model_copy(update={"identification": None, "members": {"sphere": member}})
    found = row(view(suite))
    assert found.identified is not None
    assert found.identified.attack == "sphere"


def test_a_row_of_no_gain_whose_images_are_named_is_marked_everywhere() -> None:
    of = view(listed(0.5))
    (track,) = of.tracks
    plane = row_plane(track, track.rows, "snr_db")
    assert plane is not None
    assert {point.name: point.named for point in plane.points} == {
        "none": False,
        "mixup[k=2]": True,
    }
    (tip,) = [point.tip for point in plane.points if point.named]
    assert "lmmse names a true image first for 50.0% [45.0, 55.0] of 200 encodings" in tip
    drawn = drawing(track, "snr_db")
    assert drawn is not None
    assert drawn.named
    page = render(of)
    assert page.count('class="named"') == 2  # the mark and the legend
    assert "<b>Images are named.</b>" in page
    text = readme(of)
    assert "| **50.0% [45.0, 55.0], chance 0.1%**, `lmmse` | yes |" in text
    (naming,) = [x for x in key_findings(of) if x.startswith("Among candidates")]
    assert "images are named in 1 of the 1 row where an attack asked" in naming
    (line,) = [
        x
        for x in csv.DictReader(StringIO(as_csv(of)))
        if x["kind"] == "row" and x["defense"] == "mixup[k=2]"
    ]
    assert (line["identified_by"], line["top1"], line["top1_low"]) == ("lmmse", "0.5", "0.45")
    assert (line["top1_chance"], line["candidates"]) == ("0.001", "2000")


def test_a_plane_of_records_marks_them_too() -> None:
    named = record("mixup[k=2]", identification=asked(0.5))
    points = make_plane([record(), named]).points
    assert [point.named for point in points] == [False, True]


def ask(*records: RunRecord, **more: Any) -> Advice:
    of = board(("noise", "mixup[k=2]"))
    plain = record("mixup[k=2]", gains=(1.0,) * 4, right=60)
    found = material(of, plain, *records, controls=[passed("linear"), passed("lmmse")])
    wish = {"attacker": "informed", "grants": INFORMED, "dataset": "fashion-mini", **more}
    return advise([found], Wish(min_accuracy=0.4, **wish))


def test_where_images_are_named_nothing_is_recommended_to_who_says_nothing_of_the_attacker() -> (
    None
):
    advice = ask(listed(0.5), named=False)
    assert not advice.recommended
    assert "images can be named among candidates" in advice.refusal
    (offer,) = advice.doubtful
    assert [each.name for each in offer.doubts] == ["images_named"]
    assert "lmmse puts a true image first for 50.0%" in offer.doubts[0].message


def test_an_attacker_of_whom_it_is_said_that_it_has_no_list_is_a_warning() -> None:
    (offer,) = ask(listed(0.5)).recommended
    assert [each.name for each in offer.warnings] == ["images_named"]
    assert (offer.attacks, offer.of) == (1, 2)


def test_an_attacker_with_a_list_is_a_refusal() -> None:
    advice = ask(listed(0.5), attacker="candidates", grants=INFORMED | {"candidates"})
    assert not advice.recommended
    assert [each.name for each in advice.doubtful[0].doubts] == ["images_named"]


def test_what_is_no_more_than_chance_is_neither() -> None:
    (offer,) = ask(listed(0.001), named=False).recommended
    assert offer.warnings == ()
    assert offer.identified is not None


def in_rounds(rounds: int, size: int = 8, **more: Any) -> dict[str, Any]:
    """A track of so many rounds and private images."""
    cells = [{"attacks": ["linear", "lmmse"]}]
    options = {"rounds": rounds, "private_size": size, **more}
    of = {"title": "T", "defenses": ["mixup[k=2]"], "cells": cells, "options": options}
    return {"name": f"times-{rounds}", **of}


def rounds_board(*tracks: dict[str, Any]) -> Any:
    plain = board(("mixup[k=2]",))
    return type(plain).model_validate({**plain.model_dump(), "tracks": tracks})


def once_and_twenty(later: dict[str, Any], *more: RunRecord) -> BoardView:
    """Images are named in one round; in the later track attacks ran that do not ask."""
    own = {name: later["options"][name] for name in ("rounds", "private_size")}
    plain = [record("mixup[k=2]", a, (0.0,) * 4, right=60, asked=own) for a in ("linear", "lmmse")]
    first = [record("mixup[k=2]", gains=(0.0,) * 4, right=60), listed(0.5)]
    controls = [passed("linear"), passed("lmmse")]
    of = rounds_board(in_rounds(1), later)
    return board_view(material(of, *first, *plain, *more, controls=controls))


def test_what_is_named_in_one_round_is_named_in_twenty() -> None:
    of = once_and_twenty(in_rounds(20))
    few, more = of.rows
    assert few.identified is not None
    assert more.identified is not None
    assert (few.identified.fewer_rounds, more.identified.fewer_rounds) == (None, 1)
    assert more.names_images
    assert more.identified.top1 == few.identified.top1
    plane = row_plane(of.tracks[1], of.tracks[1].rows, "snr_db")
    assert plane is not None
    assert [point.named for point in plane.points] == [True]
    assert "from fewer rounds: 1" in plane.points[0].tip
    (naming,) = [x for x in key_findings(of) if x.startswith("Among candidates")]
    assert "in 2 of the 2 rows where an attack asked, 1 of them from fewer rounds" in naming
    assert "chance 0.1%, from fewer rounds**" in readme(of)
    assert "chance 0.1%, from fewer rounds</small>" in render(of)


@pytest.mark.parametrize(
    "later",
    [in_rounds(20, size=16), in_rounds(20, public_size=7), in_rounds(20, preset="quick")],
)
def test_nothing_is_inherited_of_another_release(later: dict[str, Any]) -> None:
    """More images, or other public ones, or other options: such a list was not shown to anybody."""
    of = rounds_board(in_rounds(1), later)
    assert board_view(material(of, listed(0.5))).rows[1].identified is None


def test_a_row_that_was_asked_itself_keeps_what_was_found() -> None:
    asked_too = listed(0.3)
    request = asked_too.request.model_copy(update={"rounds": 20})
    own = asked_too.model_copy(update={"request": request, "created": "2026-02-01"}).sealed()
    _, more = once_and_twenty(in_rounds(20), own).rows
    assert more.identified is not None
    assert (more.identified.top1.value, more.identified.fewer_rounds) == (0.3, None)


def test_fewer_rounds_inherit_nothing_from_more() -> None:
    asked_too = listed(0.3)
    request = asked_too.request.model_copy(update={"rounds": 20})
    own = asked_too.model_copy(update={"request": request}).sealed()
    found = board_view(material(rounds_board(in_rounds(1), in_rounds(20)), own)).rows
    assert [each.names_images for each in found] == [False, True]


def test_advice_on_many_rounds_knows_of_the_first() -> None:
    of = rounds_board(in_rounds(1), in_rounds(20))
    later = [
        record("mixup[k=2]", attack, (1.0,) * 4, right=60, asked={"rounds": 20})
        for attack in ("linear", "lmmse")
    ]
    controls = [passed("linear"), passed("lmmse")]
    found = material(of, record("mixup[k=2]", right=60), listed(0.5), *later, controls=controls)
    wish = Wish("fashion-mini", 0.4, "informed", INFORMED, named=False)
    offers = {each.track: each for each in advise([found], wish).doubtful}
    assert [each.name for each in offers["times-20"].doubts] == ["images_named"]
    assert "from fewer rounds: 1" in offers["times-20"].doubts[0].message
