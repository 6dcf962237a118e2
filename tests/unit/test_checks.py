"""Each flag on a judgement, and the judgement that does not raise it."""

import torch

from harness.scoring.findings import Finding
from harness.scoring.flags import judgement_flags, missed_forecast
from harness.scoring.judgement import Judgement
from harness.scoring.summary import MetricScore


def score(gain, low, high, **more):
    usual = {"unit": "dB", "null_name": "class_mean", "gain": gain, "gain_ci": (low, high), "n": 9}
    return MetricScore(**{**usual, **more})


def judgement(images=None, notes=(), **privacy):
    images = torch.rand(4, 1, 2, 2) if images is None else images
    found = torch.ones(len(images), dtype=torch.bool)
    return Judgement(privacy, {}, images, found, notes)


def names(judged):
    return [flag.name for flag in judgement_flags(judged)]


def test_a_sound_judgement_raises_no_flag():
    assert names(judgement(snr_db=score(3, 2, 4))) == []
    assert names(judgement(snr_db=score(0, -1, 1))) == []


def test_below_null_says_by_how_much():
    (flag,) = judgement_flags(judgement(snr_db=score(-8.1, -8.3, -7.9)))
    assert flag.name == "below_null"
    assert "7.90 to 8.30 dB below the null 'class_mean'" in flag.message


def test_who_finds_all_but_signs_is_not_below_the_null():
    behind = score(-8.1, -8.3, -7.9)
    assert names(judgement(snr_db=behind, snr_db_abs=score(20, 19, 21))) == []
    assert names(judgement(snr_db=behind, snr_db_abs=behind)) == ["below_null"]


def test_constant_output_is_flagged_unless_it_varies():
    same = torch.full((3, 1, 2, 2), 0.4)
    assert names(judgement(images=same)) == ["constant_output"]
    varied = same.clone()
    varied[2, 0, 0, 0] += 0.01
    assert names(judgement(images=varied)) == []


def test_targets_that_were_not_found_do_not_make_an_output_constant():
    judged = judgement(images=torch.full((3, 1, 2, 2), 0.4))
    judged.found[1:] = False
    assert names(judged) == []


def test_undefined_targets_are_counted_by_metric():
    (flag,) = judgement_flags(judgement(snr_db=score(3, 2, 4, undefined=2), ssim=score(1, 0, 2)))
    assert flag.name == "undefined_targets"
    assert flag.message.endswith("snr_db 2")


def test_a_null_that_falls_back_is_flagged():
    note = "no public image of class 'bag': class_mean falls back on mean_image"
    (flag,) = judgement_flags(judgement(notes=(note, "1 of 4 targets have no reconstruction")))
    assert (flag.name, flag.message) == ("null_fallback", note)


def foretold(error, had, ci):
    found = {"squared_error": Finding(value=had, ci=ci, n=9)}
    return [flag.message for flag in missed_forecast({"predicted_error": error}, found)]


def test_an_attack_that_errs_by_more_than_it_foretold_is_flagged():
    (message,) = foretold(0.1, 0.2, (0.18, 0.22))
    assert "foretold a squared error of 0.1 a value and had 0.2, 3.0 dB more" in message
    (message,) = foretold(0.2, 0.1, (0.08, 0.12))
    assert "3.0 dB less" in message


def test_a_forecast_within_a_decibel_or_within_chance_is_not():
    assert not foretold(0.1, 0.12, (0.119, 0.121))
    assert not foretold(0.1, 0.2, (0.09, 0.31))
    assert not missed_forecast({}, {"squared_error": Finding(value=1.0, ci=(1.0, 1.0))})


def test_errors_that_nobody_sees_are_alike():
    assert not foretold(1e-14, 1e-9, (0.9e-9, 1.1e-9))
