"""Claims that are no images, judged by hand-made truths."""

import pytest
import torch
from views import stream

from harness.api import CellFailed
from harness.running.evidence import rows_of
from harness.scoring.findings import Facts, findings
from harness.scoring.identification import identification
from harness.scoring.summary import proportion_interval

WEIGHTS = torch.tensor([0.2, 0.4, 0.6, 0.5])
SIGNS = torch.tensor([[1, -1], [1, 1], [-1, -1], [1, -1]])
MEANS = torch.tensor([[1.0, 0.0], [0.0, 2.0], [5.0, 5.0]])


def facts(**changes):
    usual = {
        "weights": WEIGHTS,
        "sources": torch.tensor([[0, 1], [1, 2], [2, 0], [0, 2]]),
        "candidates": torch.tensor([3, 0, 4]),
        "signs": lambda rows: SIGNS[rows],
        "prototypes": MEANS,
        "public_prototypes": torch.zeros(3, 2),
        "present": torch.tensor([True, True, False]),
        "guess": torch.tensor([0.5, 0.5]),
        "stream": stream(use="findings"),
    }
    return Facts(**{**usual, **changes})


def found(name, claim, rows=(0, 1, 2, 3)):
    return findings({name: claim}, torch.tensor(rows), facts())


def test_weights_are_compared_with_the_best_constant():
    told = found("weights", WEIGHTS + torch.tensor([0.1, -0.1, 0.1, -0.1]))
    assert told["weight_error"].value == pytest.approx(0.1)
    assert told["weight_error"].chance == pytest.approx(float((WEIGHTS - 0.4).abs().mean()))
    assert told["weight_error"].leaks_more == "lower"
    assert 0.5 < told["weight_correlation"].value < 1


def test_a_constant_guess_of_weights_has_no_correlation():
    assert set(found("weights", torch.full((4,), 0.4))) == {"weight_error"}


def test_only_the_rows_that_were_named_are_judged():
    told = found("weights", torch.tensor([0.6, 0.2]), rows=(2, 0))
    assert told["weight_error"].value == pytest.approx(0)


def test_signs_are_counted_row_by_row_beside_the_mean_image():
    told = found("signs", torch.tensor([[1.0, -1], [1, -1], [-1, -1], [1, -1]]))
    assert told["sign_accuracy"].value == pytest.approx(7 / 8)
    assert told["sign_accuracy"].chance == pytest.approx(4 / 8)


def test_signs_that_nothing_hides_are_no_finding():
    told = findings({"signs": SIGNS.float()}, torch.arange(4), facts(signs=None))
    assert told == {}


def test_class_means_of_classes_that_there_are():
    claim = torch.tensor([[0.9, 0.0], [0.0, 2.2], [0.0, 0.0]])
    told = found("class_means", claim)["class_mean_snr_db"]
    assert (told.value, told.chance, told.n) == (pytest.approx(20, abs=1e-4), 0.0, 2)


def test_tests_that_reject_more_often_than_their_level():
    told = found("p_values", torch.tensor([[0.01, 0.2], [0.04, 0.9]]))["rejection_rate"]
    assert (told.value, told.chance, told.n) == (0.5, 0.05, 2)


def test_pairs_with_the_partner_known_and_unknown():
    scores = torch.zeros(2, 5, 5)
    scores[0, 3, 0] = 1.0  # row 0 mixes image 0, candidate 3, with image 1, candidate 0
    scores[1, 2, 4] = 1.0  # row 1 mixes 1 and 2, candidates 0 and 4: its partner is right
    told = found("pair_scores", scores)
    assert told["pair_top1"].value == 0.5
    assert told["partner_known_top1"].value == 0.5
    assert told["pair_top1"].chance == pytest.approx(1 / 25)


@pytest.mark.parametrize(
    ("name", "claim", "complaint"),
    [
        ("weights", torch.zeros(3), r"weights of shape \(3,\); wanted \(4,\)"),
        ("weights", torch.full((4,), torch.nan), "not all finite"),
        ("signs", torch.ones(4, 3), r"signs of shape \(4, 3\)"),
        ("p_values", torch.tensor([1.5]), "between 0 and 1"),
        ("class_means", torch.zeros(2, 2), r"wanted \(3, 2\)"),
    ],
)
def test_claims_that_are_not_what_they_say_fail(name, claim, complaint):
    with pytest.raises(CellFailed, match=complaint):
        found(name, claim)


def test_a_row_with_two_images_is_found_by_either():
    scores = torch.tensor([[9.0, 8, 1, 0], [0, 9, 1, 8]])
    told = identification(scores, torch.tensor([[0, 1], [0, 1]]), stream())
    assert (told.top1, told.true) == (1.0, 2)
    assert told.recall == pytest.approx(3 / 4)  # of the second row, one of two is among its two
    assert told.auc == pytest.approx(3 / 4)
    assert (told.top1_chance, told.recall_chance, told.top5_chance) == (0.5, 0.5, 1.0)


def test_true_candidates_do_not_stand_in_each_others_way():
    scores = torch.tensor([[5.0, 5.0, 1.0, 0.0]])
    told = identification(scores, torch.tensor([[0, 1]]), stream())
    assert (told.top1, told.recall, told.auc) == (1.0, 1.0, 1.0)


def test_encodings_of_one_image_are_no_independent_questions():
    scores = torch.tensor([[1.0, 0], [0, 1]]).repeat(30, 1)
    truth = torch.zeros(60, dtype=torch.int64)
    apart = identification(scores, truth, stream(), of=torch.arange(60))
    told = identification(scores, truth, stream(), of=torch.arange(60) // 20)
    assert apart.top1 == told.top1 == 0.5
    assert told.asked == "encodings"
    assert apart.top1_ci == proportion_interval(30, 60)
    assert told.top1_ci == (0.5, 0.5)  # each of the three images is found in half of its encodings


def test_tests_of_one_pair_count_as_one():
    told = found("p_values", torch.full((7, 10, 5), 0.01))["rejection_rate"]
    assert told.n == 5
    assert told.leaks
    assert not found("p_values", torch.tensor(0.5))["rejection_rate"].leaks


def test_a_claim_is_of_the_rows_that_are_named_or_of_the_first() -> None:
    claim = torch.tensor([0.6, 0.2])
    assert rows_of("weights", claim, torch.tensor([2, 0]), 4).tolist() == [2, 0]
    assert rows_of("weights", claim, None, 4).tolist() == [0, 1]
    named = torch.tensor([3, 1, 0])
    assert rows_of("pair_scores", torch.ones(2, 5, 5), named, 4).tolist() == [3, 1]


@pytest.mark.parametrize(
    ("named", "count", "told"),
    [
        (torch.tensor([2, 0, 1]), 4, "names 3 rows and claims weights of 2"),
        (torch.tensor([2, 4]), 4, "not between 0 and 3"),
        (None, 1, "claims weights of 2 rows, and there are 1"),
    ],
)
def test_a_claim_of_other_rows_than_are_named_fails(named, count, told) -> None:
    with pytest.raises(CellFailed, match=told):
        rows_of("weights", torch.tensor([0.6, 0.2]), named, count)
