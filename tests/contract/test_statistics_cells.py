"""A defense that releases sums, from the command to the record."""

import pytest

from harness import evaluate

SMALL = {
    "dataset": "fashion-mini",
    "private_size": 300,
    "public_size": 300,
    "test_size": 200,
    "learner": "closed",
    "metrics": "snr_db",
    "threads": 1,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def record(cache):
    return evaluate(defense="dpmeans[epsilon=8]", attack="classsums", cache=cache, **SMALL)


def test_the_record_says_what_is_proven_and_of_whom(record):
    (defense,) = record.defense
    assert record.release_kind == "statistics"
    assert defense.resolved["guarantee.epsilon"] == 8
    assert defense.resolved["guarantee.delta"] == 1e-5
    assert defense.resolved["guarantee.adjacency"] == "replace one image by any other, of any class"


def test_learners_of_encodings_are_left_out_with_the_reason(record):
    found = record.utility
    assert found.inference == "noisymeans"
    assert found.accuracy > 2 * found.chance
    assert "what there is here are statistics" in found.left_out["classmeans"]
    assert "what there is here are encodings" in found.reference_left_out["noisymeans"]
    assert found.reference_accuracy > found.chance
    assert not [flag for flag in record.flags if flag.name == "learner_failed"]


def test_what_leaks_is_measured_beside_its_nulls(record):
    score = record.privacy["snr_db"]
    assert score.gain_ci[0] < 0.2
    assert record.channels_used == ("batch_labels", "n_private", "public", "statistics")
    assert "class_mean_snr_db" in record.findings


def test_a_learner_of_sums_has_no_use_for_encodings(cache):
    asked = {**SMALL, "learner": "noisymeans", "only": "utility"}
    found = evaluate(defense="none", cache=cache, **asked)
    assert found.status == "not_applicable"
    assert found.error == "'noisymeans' learns from statistics; what there is here are encodings"


def test_what_noisy_mixtures_prove_is_of_all_rounds_that_left(cache):
    pytest.importorskip("opacus")
    asked = {**SMALL, "learner": "classmeans", "only": "utility"}
    one, three = (
        evaluate(defense="dpmix[noise=1,m=9]", rounds=rounds, cache=cache, **asked)
        for rounds in (1, 3)
    )
    spent = [record.defense[0].resolved["guarantee.epsilon"] for record in (one, three)]
    assert 0 < spent[0] < spent[1]
    assert one.defense[0].resolved["guarantee.adjacency"] == "add or remove one image"
    assert one.utility.accuracy > one.utility.chance
