"""A cell that is attacked and judged at the resolution that a defense enlarges images to."""

import pytest
import torch
from torch.nn.functional import interpolate

from harness import evaluate
from harness.cli.report import print_report
from harness.drawing.gallery import read_stored
from harness.running.judge import SCORE
from harness.running.load import LoadStage
from harness.running.rejudge import rescore
from harness.running.run import Observer
from harness.scoring.matching import MEAN as MEAN_IMAGE
from harness.store import Store
from harness.store.answers import Answer
from harness.store.record import Records
from harness.submissions.siblings import disagreements

SIDE = 42
CELL = {
    "defense": f"singmix[tau=1,resolution={SIDE}]",
    "attack": "lmmse",
    "dataset": "fashion-mini",
    "private_size": 24,
    "public_size": 80,
    "test_size": 40,
    "metrics": "snr_db",
    "only": "privacy",
    "threads": 1,
}
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def record(root):
    return evaluate(cache=root, **CELL, space="pixels-imagenet", judge_at="release")


def stored(root, record, stage):
    return Store(root).read(stage, record.artifacts[stage].key)


def enlarged(samples):
    """In [0,1], three channels, as large as encodings: by the letter of the defense."""
    size = (SIDE, SIDE)
    images = interpolate(samples.unit().images, size, mode="bilinear", antialias=True)
    return images.expand(-1, 3, -1, -1)


def snr(images, truth):
    """Decibels by hand, of images in [0,1], in ImageNet's normalisation."""
    signal = ((truth - MEAN) / STD).flatten(1).square().sum(1)
    return 10 * (signal / ((images - truth) / STD).flatten(1).square().sum(1)).log10()


def test_the_attack_answers_at_the_encodings_resolution(root, record):
    assert record.status == "ok"
    assert record.request.judge_at == "release"
    assert stored(root, record, "attack").tensors["images"].shape == (24, 3, SIDE, SIDE)


def test_scores_and_guesses_are_those_by_hand(root, record):
    splits = LoadStage.read(stored(root, record, "load"))
    truth, public = enlarged(splits.private), enlarged(splits.public)
    answers = stored(root, record, "attack").tensors["images"]
    shown = (answers * STD + MEAN).clamp(0, 1)
    judged = stored(root, record, "judge").tensors
    by_hand = snr(shown, truth)
    torch.testing.assert_close(judged[f"{SCORE}snr_db"].float(), by_hand, atol=1e-2, rtol=0)
    guess = snr(public.mean(0).expand_as(truth), truth).mean().item()
    assert record.privacy["snr_db"].nulls[MEAN_IMAGE] == pytest.approx(guess, abs=1e-2)


def test_the_release_is_the_one_that_is_judged_at_the_images_resolution(root, record):
    own = evaluate(cache=root, **CELL, space="pixels-imagenet")
    assert own.artifacts["release"] == record.artifacts["release"]
    assert stored(root, own, "attack").tensors["images"].shape == (24, 3, 28, 28)
    assert own.privacy["snr_db"].mean != record.privacy["snr_db"].mean


def test_guesses_of_other_resolutions_need_not_agree(root, record):
    own = evaluate(cache=root, **CELL, space="pixels-imagenet")
    assert own.privacy["snr_db"].nulls != record.privacy["snr_db"].nulls
    assert not list(disagreements([own, record]))


def test_what_a_board_keeps_is_judged_there_again(root, record, tmp_path):
    judged = stored(root, record, "judge").tensors
    kept = Answer.of(judged["images"].numpy(), judged["found"].numpy())
    again = rescore(record, kept, Store(tmp_path), Observer())
    guesses = record.by_image["snr_db"].nulls[MEAN_IMAGE]
    assert again.nulls["snr_db"][MEAN_IMAGE] == pytest.approx(guesses, rel=1e-4)
    by_image = judged[f"{SCORE}snr_db"].tolist()
    assert again.scores["snr_db"] == pytest.approx(by_image, abs=0.1)


def test_pictures_show_what_was_judged(root, record):
    shown = read_stored(root, record)
    splits = LoadStage.read(stored(root, record, "load"))
    torch.testing.assert_close(shown.original, enlarged(splits.private))
    assert shown.recovered.shape == shown.guess.shape == shown.original.shape
    assert Records(root).gallery(record.id).stat().st_size > 0


def test_the_report_says_it(root, record, capsys):
    print_report(record, Records(root))
    text = " ".join(capsys.readouterr().out.split())
    assert "24 targets at the release's resolution)" in text


def test_it_changes_nothing_where_images_are_not_enlarged(root):
    plain = {**CELL, "defense": "mixup"}
    own, released = (
        evaluate(cache=root, **plain, judge_at=where) for where in ("image", "release")
    )
    assert released.privacy["snr_db"] == own.privacy["snr_db"]


def test_features_are_not_judged_at_another_resolution(root):
    record = evaluate(
        cache=root, **{**CELL, "attack": "linear"}, release="features", judge_at="release"
    )
    assert record.status == "not_applicable"
    assert "leave --judge-at at image" in record.error
