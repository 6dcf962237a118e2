"""The accuracy-leakage plane: which points records become, what is joined, and who is refused."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from math import inf
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

from harness.api import UsageError
from harness.asking.request import make_request
from harness.cli.show import command
from harness.drawing import png
from harness.drawing.plane import BAR, make_plane, row_plane
from harness.drawing.png import plane_png
from harness.drawing.svg import drawing
from harness.results.view import Bracket, Leak, Number, RowView, TrackView
from harness.scoring.ceilings import Proof, Proven, Reached
from harness.scoring.summary import MetricScore
from harness.scoring.utility import Utility
from harness.store.bounds import Budget
from harness.store.record import Records, RunRecord, Used

pytestmark = pytest.mark.core


def used(name: str, **config: Any) -> Used:
    return Used(name=name, version="1", distribution="d", source_sha256="0", config=config)


def snr(mean: float, null: float | None = 4.0) -> MetricScore:
    ci = (mean - 0.5, mean + 0.5)
    return MetricScore(unit="dB", mean=mean, ci=ci, null=null, null_name="class_mean", n=9)


def lpips(mean: float) -> MetricScore:
    return MetricScore(leaks_more="lower", mean=mean, null=0.6, null_name="class_mean", n=9)


def utility(accuracy: float, unprotected: float | None = 0.8) -> Utility:
    return Utility(
        accuracy=accuracy,
        interval=(accuracy - 0.02, accuracy + 0.02),
        chance=0.1,
        n=300,
        reference_accuracy=unprotected,
        reference_interval=None,
    )


def made(*defense: Used, accuracy: float = 0.7, leak: float = 6.0, **more: Any) -> RunRecord:
    """A small record, sealed."""
    values: dict[str, Any] = {
        "status": "ok",
        "request": make_request(threads=1),
        "defense": defense,
        "attack": used("gradmatch"),
        "dataset": used("fashion-mini"),
        "victim": used("cnn"),
        "space": used("pixels"),
        "threat_model": "informed",
        "release_kind": "gradients",
        "device": "cpu",
        "threads": 1,
        "utility": utility(accuracy),
        "privacy": {"lpips_vgg": lpips(1 / leak), "snr_db": snr(leak)},
    }
    return RunRecord(**{**values, **more}).sealed()


def pruned(p: float, **more: Any) -> RunRecord:
    return made(used("gradprune", p=p, momentum=True), **more)


SWEEP = [
    pruned(0.999, accuracy=0.5, leak=4.1),
    pruned(0.9, accuracy=0.7, leak=5.0),
    pruned(0.99, accuracy=0.6, leak=4.4),
    made(accuracy=0.8, leak=9.0),
]


def test_a_record_becomes_a_point_with_its_intervals_and_its_null() -> None:
    plane = make_plane(SWEEP)
    point = plane.points[1]
    assert (point.series, point.label) == ("gradprune", "p=0.9")
    assert point.accuracy == Number(value=0.7, ci=(0.7 - 0.02, 0.7 + 0.02))
    assert (point.leakage, point.null) == (Number(value=5.0, ci=(4.5, 5.5)), 4.0)
    assert plane.heading == "gradmatch on fashion-mini: accuracy against leakage"
    assert plane.unprotected == (Number(value=0.8),)


def test_points_are_joined_in_the_order_of_the_option_that_differs() -> None:
    plane = make_plane(SWEEP)
    assert plane.lines == ((1, 2, 0),)
    assert plane.points[3].label == ""  # alone in its series, which the legend names


def test_of_two_options_one_walks_and_the_other_parts_the_lines() -> None:
    grid = [
        made(used("mixcon", strength=strength, beta=beta))
        for strength in (1.0, 0.1)
        for beta in (0.1, 1e-4, 1e-2)
    ]
    plane = make_plane(grid)
    assert plane.lines == ((4, 5, 3), (1, 2, 0))
    assert plane.points[1].label == "strength=1, beta=0.0001"


def test_only_numbers_in_an_order_are_joined() -> None:
    words = [made(used("singmix", noise=noise)) for noise in ("sphere", "gaussian")]
    seeds = [made(used("singmix"), request=make_request(threads=1, seed=s)) for s in (0, 1)]
    assert make_plane(words).lines == make_plane(seeds).lines == ()
    assert [p.label for p in make_plane(seeds).points] == ["seed=0", "seed=1"]


def test_options_of_a_stack_say_whose_they_are_where_two_share_a_name() -> None:
    stacks = [made(used("mixup", k=2), used("clip", k=k, norm=k / 2)) for k in (1, 3)]
    points = make_plane(stacks).points
    assert [point.series for point in points] == ["mixup+clip"] * 2
    assert [point.label for point in points] == ["clip.k=1, norm=0.5", "clip.k=3, norm=1.5"]


def test_what_was_asked_differently_is_told_of_single_records_too() -> None:
    more = make_request(threads=1, rounds=4)
    plane = make_plane([made(used("mixup", k=2)), made(used("singmix"), request=more)])
    assert [point.label for point in plane.points] == ["rounds=1", "rounds=4"]


def test_records_alike_in_all_options_are_told_apart_by_id() -> None:
    alike = [made(used("mixup"), accuracy=accuracy) for accuracy in (0.5, 0.6)]
    assert [p.label for p in make_plane(alike).points] == [record.id[:8] for record in alike]
    assert len(make_plane([alike[0], alike[0]]).points) == 1


def test_the_axis_says_which_direction_leaks_more() -> None:
    assert make_plane(SWEEP).up == "snr_db (dB)   higher leaks more →"
    assert make_plane(SWEEP, "lpips_vgg").up == "lpips_vgg   ← lower leaks more"
    assert make_plane(SWEEP, "lpips_vgg").points[1].leakage.value == 1 / 5.0


UNSCORED = {"lpips_vgg": MetricScore(unavailable="images are smaller than 32 pixels")}


@pytest.mark.parametrize(
    ("odd", "metric", "message"),
    [
        (pruned(0.5, utility=None), None, "No accuracy was measured in record {id}, so"),
        (
            pruned(0.5, utility=None, privacy={}, status="timeout"),
            None,
            r"No accuracy was measured in record {id} \(timeout\), so",
        ),
        (pruned(0.5, privacy={}), None, "'snr_db' was not scored in record {id}"),
        (
            pruned(0.5, privacy=UNSCORED),
            "lpips_vgg",
            r"'lpips_vgg' was not scored in record {id} \(images are smaller",
        ),
        (pruned(0.5, attack=used("unet")), None, r"different attacks \(gradmatch, unet\)"),
        (pruned(0.5, dataset=used("mnist")), None, r"different datasets \(fashion-mini, mnist\)"),
        (pruned(0.5, victim=used("mlp")), None, r"different victims \(cnn, mlp\)"),
        (pruned(0.5, threat_model="full"), None, "different threat models"),
    ],
)
def test_a_record_without_a_place_in_the_plane_is_named(
    odd: RunRecord, metric: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message.replace("{id}", odd.id[:12])):
        make_plane([*SWEEP, odd], metric)


def test_a_metric_that_nobody_has_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"'lpips' was not scored .* Did you mean 'lpips_vgg'\?"):
        make_plane(SWEEP, "lpips")


def test_an_exact_copy_leaves_room_for_the_others() -> None:
    assert make_plane(SWEEP).off_scale == 60.0
    assert make_plane(SWEEP, "lpips_vgg").off_scale == inf


def test_the_same_plane_gives_the_same_bytes_whatever_the_readers_style() -> None:
    import matplotlib

    plane = make_plane([*SWEEP, made(used("clip"), leak=120.0)])
    drawn = plane_png(plane)
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "savefig.dpi": 30}):
        assert plane_png(plane) == drawn
    assert plane_png(replace(plane, lines=())) != drawn


def test_one_bare_point_can_be_drawn() -> None:
    bare = made(utility=utility(0.5, None), privacy={"snr_db": snr(3.0, None)})
    with Image.open(BytesIO(plane_png(make_plane([bare])))) as image:
        assert image.width > image.height > 500


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sweep's records in a cache, by the beginnings of their ids."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for record in SWEEP:
        Records(tmp_path).save(record)
    return [record.id[:8] for record in SWEEP]


def test_show_draws_the_plane_and_no_panel(kept: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [*kept, "--plane", "plane.png", "--metric", "lpips_vgg"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "plane    plane.png"
    assert (tmp_path / "plane.png").exists()
    assert not (tmp_path / "panel.png").exists()


def test_a_metric_without_a_plane_is_refused(kept: list[str]) -> None:
    done = CliRunner().invoke(command, [*kept, "--metric", "lpips_vgg"])
    assert (done.exit_code, "--metric is for --plane" in done.stderr) == (2, True)


def test_json_draws_nothing_and_says_so(kept: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [*kept, "--plane", "plane.png", "--json"])
    assert (done.exit_code, "leave out --plane" in done.stderr) == (2, True)
    assert not (tmp_path / "plane.png").exists()


def around(value: float, half: float) -> Number:
    return Number(value=value, ci=(value - half, value + half))


def bracket(reached: float, ceiling: float, *, vacuous: bool = False, blind: float | None = 0.34):
    return Bracket(
        attack="lmmse",
        reached=around(reached, 0.2),
        ceiling=around(ceiling, 0.3),
        labels=True,
        vacuous=vacuous,
        blind=None if blind is None else around(blind, 0.1),
    )


def row(defense: str, accuracy: float, gain: float, **more: Any) -> RowView:
    leak = Leak(
        metric=more.pop("metric", "snr_db"),
        unit="dB",
        leaks_more="higher",
        mean=around(gain + 1, 0.2),
        null=1.0,
        gain=around(gain, 0.2),
        strongest="lmmse",
    )
    return RowView(
        track="once",
        defense=defense,
        accuracy=around(accuracy, 0.012),
        leaks={leak.metric: leak},
        rank={leak.metric: 1},
        **more,
    )


TWIN = ",noise=gaussian,calibrate=public]"
BOARD = [
    *(row("mixup[k=2]", 0.33, 104.9), row("noise", 0.351, 9.6)),
    *(row("instahide[k=2]", 0.238, 0.4), row("instahide[k=4]", 0.206, 0.3)),
    *(row(f"singmix[tau={t}]", a, g) for t, a, g in (("1", 0.32, 7.2), ("1e-2", 0.285, 1.5))),
    *(row(f"singmix[tau={t}]", a, 0.0) for t, a in (("1e-4", 0.16), ("1e-6", 0.105))),
    row(f"singmix[tau=1{TWIN}", 0.322, 7.23, bracket=bracket(9.0, 38.0, vacuous=True)),
    row(f"singmix[tau=1e-2{TWIN}", 0.287, 1.53, bracket=bracket(2.1, 5.48)),
    row(f"singmix[tau=1e-4{TWIN}", 0.162, 0.1, bracket=bracket(0.4, 0.44)),
    *(row(f"dpmeans[epsilon={e}]", 0.16 + 0.03 * e, 0.0) for e in (1, 2)),
    row(
        "dpmix[epsilon=8]",
        0.2,
        0.05,
        budget=Budget(epsilon=8, delta=1e-5, adjacency="add or remove one image"),
    ),
]


def track(rows: list[RowView]) -> TrackView:
    return TrackView(name="once", title="Once", about="", rows=tuple(rows), attacks=(), protocol={})


def points(rows: list[RowView], metric: str = "snr_db") -> dict[str, Any]:
    plane = row_plane(track(rows), rows, metric)
    assert plane is not None
    return {point.name: point for point in plane.points}


def test_a_row_s_bar_is_what_was_reached_and_the_ceiling_over_a_blind_guess() -> None:
    """In decibels as the axis is, and no part of the point: it bounds one attack, pooled."""
    point = points(BOARD)[f"singmix[tau=1e-2{TWIN}"]
    assert point.bracket == pytest.approx((2.1 - 0.34, 5.48 - 0.34))
    assert point.leakage.value == 1.53
    assert "pooled SNR, reached … ceiling: 2.10 … 5.48 dB, lmmse" in point.tip


def test_what_says_nothing_or_is_of_another_measure_has_no_bar() -> None:
    found = points(BOARD)
    assert found[f"singmix[tau=1{TWIN}"].bracket is None
    assert found["singmix[tau=1e-2]"].bracket is None
    told = bracket(2.1, 5.48)
    assert (
        points([row("noise", 0.3, 1.0, bracket=bracket(2, 5, blind=None))])["noise"].bracket is None
    )
    hidden = row("instahide[k=2]", 0.3, 1.0, bracket=told, metric="snr_db_abs")
    assert points([hidden])["instahide[k=2]"].bracket is None
    other = row("noise", 0.3, 1.0, bracket=told, metric="psnr")
    assert points([other], "psnr")["noise"].bracket is None


def test_a_proven_budget_is_told_of_its_point() -> None:
    point = points(BOARD)["dpmix[epsilon=8]"]
    assert point.label == "epsilon=8", "also where no other of its series differs in it"
    assert "(8, 1e-05)-differential privacy: add or remove one image" in point.tip


def test_twins_are_told_apart_in_a_word_and_joined_with_their_like() -> None:
    """`calibrate` goes with `noise`, so that one of them is enough."""
    plane = row_plane(track(BOARD), BOARD, "snr_db")
    assert plane is not None
    labels = {point.name: point.label for point in plane.points}
    assert labels["singmix[tau=1e-2]"] == "tau=1e-2"
    assert labels[f"singmix[tau=1e-2{TWIN}"] == "tau=1e-2, noise=gaussian"
    joined = [{plane.points[i].name for i in line} for line in plane.lines]
    assert {f"singmix[tau={tau}{TWIN}" for tau in ("1", "1e-2", "1e-4")} in joined
    assert {f"singmix[tau={tau}]" for tau in ("1", "1e-2", "1e-4", "1e-6")} in joined


def test_no_label_of_a_full_picture_lies_on_another_or_on_a_bar() -> None:
    plane = row_plane(track(BOARD), BOARD, "snr_db")
    assert plane is not None
    figure = png._figure(png._on_scale(plane))
    (axes,) = figure.axes
    boxes = [text.get_window_extent().extents for text in axes.texts]
    assert len(boxes) >= 10, "most points have room for theirs"
    assert not any(shared(one, other) for i, one in enumerate(boxes) for other in boxes[:i])
    at = axes.transData.transform
    for point in plane.points:
        if point.bracket:
            (x, low), (_, high) = (at((point.accuracy.value, end)) for end in point.bracket)
            right = x + png.BAR * png.DPI / 72
            bar = (right - 5, min(low, high), right + 5, max(low, high))
            assert not any(shared(bar, box) for box in boxes)


def shared(one: Any, other: Any) -> bool:
    """Whether two boxes x0, y0, x1, y1 overlap by more than a pixel each way."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    return across > 1 and min(one[3], other[3]) - max(one[1], other[1]) > 1


def test_a_page_draws_the_bar_beside_its_mark_on_the_same_scale() -> None:
    drawn = drawing(track(BOARD), "snr_db")
    assert drawn is not None
    assert drawn.bar == BAR
    marks = {mark.point.name: mark for mark in drawn.marks}
    told = marks[f"singmix[tau=1e-2{TWIN}"]
    assert told.bracket is not None
    left, reached, right, ceiling = told.bracket
    assert left == right > told.x
    up = marks["singmix[tau=1]"].y, marks["singmix[tau=1e-4]"].y  # 7.2 and 0 dB
    per_decibel = (up[1] - up[0]) / 7.2
    assert reached == pytest.approx(up[1] - 1.76 * per_decibel, abs=0.2)
    assert ceiling == pytest.approx(up[1] - 5.14 * per_decibel, abs=0.2)
    assert marks["noise"].bracket is None
    assert drawing(track(BOARD[:4]), "snr_db").bar == ""  # type: ignore[union-attr]


def ceilings(attack: str, reached: float, *vacuous: str) -> dict[str, Proof]:
    name = "pooled_snr_db"
    held = {attack: Reached(value=reached, bound=name)}
    quantities = {name: Proven(value=7.5)}
    return {"exchangeable": Proof(quantities=quantities, reached=held, vacuous=vacuous)}


def test_a_record_s_bar_is_pooled_as_its_axis_is_not_a_gain() -> None:
    plane = make_plane([pruned(0.9, ceilings=ceilings("gradmatch", 6.2)), pruned(0.99)])
    assert [point.bracket for point in plane.points] == [(6.2, 7.5), None]
    assert plane.bar == BAR
    assert "pooled SNR: what was reached" in plane.note
    assert plane_png(plane) != plane_png(replace(plane, points=tuple(unbarred(plane.points))))
    assert make_plane([pruned(0.9)]).bar == ""


def unbarred(points: Any) -> Any:
    return (replace(point, bracket=None) for point in points)


def test_a_record_has_a_bar_of_its_own_attack_alone_and_of_its_main_metric() -> None:
    assert make_plane([pruned(0.9, ceilings=ceilings("identity", 2.0))]).bar == ""
    vacuous = ceilings("gradmatch", 6.2, "pooled_snr_db")
    assert make_plane([pruned(0.9, ceilings=vacuous)]).bar == ""
    told = pruned(0.9, ceilings=ceilings("gradmatch", 6.2))
    assert make_plane([told], "lpips_vgg").bar == ""
