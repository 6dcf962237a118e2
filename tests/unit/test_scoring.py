"""Matching, nulls, intervals and summaries."""

from itertools import permutations

import numpy as np
import pytest
import torch

from harness.api import CellFailed, Reconstruction, Samples, Scale
from harness.rng import KeyedStream, board_key
from harness.scoring.identification import identification
from harness.scoring.matching import (
    CLASS_MEAN,
    COLOUR,
    MEAN,
    RANDOM,
    assign,
    make_nulls,
    match,
    match_nulls,
)
from harness.scoring.summary import Values, mean_intervals, proportion_interval, summarise

SCALE = Scale(mean=(0.25,), std=(0.5,))


def stream(seed=0):
    return KeyedStream(board_key(seed))


def pictures(n, seed=0):
    """Random images [n, 1, 4, 4] in [0,1]."""
    return torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(seed))


def standard(images):
    return SCALE.standardise(images)


# Matching ------------------------------------------------------------------------------------


def test_named_reconstructions_go_where_they_say():
    truth = pictures(5)
    found = Reconstruction(images=standard(truth[[3, 1]]), targets=torch.tensor([3, 1]))
    matched = match(found, truth, SCALE)
    assert matched.found.tolist() == [False, True, False, True, False]
    torch.testing.assert_close(matched.images[[1, 3]], truth[[1, 3]])
    assert matched.unnamed == 0


def test_rows_are_judged_against_their_primary_image():
    truth, primary = pictures(3), torch.tensor([2, 0, 1, 1, 2, 0])  # two rounds of three
    found = Reconstruction(images=standard(truth[[1, 2]]), rows=torch.tensor([3, 4]))
    matched = match(found, truth, SCALE, sources=primary)
    torch.testing.assert_close(matched.images[1:], truth[1:])
    assert matched.found.tolist() == [False, True, True]


def test_unnamed_reconstructions_find_their_images_through_noise():
    truth = pictures(40)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    noisy = truth[order] + 0.05 * (pictures(40, seed=9) - 0.5)
    matched = match(Reconstruction(images=standard(noisy)), truth, SCALE)
    torch.testing.assert_close(matched.images, noisy[order.argsort()].clamp(0, 1))
    assert matched.unnamed == 40


def test_matching_does_not_depend_on_the_order_of_reconstructions():
    truth, images = pictures(12), pictures(9, seed=1)
    first = match(Reconstruction(images=standard(images)), truth, SCALE)
    second = match(Reconstruction(images=standard(images.flip(0))), truth, SCALE)
    torch.testing.assert_close(first.images, second.images)
    assert first.found.sum() == 9


def test_assignment_is_the_best_of_all_permutations():
    images, truth = pictures(5, seed=1), pictures(5, seed=2)
    cost = ((images[:, None] - truth[None]) ** 2).flatten(2).sum(2)
    best = min(permutations(range(5)), key=lambda p: cost[range(5), p].sum())
    assert assign(images, truth).tolist() == list(best)


def test_reconstructions_are_clamped_before_they_are_matched():
    found = Reconstruction(images=torch.full((1, 1, 4, 4), 50.0), targets=torch.tensor([0]))
    assert match(found, pictures(1), SCALE).images.max() == 1


GOOD = standard(pictures(2))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Reconstruction(images=standard(pictures(4))), "4 reconstructions of 3 private images"),
        (Reconstruction(images=GOOD[..., :3]), r"shape \(2, 1, 4, 3\); wanted \(m, 1, 4, 4\)"),
        (Reconstruction(images=GOOD / 0), "infinite values in 2 of 2 images"),
        (Reconstruction(images=GOOD, targets=torch.tensor([1, 1])), "of private image 1"),
        (Reconstruction(images=GOOD, targets=torch.tensor([0, 3])), "from 0 to 3; .* 0 to 2"),
        (Reconstruction(images=GOOD, targets=torch.tensor([-1, 0])), "from -1 to 0"),
        (Reconstruction(images=GOOD, targets=torch.tensor([0])), "wanted 2 whole numbers"),
        (Reconstruction(images=GOOD, targets=torch.tensor([0.0, 1.0])), "wanted 2 whole numbers"),
        (Reconstruction(images=GOOD, rows=torch.tensor([0, 1])), "no encodings"),
        (
            Reconstruction(images=GOOD, rows=torch.tensor([0, 1]), targets=torch.tensor([0, 1])),
            "both `targets` and `rows`",
        ),
    ],
)
def test_what_cannot_be_judged_fails_the_cell_by_name(found, message):
    with pytest.raises(CellFailed, match=f"attack 'guess' returned .*{message}"):
        match(found, pictures(3), SCALE, attack="guess")


def test_two_rows_of_one_image_are_refused():
    found = Reconstruction(images=GOOD, rows=torch.tensor([0, 3]))
    with pytest.raises(CellFailed, match="more than one reconstruction of private image 2"):
        match(found, pictures(3), SCALE, sources=torch.tensor([2, 0, 1, 2, 0, 1]))


# Nulls ---------------------------------------------------------------------------------------


def test_nulls_by_hand():
    greys = torch.tensor([0.0, 0.2, 0.4, 1.0]).view(4, 1, 1, 1).expand(4, 1, 2, 2)
    public = Samples(greys, torch.tensor([0, 0, 1, 1]))
    truth = Samples(torch.rand(3, 1, 2, 2), torch.tensor([1, 0, 1]))
    nulls = make_nulls(public, truth, ("a", "b"), (0.25,), stream())
    assert nulls.images[MEAN][:, 0, 0, 0].tolist() == pytest.approx([0.4] * 3)
    assert nulls.images[CLASS_MEAN][:, 0, 0, 0].tolist() == pytest.approx([0.7, 0.1, 0.7])
    assert {round(x, 1) for x in nulls.images[RANDOM][:, 0, 0, 0].tolist()} <= {0, 0.2, 0.4, 1}
    assert nulls.images[COLOUR].unique().tolist() == [0.25]
    assert nulls.notes == ()


def test_public_bytes_give_the_same_nulls_as_floats():
    pixels = (pictures(30) * 255).round().to(torch.uint8)
    labels, truth = torch.arange(30) % 3, Samples(pictures(5), torch.arange(5) % 3)
    for name, images in make_nulls(
        Samples(pixels, labels), truth, tuple("abc"), (0.25,), stream()
    ).images.items():
        floats = make_nulls(
            Samples(pixels.float() / 255, labels), truth, tuple("abc"), (0.25,), stream()
        )
        torch.testing.assert_close(images, floats.images[name])


def test_a_class_without_public_images_is_said_to_fall_back():
    public = Samples(pictures(4), torch.tensor([0, 0, 2, 2]))
    truth = Samples(pictures(3), torch.tensor([1, 1, 0]))
    nulls = make_nulls(public, truth, ("shirt", "bag", "coat"), (0.25,), stream())
    torch.testing.assert_close(nulls.images[CLASS_MEAN][:2], nulls.images[MEAN][:2])
    (note,) = nulls.notes
    assert "class 'bag'" in note
    assert "its 2 private images" in note


def test_matched_nulls_are_nearer_and_hold_the_same_images():
    public = Samples(pictures(300, seed=5), torch.arange(300) % 10)
    truth = Samples(pictures(60), torch.arange(60) % 10)
    named = make_nulls(public, truth, tuple("abcdefghij"), (0.25,), stream())
    matched = match_nulls(named, truth.images, guesses=60)
    for name in (CLASS_MEAN, RANDOM):
        before, after = (((n.images[name] - truth.images) ** 2).sum() for n in (named, matched))
        assert after < before
        same = matched.images[name].flatten(1).sum(1).sort().values
        torch.testing.assert_close(same, named.images[name].flatten(1).sum(1).sort().values)


def test_few_guesses_match_few_nulls():
    public, truth = (
        Samples(pictures(300, seed=5), torch.arange(300) % 2),
        Samples(pictures(60), torch.arange(60) % 2),
    )
    named = make_nulls(public, truth, ("a", "b"), (0.25,), stream())
    moved = match_nulls(named, truth.images, guesses=3).images[RANDOM] != named.images[RANDOM]
    assert moved.flatten(1).any(1).sum() <= 3


# Intervals -----------------------------------------------------------------------------------


def test_interval_of_a_mean_agrees_with_the_normal_one():
    values = np.random.default_rng(0).normal(5, 2, size=(400, 1))
    ((low, high),) = mean_intervals(values, stream())
    half = 1.96 * values.std(ddof=1) / 20
    assert low == pytest.approx(values.mean() - half, abs=0.05)
    assert high == pytest.approx(values.mean() + half, abs=0.05)


def test_all_columns_see_the_same_resamples():
    column = np.random.default_rng(0).normal(size=50)
    first, second, shifted = mean_intervals(np.stack([column, column, column + 1], 1), stream())
    assert first == second
    assert shifted == pytest.approx((first[0] + 1, first[1] + 1))


def test_intervals_repeat_by_stream():
    values = np.random.default_rng(0).normal(size=(50, 1))
    assert mean_intervals(values, stream(1)) == mean_intervals(values, stream(1))
    assert mean_intervals(values, stream(1)) != mean_intervals(values, stream(2))


def test_undefined_values_are_left_out_of_an_interval():
    values = np.random.default_rng(0).normal(size=(60, 1))
    holes = values.copy()
    holes[::10] = np.nan
    ((low, high),) = mean_intervals(holes, stream())
    assert low < np.nanmean(holes) < high
    assert mean_intervals(np.full((60, 1), np.nan), stream()) == [None]


def test_one_image_has_no_interval():
    assert mean_intervals(np.ones((1, 2)), stream()) == [None, None]


def test_wilson_interval_by_its_formula():
    hits, n, z = 3, 20, 1.959963985
    p = hits / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert proportion_interval(hits, n) == pytest.approx((centre - half, centre + half))


# Summaries -----------------------------------------------------------------------------------


def test_summary_by_hand_where_higher_leaks():
    values = Values(
        attack=np.array([1.0, 2.0, 6.0]),
        nulls={"low": np.array([0.0, 0.0, 0.0]), "high": np.array([1.0, 1.0, 1.0])},
        leaks_more="higher",
        unit="dB",
    )
    score = summarise({"snr_db": values}, stream())["snr_db"]
    assert (score.mean, score.median, score.worst, score.worst_index) == (3, 2, 6, 2)
    assert score.std == pytest.approx(np.sqrt(7))
    assert (score.null, score.null_name, score.gain) == (1, "high", 2)
    assert score.nulls == {"low": 0, "high": 1}
    assert score.gain_ci == pytest.approx((score.ci[0] - 1, score.ci[1] - 1))
    assert (score.n, score.undefined, score.unit) == (3, 0, "dB")


def test_summary_turns_around_where_lower_leaks():
    values = Values(
        attack=np.array([0.1, 0.5]),
        nulls={"far": np.array([0.9, 0.9]), "near": np.array([0.4, 0.6])},
        leaks_more="lower",
    )
    score = summarise({"lpips": values}, stream())["lpips"]
    assert (score.worst, score.worst_index, score.null_name) == (0.1, 0, "near")
    assert score.gain == pytest.approx(0.2)
    assert score.gain_ci == pytest.approx((0.1, 0.3))


def test_undefined_targets_are_counted_and_leave_the_nulls_too():
    values = Values(
        attack=np.array([1.0, np.nan, 3.0]),
        nulls={"n": np.array([0.0, 100.0, 0.0])},
        leaks_more="higher",
    )
    score = summarise({"m": values}, stream())["m"]
    assert (score.mean, score.null, score.n, score.undefined) == (2, 0, 2, 1)


def test_a_metric_undefined_everywhere_is_unavailable():
    nothing = np.full(3, np.nan)
    values = Values(attack=nothing, nulls={"n": nothing}, leaks_more="higher")
    score = summarise({"m": values}, stream())["m"]
    assert (score.unavailable, score.mean) == ("undefined for every target", None)


def test_proportions_get_a_wilson_interval():
    hits = np.array([1.0] * 3 + [0.0] * 17)
    values = Values(hits, {"n": hits * 0}, leaks_more="higher", unit="proportion")
    assert summarise({"re": values}, stream())["re"].ci == proportion_interval(3, 20)


# Identification ------------------------------------------------------------------------------


def test_identification_by_hand():
    scores = torch.tensor([[9.0, 1, 2, 3], [1, 2, 3, 4], [5, 5, 0, 0]])
    found = identification(scores, torch.tensor([0, 1, 0]), stream())
    assert found.top1 == pytest.approx(1 / 3)  # the tie in the last row counts as wrong
    assert found.top5 == 1
    assert found.auc == pytest.approx((1 + 1 / 3 + 2.5 / 3) / 3)
    assert (found.top1_chance, found.auc_chance, found.candidates) == (0.25, 0.5, 4)
    assert found.top1_ci == proportion_interval(1, 3)


def test_random_scores_identify_at_chance():
    scores = torch.rand(2000, 20, generator=torch.Generator().manual_seed(1))
    found = identification(scores, torch.arange(2000) % 20, stream())
    assert found.auc_ci[0] < 0.5 < found.auc_ci[1]
    assert found.top1_ci[0] < 0.05 < found.top1_ci[1]
    assert found.top5 == pytest.approx(0.25, abs=0.03)


def test_constant_scores_identify_nobody():
    found = identification(torch.zeros(10, 20), torch.arange(10), stream())
    assert (found.top1, found.top5, found.auc) == (0, 0, 0.5)


def test_candidate_scores_of_the_wrong_shape_fail_by_name():
    with pytest.raises(CellFailed, match=r"attack 'sphere' returned .* \(2, 4\); wanted \(3, m\)"):
        identification(torch.zeros(2, 4), torch.arange(3), stream(), attack="sphere")
