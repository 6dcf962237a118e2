"""How much was learned, measured without touching the model."""

import pytest
import torch
from small_fashion import BOARD, CPU, built_in, same, splits, tiny

from harness.api import Config, Encoded, EncodingDefense
from harness.stages.inference import outputs
from harness.stages.release import embedded
from harness.stages.stack import Stack
from harness.stages.train import state
from harness.stages.training import fresh
from harness.stages.utility import Utility, utility, with_statistics_of

DATA = splits(private=16, public=48, test=60)
TEST = embedded(DATA.test, DATA.scale, None)


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


def test_accuracy_is_the_share_of_right_answers(model):
    right = (model(TEST.images).argmax(dim=1) == TEST.labels).float().mean().item()
    assert measured(model).accuracy == pytest.approx(right)
    assert measured(model).n == 60


def test_the_interval_is_wilsons(model):
    """(p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), with z = 1.959964."""
    found = measured(model)
    p, n, z = found.accuracy, found.n, 1.959964
    middle, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    expected = ((middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n))
    assert found.interval == pytest.approx(expected, abs=1e-6)


def test_chance_names_the_largest_class(model):
    assert measured(model).chance == pytest.approx(TEST.labels.bincount().max().item() / 60)


def test_a_defense_with_its_own_inference_is_asked_first(model):
    stack = Stack(encoding=("inverts", Inverts(Config())))
    lowest = (model(TEST.images).argmin(dim=1) == TEST.labels).float().mean().item()
    found = measured(model, stack)
    assert found.accuracy == pytest.approx(lowest)
    assert found.accuracy_bn_recomputed == measured(model).accuracy_bn_recomputed


def test_recomputing_batchnorm_leaves_the_model_and_its_mode_alone(model):
    before = state(model)
    torch.manual_seed(4)
    random = torch.random.get_rng_state()
    assert measured(model).accuracy_bn_recomputed is not None
    assert same(before, state(model))
    assert not model.training
    assert torch.equal(random, torch.random.get_rng_state())


def test_recomputed_statistics_are_those_of_the_clean_images(model):
    public = embedded(DATA.public, DATA.scale, None).images
    clean = with_statistics_of(model, public, CPU)
    entering = model.body.conv(public).permute(1, 0, 2, 3).flatten(1)
    torch.testing.assert_close(clean.body.norm.running_mean, entering.mean(dim=1))
    torch.testing.assert_close(clean.body.norm.running_var, entering.var(dim=1))


def test_recomputing_heals_statistics_of_other_images(model):
    """The effect behind it: good weights with the statistics of loud encodings look bad."""
    healthy = outputs(
        with_statistics_of(model, embedded(DATA.public, DATA.scale, None).images, CPU),
        TEST.images,
        CPU,
    )
    model.body.norm.running_var.mul_(1e6)
    model.body.norm.running_mean.add_(100)
    right = (healthy.argmax(dim=1) == TEST.labels).float().mean().item()
    assert measured(model).accuracy_bn_recomputed == pytest.approx(right)


def test_a_victim_without_batchnorm_has_nothing_to_recompute():
    plain = fresh(built_in("mlp", width=8), (1, 28, 28), 10, BOARD, device=CPU).eval()
    assert measured(plain).accuracy_bn_recomputed is None


def test_a_space_is_entered_before_the_victim():
    half = fresh(built_in("mlp", width=8), (1, 14, 14), 10, BOARD, device=CPU).eval()
    found = measured(half, embed=lambda images: images[..., ::2, ::2])
    small = DATA.test.unit().images[..., ::2, ::2]
    assert found.accuracy == pytest.approx(
        (half(small).argmax(dim=1) == DATA.test.labels).float().mean().item()
    )


def test_a_utility_stands_beside_its_reference(model):
    found = measured(model)
    reference = found.model_copy(update={"accuracy": 0.9, "interval": (0.8, 0.95)})
    both = found.beside(reference)
    assert (both.reference_accuracy, both.reference_interval) == (0.9, (0.8, 0.95))
    assert Utility.model_validate_json(both.model_dump_json()) == both
