"""Each wording of the verdict."""

import pytest

from harness.scoring.findings import Finding
from harness.scoring.identification import Identification
from harness.scoring.summary import MetricScore
from harness.scoring.verdict import FoundOut, main_metric, verdict

pytestmark = pytest.mark.core


def score(gain, low, high, **more):
    usual = {
        "unit": "dB",
        "mean": 1.5 + gain,
        "worst": 12.34,
        "worst_index": 17,
        "null": 1.5,
        "null_name": "class_mean",
        "gain": gain,
        "gain_ci": (low, high),
        "n": 100,
    }
    return MetricScore(**{**usual, **more})


def test_a_gain_says_what_leaks_and_how_much():
    text = verdict({"snr_db": score(3.21, 2.9, 3.5)})
    assert text == (
        "The release leaks: reconstructions are 3.21 dB closer to the targets than the best null "
        "(class mean, 1.50 dB), 95% interval +2.90 dB to +3.50 dB; the image that leaks most "
        "(target 17) scores 12.34 dB."
    )


def test_a_gain_that_guessing_may_reach_is_not_called_a_leak():
    text = verdict({"snr_db": score(0.03, 0.01, 0.05)})
    assert text.startswith("No more than guesswork: 0.03 dB over the best null")
    assert verdict({"snr_db": score(0.2, 0.01, 0.4)}).startswith("The release leaks")


def identified(**changes):
    usual = {
        "top1": 0.97, "top1_ci": (0.9, 0.99), "top1_chance": 0.02, "top5": 1, "top5_ci": None,
        "top5_chance": 0.1, "auc": 1, "auc_ci": (1, 1), "n": 60, "candidates": 50,
    }  # fmt: skip
    return Identification(**usual | changes)


def weights(value, low, high):
    return Finding(value=value, ci=(low, high), chance=0.06, leaks_more="lower", n=9)


NO_IMAGES = {"snr_db": MetricScore(unavailable="no images")}
CHANCE = identified(top1=0.03, top1_ci=(0.01, 0.1), auc=0.5, auc_ci=(0.4, 0.6))


def test_claims_about_candidates_are_judged_where_there_are_no_images():
    text = verdict(NO_IMAGES, {"sphere": FoundOut(identified(), {})})
    assert text.startswith(
        "The attack 'sphere' identifies: of 60 images it ranks its image first in 97.0% among 50"
    )
    assert verdict(NO_IMAGES, {"sphere": FoundOut(CHANCE, {})}).startswith(
        "No identification shown"
    )


def test_asked_of_encodings_any_image_that_is_in_one_counts():
    told = FoundOut(identified(asked="encodings", true=2, recall=0.9), {})
    assert "of 60 encodings it ranks one of its 2 images first" in verdict(NO_IMAGES, {"a": told})


def test_what_else_was_found_is_told_where_it_beats_a_guess():
    told = FoundOut(None, {"weight_error": weights(1.4e-5, 1e-5, 2e-5)})
    text = verdict(NO_IMAGES, {"normchannel": told})
    assert text == (
        "The attack 'normchannel' finds weight error 1.4e-05, where a guess without the release "
        "reaches 0.06."
    )
    guess = FoundOut(None, {"weight_error": weights(0.06, 0.05, 0.07)})
    assert verdict(NO_IMAGES, {"a": guess}).startswith("No gain shown over guessing")


def test_of_many_that_identify_the_best_speaks_for_all():
    told = {"weak": FoundOut(identified(top1=0.5), {}), "sphere": FoundOut(identified(), {})}
    text = verdict(NO_IMAGES, told)
    assert text.startswith("The attack 'sphere' identifies")
    assert text.endswith("; so do 'weak'.")


def test_an_identification_comes_before_images_that_show_nothing():
    told = {"sphere": FoundOut(identified(), {}), "blind": FoundOut(CHANCE, {})}
    nothing = verdict({"snr_db": score(0.04, -0.1, 0.2)}, told)
    assert nothing.startswith("The attack 'sphere' identifies")
    assert "No gain shown" in nothing
    assert "blind" not in nothing
    shown = verdict({"snr_db": score(3.2, 2.9, 3.5)}, told)
    assert shown.startswith("The release leaks")
    assert "'sphere' identifies" in shown


def test_no_gain_is_no_proof():
    text = verdict({"snr_db": score(0.04, -0.1, 0.2)})
    assert text == (
        "No gain shown over the best null (class mean, 1.50 dB): +0.04 dB, 95% interval -0.10 dB "
        "to +0.20 dB; a stronger attack may do better, and the image that leaks most (target 17) "
        "scores 12.34 dB."
    )


def test_worse_than_guessing_says_nothing_about_the_defense():
    text = verdict({"snr_db": score(-8.1, -8.3, -7.9)})
    assert text == (
        "This attack does worse than guessing, 8.10 dB behind the best null (class mean, 1.50 dB), "
        "95% interval -8.30 dB to -7.90 dB, so it says nothing about the defense."
    )


def test_one_target_has_no_interval():
    text = verdict({"snr_db": score(30, 0, 0, gain_ci=None, n=1)})
    assert text.startswith("Too few targets (1) for an interval: the gain of +30.00 dB")
    loss = verdict({"snr_db": score(-0.29, 0, 0, gain_ci=None, n=1)})
    assert "the gain of -0.29 dB" in loss


def test_where_signs_stay_hidden_absolute_values_are_told_of():
    behind, ahead = score(-2.0, -2.2, -1.8), score(22.0, 21.0, 23.0)
    text = verdict({"snr_db": behind, "snr_db_abs": ahead})
    assert text.startswith(
        "The release leaks absolute values: those of reconstructions are 22.00 dB closer to the "
        "targets' than the best null (class mean, 1.50 dB), 95% interval"
    )
    assert verdict({"snr_db": ahead, "snr_db_abs": ahead}).startswith("The release leaks: ")
    for nothing in (behind, MetricScore(unavailable="no images")):
        text = verdict({"snr_db": behind, "snr_db_abs": nothing})
        assert text.startswith("This attack does worse than guessing")


def test_nothing_scored():
    text = verdict({"lpips_vgg": MetricScore(unavailable="no trunk")})
    assert text == "Nothing was scored (no trunk), so nothing is known."
    assert verdict({}) == "Nothing was scored (no metrics), so nothing is known."


def test_another_metric_serves_where_snr_is_missing():
    privacy = {
        "snr_db": MetricScore(unavailable="undefined for every target"),
        "ssim": score(0.25, 0.2, 0.3, unit=""),
    }
    assert main_metric(privacy) == "ssim"
    assert "0.250 (ssim) closer" in verdict(privacy)


@pytest.mark.parametrize("bounds", [(2, 3), (-1, 1), (-3, -2), None])
@pytest.mark.parametrize("unit", ["dB", ""])
def test_no_wording_calls_a_defense_safe(bounds, unit):
    low, high = bounds or (0, 0)
    text = verdict({"snr_db": score((low + high) / 2, low, high, gain_ci=bounds, unit=unit)})
    assert not {"safe", "secure", "private.", "protected"} & set(text.lower().split())


def test_a_score_survives_json():
    score = MetricScore(mean=1.0, ci=(0.5, 1.5), nulls={"mean_image": 0.1}, n=4)
    assert MetricScore.model_validate_json(score.model_dump_json()) == score


def clustering(**values):
    chances = {"pair_auc_within": 0.5, "cluster_purity": 0.1, "memberships_found": 0.1}
    found = {
        name: Finding(value=value, ci=(value - 0.01, value + 0.01), chance=chances[name], n=9)
        for name, value in values.items()
    }
    return {"carlini": FoundOut(None, found)}


def test_where_an_attack_that_clusters_fails_is_named():
    told = clustering(pair_auc_within=0.7, cluster_purity=0.105, memberships_found=0.3)
    assert verdict({}, told) == (
        "The attack 'carlini' fails first at cluster purity: 0.105, where a guess without the "
        "release reaches 0.1."
    )


def test_a_step_that_is_hardly_better_than_a_guess_fails_too():
    for purity, told in ((0.18, "fails first at cluster purity: 0.18"), (0.2, "finds pair auc")):
        found = clustering(pair_auc_within=0.7, cluster_purity=purity, memberships_found=0.3)
        assert told in verdict({}, found)


def test_an_attack_that_clusters_well_is_told_in_one_sentence():
    told = clustering(pair_auc_within=0.99, cluster_purity=0.9, memberships_found=0.9)
    assert verdict({}, told) == (
        "The attack 'carlini' finds pair auc within 0.99, where a guess without the release "
        "reaches 0.5; cluster purity 0.9 (0.1); memberships found 0.9 (0.1)."
    )


def test_a_step_at_which_a_guess_is_always_right_does_not_fail():
    sure = Finding(value=1.0, ci=(1.0, 1.0), chance=1.0, n=9)
    told = FoundOut(None, {"cluster_purity": sure})
    assert verdict({}, {"carlini": told}).startswith("No gain shown over guessing")
