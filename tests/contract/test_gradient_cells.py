"""Cells in which gradients leave, from the request to the record."""

from importlib.util import find_spec

import pytest

from harness import evaluate
from harness.api import UsageError

CELL = {
    "dataset": "fashion-mini",
    "victim": "strided[width=16]",
    "attack": "gradmatch[steps=150]",
    "release": "gradients",
    "private_size": 24,
    "public_size": 80,
    "test_size": 40,
    "targets": 4,
    "metrics": "snr_db",
    "only": "privacy",
    "threads": 1,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def record_of(root, **changes):
    record = evaluate(cache=root, **{**CELL, **changes})
    assert record.status == "ok", record.error
    return record


def test_single_images_leak_most_of_themselves(root):
    record = record_of(root, defense="none")
    assert record.privacy["snr_db"].gain_ci[0] > 3
    assert {"batch_labels", "model"} <= set(record.channels_used)
    assert record.request.bn_mode == "train"
    assert record.request.victim_epochs == 1


def test_mixed_batches_are_scored_at_both_stages(root):
    record = record_of(root, defense="mixup[k=3]", rounds=2, batch_size=2, private_size=4)
    stage = record.findings["input_snr_db"]
    assert stage.n == 2 * 4
    assert stage.ci[0] > stage.chance > 0
    assert record.privacy["snr_db"].n == 4
    assert "batch_labels" not in record.findings


def test_hidden_signs_cost_the_signed_images_more_than_their_absolute_values(root):
    record = record_of(root, defense="instahide[k=2]", rounds=4, private_size=4)
    assert record.privacy["snr_db_abs"].mean > record.privacy["snr_db"].mean


def test_a_server_that_knows_less_tells_labels_and_is_judged_on_them(root):
    record = record_of(root, defense="none", threat_model="fl-realistic", batch_size=2)
    assert "batch_labels" not in record.channels_used
    assert record.findings["label_accuracy"].value >= 0.75


def test_pruning_leaves_less(root):
    bare, pruned = (record_of(root, defense=defense) for defense in ("none", "gradprune[p=0.999]"))
    assert pruned.privacy["snr_db"].mean < bare.privacy["snr_db"].mean - 2


@pytest.mark.skipif(find_spec("opacus") is None, reason="dpsgd needs the extra dp")
def test_noise_of_dpsgd_hides_more_the_more_there_is(root):
    some, much = (
        record_of(root, defense=f"dpsgd[noise_multiplier={noise}]").privacy["snr_db"].mean
        for noise in (0.001, 1)
    )
    assert much < some - 2


def test_more_images_in_a_batch_than_classes_cannot_be_labelled_one_each(root):
    record = evaluate(
        cache=root,
        **{**CELL, "attack": "gradmatch[labels=distinct]", "batch_size": 12, "targets": 12},
        defense="none",
    )
    assert record.status == "failed"
    assert "a batch of 12 holds more images than there are classes (10)" in record.error


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": "synthetic-mixcon", "victim": "mlp", "defense": "mixup[k=2]"},
        {"defense": "singmix[tau=1,resolution=16]", "victim": "cnn[width=8]", "private_size": 8},
        {"defense": "instahide[k=1]", "private_size": 8},
        {"defense": "instahide[scheme=cross,k=4]", "private_size": 8},
        {"defense": "none", "victim": "paper-head", "bn_mode": "eval"},
    ],
    ids=["vectors", "another resolution", "the mask alone", "public images", "dropout"],
)
def test_odd_cells_have_a_number(root, changes):
    assert record_of(root, **{"attack": "gradmatch[steps=10]", **changes}).privacy["snr_db"].n == 4


def test_a_cut_that_the_victim_has_not_is_refused_though_nothing_cuts_there(root):
    with pytest.raises(UsageError, match="no block 'nope' to cut after"):
        evaluate(cache=root, **{**CELL, "victim": "strided[cut=nope]"}, defense="none")


def test_one_image_has_no_statistics_behind_a_dense_layer(root):
    with pytest.raises(UsageError, match="--batch-size 2 or --bn-mode eval"):
        evaluate(cache=root, **{**CELL, "defense": "none", "victim": "paper-head"})


# ---------------------------------------------------------------- updates


UPDATES = {"release": "updates", "defense": "none", "threat_model": "fl-realistic"}


@pytest.mark.parametrize("steps", [1, 5])
def test_a_server_reads_images_off_what_a_party_sends(root, steps):
    record = record_of(root, **UPDATES, local_steps=steps, local_lr=0.1)
    assert record.release_kind == "updates"
    assert set(record.channels_used) >= {"updates", "model"}
    assert "batch_labels" not in record.channels_used
    assert record.privacy["snr_db"].gain_ci[0] > 2


@pytest.mark.parametrize("steps", [1, 5])
def test_a_dense_first_layer_tells_single_images_after_several_steps_too(root, steps):
    dense = {**UPDATES, "victim": "mlp", "attack": "firstlayer"}
    assert record_of(root, **dense, local_steps=steps).privacy["snr_db"].mean > 60


def test_a_planted_layer_tells_the_images_of_a_party_apart(root):
    planted = {**UPDATES, "victim": "planted[width=4]", "attack": "firstlayer", "victim_epochs": 0}
    several = {"local_steps": 6, "batch_size": 2, "local_images": 4, "targets": 8}
    record = record_of(root, **planted, **several)
    assert record.privacy["snr_db"].n == 8
    assert record.privacy["snr_db"].mean > 60


def test_gradient_defenses_act_on_local_steps(root):
    dense = {**UPDATES, "victim": "mlp", "attack": "firstlayer", "local_steps": 3}
    noisy = record_of(root, **{**dense, "defense": "gradnoise[scale=0.01]"})
    assert noisy.privacy["snr_db"].mean < 30


@pytest.mark.skipif(find_spec("opacus") is None, reason="dpsgd needs the extra dp")
def test_dpsgd_clips_and_noises_every_local_step(root):
    dense = {**UPDATES, "victim": "mlp", "attack": "firstlayer", "local_steps": 3}
    private = record_of(root, **{**dense, "defense": "dpsgd[noise_multiplier=1]"})
    assert private.privacy["snr_db"].mean < 10


def test_several_encodings_of_an_image_leave_in_several_updates(root):
    mixed = {**UPDATES, "defense": "mixup[k=2]", "attack": "gradmatch[steps=10]", "rounds": 2}
    record = record_of(root, **mixed, local_steps=2, private_size=4)
    assert record.privacy["snr_db"].n == 4
    assert "input_snr_db" in record.findings
