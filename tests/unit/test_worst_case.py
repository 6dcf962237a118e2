"""The strongest of several attacks, and what one of them says about another."""

import numpy as np
import pytest
import torch
from views import stream

from harness.api import Channel
from harness.scoring.flags import Answer, check_consistency, still_rising
from harness.scoring.identification import Identification
from harness.scoring.summary import (
    OTHERS,
    best_guess,
    best_null,
    strongest,
    summarise,
    worst_case,
)

NAN = float("nan")


def test_each_image_is_scored_by_its_strongest_attack():
    scores = {"a": torch.tensor([1.0, 5.0, NAN]), "b": torch.tensor([2.0, 4.0, NAN])}
    values, who = strongest(scores, "higher")
    assert values[:2].tolist() == [2, 5]
    assert values[2].isnan()
    assert who == ["b", "a", ""]
    assert strongest(scores, "lower")[1] == ["a", "b", ""]


def test_the_worst_case_of_attacks_is_held_against_that_of_the_same_answers_elsewhere():
    scores = {"a": torch.tensor([1.0, 5.0]), "b": torch.tensor([2.0, 4.0])}
    guesses = {"class_mean": torch.tensor([1.0, 1.0])}
    draws = [
        {"a": torch.tensor([0.0, 3.0]), "b": torch.tensor([1.0, 2.0])},
        {"a": torch.tensor([2.0, 1.0]), "b": torch.tensor([NAN, 2.0])},
    ]
    easier = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    other = torch.tensor([[0.0, 9.0], [0.0, 9.0]])  # another image is another thing by this one
    values = worst_case(scores, guesses, draws, [other, easier], "higher", "dB", None)
    np.testing.assert_array_equal(values.attack, [2, 5])
    np.testing.assert_array_equal(values.nulls[OTHERS], [2, 3])
    assert best_null(values) == OTHERS
    assert best_guess(values) == "class_mean"
    assert list(worst_case(scores, guesses, [], [], "higher", "dB", None).nulls) == ["class_mean"]


def test_answers_that_know_nothing_gain_nothing_however_many_there_are():
    rng = torch.Generator().manual_seed(0)
    guess = torch.randn(400, generator=rng)
    answers = [guess + torch.randn(400, generator=rng) for _ in range(12)]
    misplaced = {str(i): guess + torch.randn(400, generator=rng) for i in range(12)}
    scores = {str(i): each for i, each in enumerate(answers)}
    fair = worst_case(scores, {"guess": guess}, [misplaced], [torch.zeros(1)], "higher", "dB", None)
    score = summarise({"m": fair}, stream())["m"]
    assert abs(score.gain) < 0.1
    assert score.gain_ci[0] < 0
    lucky = worst_case(scores, {"guess": guess}, [], [], "higher", "dB", None)
    assert summarise({"m": lucky}, stream())["m"].gain_ci[0] > 1  # what luck alone would claim


def answer(name, mean, *, channels=(), linear="no", error=None, top1=None, after_images=True):
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
        after_images=after_images,
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


def test_who_is_not_after_images_is_not_blamed_for_poor_ones():
    more = [Channel.WEIGHTS]
    loser = answer("classes", 1.0, channels=more, after_images=False)
    assert not flags(answer("blind", 3.0), loser)


def test_a_difference_that_nobody_sees_is_no_flag():
    assert not flags(answer("blind", 3.05), answer("seeing", 3.0, channels=[Channel.WEIGHTS]))
    noiseless = answer("lmmse", 100.0, linear="optimal", error=3e-9)
    assert not flags(noiseless, answer("exact", 100.0, linear="yes", error=1e-9))


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
