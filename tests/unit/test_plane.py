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
from harness.drawing.plane import make_plane
from harness.drawing.png import plane_png
from harness.results.view import Number
from harness.scoring.summary import MetricScore
from harness.scoring.utility import Utility
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
