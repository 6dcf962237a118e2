"""How much was learned, measured without touching the model."""

import pytest
import torch
from small_fashion import BOARD, CPU, built_in, same, splits, tiny

from harness.api import Config, Encoded, EncodingDefense
from harness.running.release import Stack
from harness.running.samples import standardised
from harness.running.train import utility, with_statistics_of
from harness.running.training import fresh, outputs, state
from harness.scoring.summary import proportion_interval
from harness.scoring.utility import (
    ENCODED,
    PLAIN,
    RECOMPUTED,
    Right,
    Tried,
    Utility,
    best_of,
    summed_up,
    together,
)

DATA = splits(private=16, public=48, test=60)
TEST = standardised(DATA.test, DATA.scale)


class Inverts(EncodingDefense[Config]):
    """Its inference reverses the logits, and draws."""

    def encode(self, private, public, rng) -> Encoded:
        raise NotImplementedError

    def infer(self, model, images, private, public, rng):
        assert len(private) == 16
        assert len(public) == 48
        assert private.images.dtype == torch.float32
        return -model(images) + 0 * rng.uniform(1).float()


@pytest.fixture
def model():
    return fresh(tiny(), (1, 28, 28), 10, BOARD, device=CPU).eval()


def measured(model, stack=Stack(), **options):  # noqa: B008
    return utility(model, DATA, stack, BOARD, CPU, **options)


def of(*trainings):
    """The utility of these trainings, beside an unprotected victim that is always right."""
    perfect = Right(inference=PLAIN, counts={PLAIN: 60}, chance=0.1, n=60)
    return summed_up(trainings, [perfect])


def recomputed(model):
    """The share of right answers with clean BatchNorm statistics."""
    found = measured(model)
    return found.counts[RECOMPUTED] / found.n


def test_accuracy_is_the_share_of_right_answers(model):
    right = (model(TEST.images).argmax(dim=1) == TEST.labels).float().mean().item()
    assert of(measured(model)).accuracy == pytest.approx(right)
    assert measured(model).n == 60


def test_the_interval_is_wilsons(model):
    """(p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), with z = 1.959964."""
    found = of(measured(model))
    p, n, z = found.accuracy, found.n, 1.959964
    middle, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    expected = ((middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n))
    assert found.interval == pytest.approx(expected, abs=1e-6)


def test_chance_names_the_largest_class(model):
    assert measured(model).chance == pytest.approx(TEST.labels.bincount().max().item() / 60)


def test_a_defense_with_its_own_inference_is_asked_first(model):
    stack = Stack(encoding=("inverts", Inverts(Config())))
    lowest = (model(TEST.images).argmin(dim=1) == TEST.labels).float().mean().item()
    found = of(measured(model, stack))
    assert found.inference == ENCODED
    assert found.accuracy == pytest.approx(lowest)
    plain = of(measured(model))
    by_name = dict(sorted(found.accuracies.items()))  # as canonical JSON has them
    read = found.model_copy(update={"accuracies": by_name})
    assert [way for way, _ in read.own_first] == [ENCODED, PLAIN, RECOMPUTED]
    assert found.accuracies[PLAIN] == plain.accuracies[PLAIN]
    assert found.accuracies[RECOMPUTED] == plain.accuracies[RECOMPUTED]


def test_recomputing_batchnorm_leaves_the_model_and_its_mode_alone(model):
    before = state(model)
    torch.manual_seed(4)
    random = torch.random.get_rng_state()
    assert recomputed(model) > 0
    assert same(before, state(model))
    assert not model.training
    assert torch.equal(random, torch.random.get_rng_state())


def test_recomputed_statistics_are_those_of_the_clean_images(model):
    public = standardised(DATA.public, DATA.scale).images
    clean = with_statistics_of(model, public, CPU)
    entering = model.body.conv(public).permute(1, 0, 2, 3).flatten(1)
    torch.testing.assert_close(clean.body.norm.running_mean, entering.mean(dim=1))
    torch.testing.assert_close(clean.body.norm.running_var, entering.var(dim=1))


def test_recomputing_heals_statistics_of_other_images(model):
    """The effect behind it: good weights with the statistics of loud encodings look bad."""
    healthy = outputs(
        with_statistics_of(model, standardised(DATA.public, DATA.scale).images, CPU),
        TEST.images,
        CPU,
    )
    model.body.norm.running_var.mul_(1e6)
    model.body.norm.running_mean.add_(100)
    right = (healthy.argmax(dim=1) == TEST.labels).float().mean().item()
    assert recomputed(model) == pytest.approx(right)


def test_a_victim_without_batchnorm_has_nothing_to_recompute():
    plain = fresh(built_in("mlp", width=8), (1, 28, 28), 10, BOARD, device=CPU).eval()
    assert list(measured(plain).counts) == [PLAIN]


def test_the_interval_of_several_trainings_holds_their_spread_and_the_images():
    """Student's t(.975, 2)·s/√3, with t = 4.302653, and Wilson's reach of 36 of 60, in squares."""
    trainings = [
        Right(inference=PLAIN, counts={PLAIN: hits}, chance=0.1, n=60) for hits in (30, 36, 42)
    ]
    found = of(*trainings)
    spread, (low, high) = 4.302653 * 0.1 / 3**0.5, proportion_interval(36, 60)
    assert found.accuracy == pytest.approx(0.6)
    below, above = ((0.6 - end) ** 2 + spread**2 for end in (low, high))
    assert found.interval == pytest.approx((0.6 - below**0.5, 0.6 + above**0.5), abs=1e-6)
    assert found.accuracies[PLAIN].trainings == pytest.approx((0.5, 0.6, 0.7))


def test_of_several_learners_the_best_on_other_images_counts():
    learners = {
        "lucky": Tried(validation=(0.2,), reported=(0.9,)),
        "strong": Tried(validation=(0.4, 0.5, 0.6), reported=(0.55, 0.6, 0.65)),
    }
    bare = {"strong": Tried(validation=(0.8,), reported=(0.75,))}
    found = best_of(
        learners, bare, chance=0.1, n=60, left_out={"encoded": "why"}, reference_left_out={}
    )
    assert (found.inference, found.accuracy) == ("strong", pytest.approx(0.6))
    assert found.reference_accuracy == 0.75
    assert found.validation == {"lucky": 0.2, "strong": 0.5}
    assert [name for name, _ in found.own_first] == ["strong", "lucky"]
    assert not found.at_chance


def one_learner(name, chosen_by, reported):
    tried = {name: Tried(validation=(chosen_by,), reported=(reported,))}
    return best_of(
        tried, tried, chance=0.1, n=60, left_out={"encoded": "why"}, reference_left_out={}
    )


def test_learners_that_were_tried_apart_are_chosen_from_together():
    plain, network = one_learner("ridge", 0.5, 0.6), one_learner("network", 0.7, 0.55)
    found = together([plain, network, one_learner("ridge", 0.9, 0.9)])
    assert (found.inference, found.accuracy) == ("network", 0.55)
    assert (found.reference_inference, found.reference_accuracy) == ("network", 0.55)
    assert found.interval == network.interval
    assert found.validation == {"ridge": 0.5, "network": 0.7}, "the first of equal names"
    assert set(found.accuracies) == set(found.reference_accuracies) == {"ridge", "network"}
    assert together([plain, one_learner("encoded", 0.2, 0.3)]).left_out == {}
    assert together([plain]) == plain


def test_of_one_learner_tried_apart_that_with_most_trainings_counts():
    once, network = one_learner("ridge", 0.9, 0.9), one_learner("network", 0.1, 0.1)
    tried = {"ridge": Tried(validation=(0.5, 0.6), reported=(0.5, 0.6))}
    twice = best_of(tried, tried, chance=0.1, n=60, left_out={}, reference_left_out={})
    found = together([once, network, twice])
    assert (found.inference, found.accuracy) == ("ridge", pytest.approx(0.55))


def test_a_utility_stands_beside_its_reference(model):
    found = of(measured(model))
    assert found.reference_accuracy == 1.0
    assert found.reference_interval == found.reference_accuracies[PLAIN].interval
    assert Utility.model_validate_json(found.model_dump_json()) == found
