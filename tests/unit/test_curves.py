"""Accuracy over private images: curves of rows and of records, and the tables beside them."""

from __future__ import annotations

import csv
from io import BytesIO, StringIO
from typing import Any

import pytest
from board_records import board, material, passed, record, utility
from PIL import Image

from harness.api import UsageError
from harness.drawing.curves import Curves, curves_of, has_curves, record_curves, row_curves
from harness.drawing.markdown import readme
from harness.drawing.pages import render
from harness.drawing.png import curves_png
from harness.drawing.svg import curve_drawing
from harness.results.build import board_view
from harness.results.tables import as_csv
from harness.results.view import BoardView
from harness.scoring.utility import Accuracy, Utility
from harness.store.record import RunRecord

pytestmark = pytest.mark.core


def told(chosen: str, right: int, other: int, reference: int = 90) -> Utility:
    """Of two learners, `ridge` and `network`, one was chosen by validation."""
    shares = {name: (right if name == chosen else other) / 100 for name in ("ridge", "network")}
    return utility(right, reference).model_copy(
        update={
            "inference": chosen,
            "accuracies": {name: Accuracy.of([share], 100) for name, share in shares.items()},
            "validation": {name: 0.3 + 0.1 * (name == chosen) for name in shares},
            "left_out": {"encoded": "it has no inference of its own"},
        }
    )


def alone(private: int, right: int, rounds: int = 1, **more: Any) -> RunRecord:
    asked = {"private_size": private, "rounds": rounds, "only": "utility"}
    own = {"utility": told("network", right, right + 3, 80 + private // 2), **more}
    return record("mixup[k=2]", asked=asked, privacy={}, by_image={}, **own)


@pytest.fixture(scope="module")
def view() -> BoardView:
    """A defense at three numbers of images once, and at one of them in three rounds."""
    plain = board(("none", "mixup[k=2]"), ("linear",))
    track = plain.tracks[0].model_dump()
    track["utility"] = [{"private_size": [4, 16]}, {"private_size": [16], "rounds": [3]}]
    of = type(plain).model_validate({**plain.model_dump(), "tracks": [track]})
    records = [
        record("mixup[k=2]", utility=told("ridge", 60, 70)),
        record("none", utility=told("ridge", 90, 80)),
        alone(4, 15),
        alone(16, 75),
        alone(16, 85, rounds=3),
    ]
    return board_view(material(of, *records, controls=[passed("linear")]))


def of_defense(found: Curves, defense: str, rounds: int) -> list[tuple[int, float, bool]]:
    (curve,) = [c for c in found.curves if (c.defense, c.rounds) == (defense, rounds)]
    return [(spot.n, spot.accuracy.value, spot.nothing) for spot in curve.spots]


def test_a_defense_has_a_curve_for_each_number_of_rounds(view: BoardView) -> None:
    found = curves_of(view)
    assert found is not None
    once = [(4, 0.15, True), (8, 0.6, False), (16, 0.75, False)]
    assert of_defense(found, "mixup[k=2]", 1) == once
    assert of_defense(found, "mixup[k=2]", 3) == [(16, 0.85, False)]
    assert found.defenses == ("mixup[k=2]",)  # what protects nothing is the other curve
    assert [(spot.n, spot.accuracy.value) for spot in found.unprotected] == [
        (4, 0.82),
        (8, 0.9),
        (16, 0.88),
    ]
    assert (found.sizes, found.rounds, found.chance) == ((4, 8, 16), (1, 3), 0.1)


def test_a_point_says_who_learned_it(view: BoardView) -> None:
    found = curves_of(view)
    assert found is not None
    first, own, _ = found.curves[0].spots
    assert "the strongest learner here found nothing" in first.tip
    what, accuracy, who = own.tip.splitlines()
    assert (what, who) == ("8 private images, released once", "by ridge")
    assert accuracy.startswith("accuracy 60.0% [")


def test_accuracy_at_one_number_alone_is_no_curve() -> None:
    plain = board_view(material(board(), record("mixup[k=2]")))
    assert curves_of(plain) is None
    assert curve_drawing(plain.tracks[0]) is None
    assert row_curves([]) is None
    assert "Accuracy over private images" not in readme(plain)


def test_the_page_draws_every_point_once(view: BoardView) -> None:
    drawn = curve_drawing(view.tracks[0])
    assert drawn is not None
    (once, thrice) = drawn.paths
    assert [len(once.dots), len(thrice.dots)] == [3, 1]
    assert (once.colour, once.shape) == (thrice.colour, thrice.shape)  # one defense
    assert (once.dash, thrice.dash) == (0, 1)
    assert once.label is not None
    assert thrice.label is None  # its name stands there already
    xs, ys = [dot.x for dot in once.dots], [dot.y for dot in once.dots]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)  # 4 to 8 is as 8 to 16
    assert ys == sorted(ys, reverse=True)  # up is more
    page = render(view)
    assert page.count('class="nothing"') == 1
    assert "What is learned over the number of private images" in page


def test_a_picture_of_curves_is_the_same_each_time(view: BoardView) -> None:
    found = curves_of(view)
    assert found is not None
    data = curves_png(found)
    assert data == curves_png(found)
    with Image.open(BytesIO(data)) as picture:
        assert picture.width > 1000


def test_the_table_has_a_line_for_each_curve(view: BoardView) -> None:
    text = readme(view)
    table = text.partition("### Accuracy over private images")[2].partition("###")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert lines[0] == "| defense | rounds | 4 images | 8 images | 16 images |"
    (once,) = (line.split(" | ") for line in lines if line.startswith("| `mixup[k=2]` | 1 "))
    assert [once[2].split()[0], once[3].split()[0]] == ["15.0%", "60.0%"]
    assert once[2].endswith(", chance")
    assert once[3].endswith(", `ridge`")
    assert any(line.startswith("| `mixup[k=2]` | 3 | – | – | 85.0%") for line in lines)
    assert lines[-1].startswith("| unprotected | – | 82.0%")


def test_all_learners_stand_in_the_table_the_chosen_in_bold(view: BoardView) -> None:
    text = readme(view).partition("### Learners")[2]
    assert "| defense | `ridge` | `network` | `encoded` |" in text
    assert "| `mixup[k=2]` | **60.0%** (40.0%) | 70.0% (30.0%) | left out: 1 |" in text
    assert "1. it has no inference of its own" in text
    page = render(view)
    assert "<b>ridge</b>" in page
    assert "left out: it has no inference of its own" in page


def test_values_hold_every_learner_of_every_point(view: BoardView) -> None:
    lines = list(csv.DictReader(StringIO(as_csv(view))))
    own = [x for x in lines if x["kind"] == "learner" and x["defense"] == "mixup[k=2]"]
    chosen = {
        (int(x["private_images"]), int(x["rounds"])): (x["learner"], float(x["accuracy"]))
        for x in own
        if x["chosen"] == "True"
    }
    assert chosen == {
        (4, 1): ("network", 0.15),
        (8, 1): ("ridge", 0.6),
        (16, 1): ("network", 0.75),
        (16, 3): ("network", 0.85),
    }
    assert {x["reason"] for x in own if x["learner"] == "encoded"} == {
        "it has no inference of its own"
    }
    waiting = [x for x in lines if x["reason"] == "not run yet" and x["kind"] == "learner"]
    assert {x["defense"] for x in waiting} == {"none"}
    (row,) = [x for x in lines if x["kind"] == "row" and x["defense"] == "mixup[k=2]"]
    assert (row["learner"], row["accuracy"]) == ("ridge", "0.6")


def test_records_make_curves_over_their_seeds() -> None:
    records = [alone(4, 20), alone(16, 60), alone(16, 70, seed=1)]
    found = record_curves(records)
    assert of_defense(found, "mixup[k=2]", 1) == [(4, 0.2, False), (16, 0.65, True)]
    assert has_curves(records)
    assert has_curves([alone(4, 20)])  # of accuracy alone there is no plane
    assert not has_curves([record(), record("mixup[k=2]")])


def test_records_of_other_learners_make_no_curve() -> None:
    other = alone(16, 60)
    asked = other.request.model_copy(update={"learner": "ridge"})
    with pytest.raises(UsageError, match="different learners"):
        record_curves([alone(4, 20), other.model_copy(update={"request": asked})])
    with pytest.raises(UsageError, match="No accuracy was measured in"):
        record_curves([alone(4, 20), alone(16, 60, utility=None)])
