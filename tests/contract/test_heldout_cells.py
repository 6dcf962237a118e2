"""A cell judged on images that the victim was not trained on, and the same on private ones."""

import pytest
import torch

from harness import evaluate
from harness.api import UsageError
from harness.cli.report import print_report
from harness.drawing.gallery import read_stored
from harness.running.judge import SCORE
from harness.running.load import LoadStage
from harness.store import Store
from harness.store.record import Records
from harness_plugins.metrics.recognition import reader

CELL = {
    "defense": "none",
    "attack": "linear",
    "dataset": "fashion-mini",
    "victim": "mlp",
    "release": "features",
    "private_size": 24,
    "public_size": 80,
    "test_size": 40,
    "metrics": "snr_db,reidentification",
    "threads": 1,
}
N = 15


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def record(root):
    return evaluate(cache=root, **CELL, targets_from="heldout", targets=N)


def stored(root, record, stage):
    return Store(root).read(stage, record.artifacts[stage].key)


def test_the_record_says_which_images_were_judged(record):
    assert record.status == "ok"
    assert (record.request.targets_from, record.release_kind) == ("heldout", "features")
    assert record.splits == {"private": 24, "public": 80, "test": 40, "targets": N}
    assert record.privacy["snr_db"].n == N


def test_scores_are_those_by_hand_against_the_first_test_images(root, record):
    splits = LoadStage.read(stored(root, record, "load"))
    images = stored(root, record, "attack").tensors["images"]
    assert len(images) == N
    truth = splits.test[:N].standardised(splits.scale).images
    error = (splits.scale.clamp(images) - truth).flatten(1).square().sum(1)
    by_hand = 10 * (truth.flatten(1).square().sum(1) / error).log10()
    judged = stored(root, record, "judge").tensors
    torch.testing.assert_close(judged[f"{SCORE}snr_db"].float(), by_hand, atol=1e-3, rtol=0)
    assert record.privacy["snr_db"].mean == pytest.approx(by_hand.mean().item(), abs=1e-3)
    torch.testing.assert_close(judged["errors"], error / truth[0].numel(), atol=1e-5, rtol=1e-5)
    assert record.findings["squared_error"].n == N


def test_decoys_are_other_test_images(record):
    assert record.privacy["reidentification"].chance == 1 / (N + N)


def test_the_gallery_shows_the_test_images(root, record):
    splits = LoadStage.read(stored(root, record, "load"))
    shown = read_stored(root, record)
    assert torch.equal(shown.original, splits.test[:N].unit().images)
    assert shown.guess.shape == shown.original.shape
    assert Records(root).gallery(record.id).stat().st_size > 0


def test_the_report_says_it(root, record, capsys):
    print_report(record, Records(root))
    assert f"{N} held-out targets)" in capsys.readouterr().out


def test_the_victim_is_the_same_as_that_of_private_targets(root, record):
    private = evaluate(cache=root, **CELL)
    assert private.utility == record.utility
    assert private.splits["targets"] == 24
    assert private.privacy["snr_db"].mean != record.privacy["snr_db"].mean


def test_a_worst_case_is_taken_over_the_same_images(root, record):
    options = {**CELL, "attack": "suite", "targets_from": "heldout", "targets": N}
    options["only"] = "privacy"
    suite = evaluate(cache=root, **options)
    assert suite.status == "ok"
    assert suite.members["linear"].privacy["snr_db"].mean == record.privacy["snr_db"].mean
    assert suite.privacy["snr_db"].mean >= record.privacy["snr_db"].mean


def test_a_reader_gets_to_know_the_classes_of_the_targets(root, monkeypatch):
    monkeypatch.setattr(reader, "STEPS", 60)  # a fifth of what a cell takes
    options = {**CELL, "public_size": 500, "metrics": "recognition", "only": "privacy"}
    record = evaluate(cache=root, **options, targets_from="heldout", targets=N)
    labels = LoadStage.read(stored(root, record, "load")).test.labels[:N]
    score = record.privacy["recognition"]
    assert score.chance == labels.bincount().max().item() / N
    assert (score.n, score.null_name) == (N, "class_mean")
    assert score.null > 0.9
    assert score.mean > score.chance


def test_a_release_of_another_kind_is_not_applicable(root):
    asked = evaluate(cache=root, **{**CELL, "release": "encodings"}, targets_from="heldout")
    assert asked.status == "not_applicable"
    assert "only features" in asked.error
    assert asked.privacy == {}


def test_more_targets_than_a_dataset_has_test_images_is_a_usage_error(root):
    options = {**CELL, "test_size": None, "targets": 5000, "targets_from": "heldout"}
    options["preset"] = "standard"
    with pytest.raises(UsageError, match="5000 held-out targets were asked for, and there are "):
        evaluate(cache=root, **options)
