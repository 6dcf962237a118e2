"""The strongest of several attacks, and what one of them says about another."""

import numpy as np
import pytest
import torch
from views import stream

from harness.api import Channel
from harness.checks import Answer, check_consistency, still_rising
from harness.scoring.identification import Identification
from harness.scoring.worst import BEST_OF_NULLS, strongest, worst_case

NAN = float("nan")


def test_each_image_is_scored_by_its_strongest_attack():
    scores = {"a": torch.tensor([1.0, 5.0, NAN]), "b": torch.tensor([2.0, 4.0, NAN])}
    values, who = strongest(scores, "higher")
    assert values[:2].tolist() == [2, 5]
    assert values[2].isnan()
    assert who == ["b", "a", ""]
    assert strongest(scores, "lower")[1] == ["a", "b", ""]


def test_the_worst_case_of_attacks_is_held_against_that_of_nulls():
    scores = {"a": torch.tensor([1.0, 5.0]), "b": torch.tensor([2.0, 4.0])}
    nulls = {"mean": torch.tensor([0.0, 3.0]), "class": torch.tensor([1.0, 2.0])}
    values = worst_case(scores, nulls, "higher", "dB", None)
    np.testing.assert_array_equal(values.attack, [2, 5])
    np.testing.assert_array_equal(values.nulls[BEST_OF_NULLS], [1, 3])


def answer(name, mean, *, channels=(), linear="no", error=None, top1=None):
    noise = torch.linspace(-1, 1, 50)
    found = None
    if top1 is not None:
        found = Identification(
            top1=top1, top1_ci=None, top1_chance=0.01, top5=1, top5_ci=None, top5_chance=0.05,
            auc=1, auc_ci=None, n=50, candidates=100,
        )  # fmt: skip
    return Answer(
        attack=name,
        channels=frozenset({Channel.ENCODINGS, *channels}),
        linear=linear,
        scores=None if mean is None else mean + noise,
        errors=None if error is None else error + noise / 100,
        identification=found,
    )


def flags(*answers, shown=True):
    return check_consistency(answers, shown=shown, unit="dB", stream=stream())


def test_an_attack_that_knows_less_and_does_better_is_held_against_the_other():
    more = (Channel.WEIGHTS, Channel.SOURCES)
    (flag,) = flags(answer("blind", 3.0), answer("seeing", 1.0, channels=more))
    assert flag.name == "knows_less_does_better"
    assert "'blind' beats 'seeing', which also holds sources, weights, by 2.00 dB" in flag.message


@pytest.mark.parametrize(
    ("blind", "seeing"),
    [(1.0, 3.0), (2.0, 2.0), (None, 1.0), (3.0, None)],
)
def test_an_attack_that_makes_use_of_what_it_knows_is_not_flagged(blind, seeing):
    assert not flags(answer("blind", blind), answer("seeing", seeing, channels=[Channel.WEIGHTS]))


def test_attacks_that_know_different_things_are_not_compared():
    one = answer("one", 3.0, channels=[Channel.WEIGHTS])
    assert not flags(one, answer("other", 1.0, channels=[Channel.SOURCES]))


def test_no_linear_attack_may_beat_the_optimum():
    optimum = answer("lmmse", 5.0, linear="optimal", error=0.5)
    (flag,) = flags(optimum, answer("ridge", 4.0, linear="yes", error=0.4))
    assert flag.name == "linear_beats_optimum"
    assert "0.1" in flag.message
    assert not flags(optimum, answer("ridge", 4.0, linear="yes", error=0.6))
    assert not flags(optimum, answer("unet", 4.0, linear="no", error=0.4))


def test_who_is_identified_and_not_shown_raises_a_flag():
    (flag,) = flags(answer("sphere", None, top1=1.0), shown=False)
    assert flag.name == "identified_not_reconstructed"
    assert not flags(answer("sphere", None, top1=1.0), shown=True)
    assert not flags(answer("sphere", None, top1=0.6), shown=False)


def test_scores_that_still_rise_are_flagged_from_a_tenth_of_a_decibel():
    once = torch.linspace(0, 1, 50)
    (flag,) = still_rising("unet", "epochs", once, once + 0.3, "dB", stream())
    assert flag.name == "still_rising"
    assert "0.30 dB" in flag.message
    assert not still_rising("unet", "epochs", once, once + 0.05, "dB", stream())
    assert not still_rising("unet", "epochs", once, once - 0.3, "dB", stream())
