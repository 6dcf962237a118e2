"""The plane and the heat map: where marks stand, what labels avoid, which colour a gain has."""

from __future__ import annotations

import pytest
from sample_boards import leak, track

from harness.drawing.heat import heat_map, legend, level
from harness.drawing.plane import options_of, series_of
from harness.drawing.svg import BOTTOM, LEFT, RIGHT, TOP, Drawing, Mark, drawing, place

pytestmark = pytest.mark.core

TRACK = track("encodings", "Encodings")
FRAMED = (0.0, 0.0, 200.0, 100.0)


def plane(metric: str = "snr_db") -> Drawing:
    found = drawing(TRACK, metric)
    assert found is not None
    return found


def mark(defense: str) -> Mark:
    return next(each for each in plane().marks if each.point.name == defense)


def test_more_accuracy_is_further_right_and_more_leakage_further_up():
    strong, weak = mark("singmix[tau=1e-1]"), mark("singmix[tau=1e-4]")
    assert strong.x < weak.x
    assert strong.y > weak.y  # y points down


def test_what_leaks_beyond_all_scale_stands_at_the_edge():
    drawn = plane()
    assert drawn.capped
    assert mark("none").y == TOP
    assert all(text not in ("50", "100") for _, text in drawn.up)


def test_the_scale_is_theirs_where_all_leak_that_much():
    row = next(row for row in TRACK.rows if row.defense == "none")
    alone = drawing(TRACK.model_copy(update={"rows": (row,)}), "snr_db")
    assert alone is not None
    assert not alone.capped
    assert alone.up[-1][1] == "100"


def test_nothing_leaves_the_frame():
    for each in plane("ssim").marks:
        assert LEFT <= each.x <= RIGHT
        assert TOP <= each.y <= BOTTOM


def test_the_front_is_marked():
    front = {each.point.name for each in plane().marks if each.point.front}
    assert front == {row.defense for row in TRACK.rows if row.rank.get("snr_db") == 1}


def test_strengths_of_one_defense_share_a_colour_and_are_joined():
    drawn = plane()
    assert [series.name for series in drawn.series] == [
        "instahide",
        "mixup",
        "noise",
        "none",
        "singmix",
    ]
    assert len(drawn.lines) == 4  # `none` has one strength


def test_without_accuracy_there_is_no_plane():
    rows = [row.model_copy(update={"accuracy": None}) for row in TRACK.rows]
    assert drawing(TRACK.model_copy(update={"rows": tuple(rows)}), "snr_db") is None


def test_a_stack_is_a_series_of_its_own():
    assert series_of("gradprune[p=0.9]+mixup[k=4]") == "gradprune+mixup"
    assert options_of("gradprune[p=0.9]+mixup[k=4]") == {"gradprune.p": "0.9", "mixup.k": "4"}
    assert options_of("mixup[k=4]") == {"k": "4"}


def test_a_label_goes_where_nothing_is():
    busy = (50, 0, 200, 100)  # all that is right of the point
    (label,) = place([(50, 50, "tau")], [busy], FRAMED)
    assert label is not None
    assert label.anchor == "end"


def test_a_label_without_room_is_left_out():
    assert place([(50, 50, "tau=1e-2")], [FRAMED], FRAMED) == [None]


def test_labels_of_one_place_do_not_cover_each_other():
    placed = place([(100, 50, "first"), (100, 50, "second")], [], FRAMED)
    assert len({(label.x, label.y) for label in placed if label}) == 2


@pytest.mark.parametrize(
    ("gain", "expected"), [(0.2, 0), (0.9, 1), (3.0, 2), (6.0, 3), (118.0, 4), (-3.0, -2)]
)
def test_colours_grow_with_gain(gain: float, expected: int):
    assert level(leak("snr_db", gain)) == expected


def test_a_gain_that_may_be_none_is_neutral():
    assert level(leak("snr_db", 3.0, spread=3.1)) == 0


def test_the_legend_names_every_colour():
    assert [colour for colour, _ in legend("dB")] == [-4, -3, -2, -1, 0, 1, 2, 3, 4]
    assert legend("dB")[5] == (1, "0.5 to 2")


def test_the_map_has_a_tile_for_every_cell_and_a_note_for_every_reason():
    drawn = heat_map(TRACK, "snr_db")
    assert all(len(tiles) == len(drawn.columns) == 6 for _, tiles in drawn.rows)
    assert drawn.columns[0] == ("linear", "informed")
    noted = set(range(1, len(drawn.notes) + 1))
    assert noted == {tile.note for _, tiles in drawn.rows for tile in tiles if tile.note}
    assert sum(cells for _, _, cells in drawn.notes) == sum(
        tile.level is None for _, tiles in drawn.rows for tile in tiles
    )


def test_options_of_an_attack_are_named_where_another_has_its_name():
    cells = [
        TRACK.rows[1].cells[0].model_copy(update={"attack": name})
        for name in ("unet[base=16]", "gradmatch", "gradmatch[preset=realistic]")
    ]
    row = TRACK.rows[1].model_copy(update={"cells": tuple(cells)})
    names = heat_map(TRACK.model_copy(update={"rows": (row,)}), "snr_db").names
    assert names["unet[base=16]"] == "unet"
    assert names["gradmatch[preset=realistic]"] == "gradmatch[preset=realistic]"
