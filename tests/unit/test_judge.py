"""The judge on real images: what is scored, against what, and what is filled in."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.api import (
    AssetFolder,
    CellFailed,
    Metric,
    MetricSpec,
    PluginError,
    Reconstruction,
    Samples,
    Scale,
    Scene,
    Splits,
)
from harness.rng import KeyedStream, board_key
from harness.scoring.codebook import centroids
from harness.scoring.judgement import Judge, fold
from harness_plugins.datasets import fashion_mini
from harness_plugins.metrics import pixelwise, reidentification, ssim
from harness_plugins.metrics.pixelwise.scores import Mse, SnrDb
from harness_plugins.metrics.reidentification import Reidentification
from harness_plugins.metrics.ssim import Ssim

N = 60
CPU = torch.device("cpu")
STREAM = KeyedStream(board_key(0))


@pytest.fixture(scope="module")
def splits():
    with np.load(Path(fashion_mini.__file__).parent / "images" / "fashion-mini.npz") as file:
        images = torch.from_numpy(file["train_images"])
        labels = torch.from_numpy(file["train_labels"]).long()
    unit = images.float() / 255
    scale = Scale((unit.mean().item(),), (unit.std().item(),))
    every = Samples(images, labels)
    classes = tuple(f"class {i}" for i in range(10))
    return Splits(every[:N], every[1000:3000], every[3000:3100], scale, classes)


@pytest.fixture(scope="module")
def metrics(splits):
    decoys = splits.public[:N].unit().images
    labels = splits.private.labels
    scene = Scene(splits.scale, CPU, AssetFolder({}), decoys, splits.public, labels, 10)
    specs = {
        spec.name: spec
        for plugin in (pixelwise, ssim, reidentification)
        for spec in plugin.harness_metrics()
    }
    made = {"snr_db": SnrDb, "mse": Mse, "ssim": Ssim, "reidentification": Reidentification}
    return {name: (specs[name], cls(scene)) for name, cls in made.items()}


def truth(splits):
    return splits.private.standardised(splits.scale).images


def noisy(splits, level=0.3):
    noise = torch.randn(truth(splits).shape, generator=torch.Generator().manual_seed(2))
    return truth(splits) + level * noise


def judge(splits, metrics, targets=N, signs_hidden=False):
    return Judge(splits, targets, metrics, STREAM, CPU, signs_hidden)


def judged(reconstruction, splits, metrics, targets=N, signs_hidden=False, **more):
    return judge(splits, metrics, targets, signs_hidden).judge(reconstruction, **more)


def named(images):
    return Reconstruction(images=images, targets=torch.arange(len(images)))


def test_the_truth_itself_leaks_everything(splits, metrics):
    privacy = judged(named(truth(splits)), splits, metrics).privacy
    assert privacy["snr_db"].mean > 100
    assert privacy["ssim"].mean == pytest.approx(1, abs=1e-5)
    assert privacy["reidentification"].mean == 1
    assert privacy["reidentification"].chance == 1 / (2 * N)
    assert privacy["mse"].gain > 0, "a gain is positive whichever way the metric runs"


def test_a_null_gains_nothing_over_itself(splits, metrics):
    public = splits.public.standardised(splits.scale)
    means = torch.stack([public.images[public.labels == c].mean(0) for c in range(10)])
    score = judged(named(means[splits.private.labels]), splits, metrics).privacy["snr_db"]
    assert score.null == pytest.approx(score.nulls["class_mean"], abs=1e-4)
    assert score.gain == pytest.approx(0, abs=1e-4)
    assert score.nulls["class_mean"] > score.nulls["mean_image"] > score.nulls["random_public"]


def test_zeros_on_standardised_images_score_0_db(splits, metrics):
    score = judged(named(torch.zeros_like(truth(splits))), splits, metrics).privacy["snr_db"]
    assert score.mean == pytest.approx(0, abs=1e-4)
    assert score.gain_ci[1] < 0


def test_the_judge_clamps(splits, metrics):
    beyond = splits.scale.standardise(splits.private.unit().images.gt(0.5) * 9.0 - 4)
    judgement = judged(named(beyond), splits, metrics)
    assert set(judgement.images.unique().tolist()) == {0.0, 1.0}


def test_only_the_first_targets_are_judged(splits, metrics):
    judgement = judged(named(noisy(splits)), splits, metrics, targets=20)
    everyone = judged(named(noisy(splits)), splits, metrics)
    assert judgement.privacy["snr_db"].n == 20
    assert len(judgement.images) == len(judgement.found) == 20
    torch.testing.assert_close(
        judgement.per_image["snr_db"], everyone.per_image["snr_db"][:20], rtol=0, atol=1e-9
    )


def test_unnamed_reconstructions_are_matched_and_so_are_their_nulls(splits, metrics):
    order = torch.randperm(N, generator=torch.Generator().manual_seed(4))
    shuffled = judged(Reconstruction(images=noisy(splits)[order]), splits, metrics)
    told = judged(named(noisy(splits)), splits, metrics)
    torch.testing.assert_close(shuffled.per_image["snr_db"], told.per_image["snr_db"])
    for null in ("random_public", "class_mean"):
        assert shuffled.privacy["mse"].nulls[null] < told.privacy["mse"].nulls[null]


def test_random_public_images_gain_nothing_by_being_matched(splits, metrics):
    other = splits.public[1000 : 1000 + N].standardised(splits.scale).images
    score = judged(Reconstruction(images=other), splits, metrics).privacy["snr_db"]
    assert abs(score.mean - score.nulls["random_public"]) < 1
    assert score.gain_ci[1] < 0


def test_centroids_gain_nothing_over_the_judges_own(splits, metrics):
    """A quarter of the public pool is enough for what the old nulls took for a leak."""
    public, labels = splits.public[:500].unit(), splits.private.labels
    counts = labels.bincount()
    guesses = [
        centroids(public.images[public.labels == c], int(n), STREAM.stream(c=c))
        for c, n in enumerate(counts.tolist())
    ]
    images = splits.scale.standardise(torch.cat(guesses))
    score = judged(Reconstruction(images=images), splits, metrics).privacy["snr_db"]
    assert score.mean > score.nulls["class_mean"] + 0.5  # by matching alone
    assert score.null_name in ("codebook", "answers_to_others")
    assert score.gain_ci[0] < 0


def test_an_answer_is_worth_nothing_where_others_of_its_class_are_true(splits, metrics):
    for found in (named(noisy(splits)), Reconstruction(images=noisy(splits).flip(0))):
        judgement = judged(found, splits, metrics)
        score = judgement.privacy["snr_db"]
        assert judgement.misplaced["snr_db"].shape == (4, N)  # drawn four times
        assert score.nulls["answers_to_others"] < score.nulls["class_mean"] < score.mean
        lucky = judgement.privacy["reidentification"].nulls["answers_to_others"]
        assert lucky < (0.5 if judgement.unnamed else 0.1)  # matching picks who is nearest


def test_what_is_left_out_is_no_worse_among_others(splits, metrics):
    some = Reconstruction(images=noisy(splits)[:20])
    judgement = judged(some, splits, metrics)
    guess, misplaced = judgement.guesses["snr_db"], judgement.misplaced["snr_db"]
    worth = misplaced + judgement.easier["snr_db"]
    assert (((worth - guess).abs() < 1e-9).sum(1) == N - 20).all()


def test_rows_find_their_primary_image(splits, metrics):
    sources = torch.arange(N).flip(0)
    found = Reconstruction(images=noisy(splits).flip(0), rows=torch.arange(N))
    by_rows = judged(found, splits, metrics, sources=sources)
    told = judged(named(noisy(splits)), splits, metrics)
    torch.testing.assert_close(by_rows.per_image["snr_db"], told.per_image["snr_db"])


def test_a_target_left_out_scores_its_best_null(splits, metrics):
    found = Reconstruction(images=noisy(splits)[:45], targets=torch.arange(45))
    judgement = judged(found, splits, metrics)
    nulls = judge(splits, metrics).score_nulls()
    for name in metrics:
        best = nulls.per_image[name][judgement.privacy[name].null_name]
        torch.testing.assert_close(judgement.per_image[name][45:], best[45:])
    assert judgement.found.sum() == 45
    assert "15 of 60 targets have no reconstruction" in judgement.notes[0]
    torch.testing.assert_close(judgement.images[45], judgement.images[59])


def test_nulls_scored_once_serve_every_attack(splits, metrics):
    nulls = judge(splits, metrics).score_nulls()
    fresh = judged(named(noisy(splits)), splits, metrics)
    assert judged(named(noisy(splits)), splits, metrics, nulls=nulls).privacy == fresh.privacy
    unnamed = Reconstruction(images=noisy(splits))
    again = judged(unnamed, splits, metrics, nulls=nulls)
    assert again.privacy == judged(unnamed, splits, metrics).privacy


def test_unavailable_metrics_say_why(splits, metrics):
    spec = metrics["ssim"][0]
    tiny = Samples(splits.private.images[..., :8, :8], splits.private.labels)
    public, test = (part.map(lambda x: x[..., :8, :8]) for part in (splits.public, splits.test))
    small = replace(splits, private=tiny, public=public, test=test)
    wanted = {"ssim": metrics["ssim"], "lpips_vgg": (spec, "no trunk on this machine")}
    privacy = judged(named(tiny.standardised(splits.scale).images), small, wanted).privacy
    assert "smaller than SSIM's window" in privacy["ssim"].unavailable
    assert privacy["lpips_vgg"].unavailable == "no trunk on this machine"


def test_hidden_signs_are_judged_on_absolute_values_too(splits, metrics):
    signs = STREAM.stream(use="signs").signs(*truth(splits).shape)
    flipped = splits.scale.clamp(truth(splits)) * signs
    privacy = judged(named(flipped), splits, metrics, signs_hidden=True).privacy
    assert set(privacy) == {*metrics, *(f"{name}_abs" for name in metrics)}
    # clamping to the valid range spoils the flips that leave it, no more
    assert privacy["snr_db_abs"].mean > privacy["snr_db"].mean + 3


def test_images_known_up_to_signs_are_matched_by_absolute_values(splits, metrics):
    """The same signs are wrong in all images, as where correlations alone tell them."""
    signs = STREAM.stream(use="signs").signs(*truth(splits).shape[1:])
    folded = splits.scale.restore(truth(splits).abs() * signs).clamp(0, 1)
    shown = splits.scale.standardise(folded)
    told, unnamed = (
        judged(found, splits, metrics, signs_hidden=True)
        for found in (named(shown), Reconstruction(images=shown.flip(0)))
    )
    for name in ("snr_db_abs", "ssim_abs"):
        torch.testing.assert_close(unnamed.per_image[name], told.per_image[name])
    assert unnamed.per_image["snr_db"].mean() < unnamed.per_image["snr_db_abs"].mean() - 5
    torch.testing.assert_close(unnamed.images_abs, told.images)
    assert not torch.equal(unnamed.images, told.images)
    assert told.images_abs is None
    hidden = judge(splits, metrics, signs_hidden=True)
    again = hidden.score_images(unnamed.images, unnamed.images_abs)
    torch.testing.assert_close(dict(unnamed.per_image), again)


def test_absolute_values_are_guessed_from_public_absolute_values(splits, metrics):
    absolute = splits.public.standardised(splits.scale).images.abs().mean(0)
    guess = named(absolute.expand_as(truth(splits)))
    score = judged(guess, splits, metrics, signs_hidden=True).privacy["snr_db_abs"]
    assert score.nulls["mean_image"] == pytest.approx(score.mean, abs=1e-4)
    assert score.gain <= 1e-4


@pytest.mark.parametrize("mean", [0.3, 0.5, 0.8])
def test_folding_keeps_absolute_values_and_stays_in_range(mean):
    scale, images = Scale((mean,), (0.2,)), torch.rand(4, 1, 8, 8)
    folded = fold(images, scale)
    assert 0 <= folded.min() <= folded.max() <= 1
    torch.testing.assert_close(scale.standardise(folded).abs(), scale.standardise(images).abs())
    assert len(scale.standardise(folded).sign().unique()) == 1


def test_claims_without_images_have_no_image_scores(splits, metrics):
    found = Reconstruction(claims={"candidate_scores": torch.zeros(N, 3)})
    judgement = judged(found, splits, metrics)
    assert {score.unavailable for score in judgement.privacy.values()} == {
        "the attack makes claims and returns no images"
    }
    assert not judgement.found.any()
    assert judgement.images.shape == (N, 1, 28, 28)
    with pytest.raises(CellFailed, match="'lazy' returned neither images nor claims"):
        judged(Reconstruction(), splits, metrics, attack="lazy")


def test_undefined_targets_are_counted(splits, metrics):
    grey = splits.scale.mean[0]
    unit = splits.private.unit()
    images = unit.images.clone()
    images[7] = grey
    odd = replace(splits, private=Samples(images, unit.labels))
    score = judged(named(noisy(splits)), odd, metrics).privacy["snr_db"]
    assert (score.n, score.undefined) == (N - 1, 1)


def test_a_metric_that_breaks_its_contract_is_named(splits):
    class Broken(Metric):
        def score(self, images, truth):
            return torch.zeros(3)

    spec = MetricSpec(
        name="broken",
        version="1",
        summary="",
        reference="",
        factory="",
        leaks_more="higher",
        range=(0, 1),
    )
    labels, decoys = splits.private.labels, torch.empty(0)
    scene = Scene(splits.scale, CPU, AssetFolder({}), decoys, splits.public, labels, 10)
    with pytest.raises(PluginError, match=r"'broken' returned .* \(3,\); wanted 60"):
        judged(named(truth(splits)), splits, {"broken": (spec, Broken(scene))})


def test_a_judgement_repeats(splits, metrics):
    first, second = (judged(named(noisy(splits)), splits, metrics) for _ in range(2))
    assert first.privacy == second.privacy
