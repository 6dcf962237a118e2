"""Pruned and noisy gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.stats import kstest
from views import stream

from harness.api import Recipe
from harness_plugins.defenses.gradnoise import GradnoiseConfig
from harness_plugins.defenses.gradnoise.noise import Gradnoise
from harness_plugins.defenses.gradprune import GradpruneConfig
from harness_plugins.defenses.gradprune.prune import Gradprune, prune, survivors


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pruned(gradients, p):
    return Gradprune(GradpruneConfig(p=p)).protect(gradients, stream())


def noisy(gradients, seed=0, **config):
    return Gradnoise(GradnoiseConfig(**config)).protect(gradients, stream(seed=seed))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 500), st.floats(0, 0.9999), st.integers(0, 9), st.booleans())
def test_exactly_the_largest_survive_unchanged(entries, p, seed, tied):
    gradient = normal(entries, seed=seed)
    if tied:
        gradient = gradient.sign()
    kept = max(1, round((1 - p) * entries))
    left = prune(gradient, p)
    assert int(left.count_nonzero()) == kept
    assert torch.equal(left[left != 0], gradient[left != 0])
    assert left[left != 0].abs().min() >= gradient[left == 0].abs().max() if kept < entries else 1
    assert torch.equal(prune(left, p), left)


@pytest.mark.parametrize(("p", "count"), [(0, 784), (0.9, 78), (0.99, 8), (0.999, 1), (0.9999, 1)])
def test_how_many_survive(p, count):
    assert survivors(784, p) == count
    assert int(prune(normal(28, 28), p).count_nonzero()) == count


def test_each_tensor_keeps_at_least_one_entry_of_its_own():
    gradients = {"weight": 100 * normal(20, 30), "bias": normal(3), "scale": torch.tensor(2.0)}
    left = pruned(gradients, 0.999)
    assert [int(left[name].count_nonzero()) for name in gradients] == [1, 1, 1]
    assert left["bias"].abs().max() == gradients["bias"].abs().max()


def test_of_equal_entries_the_first_stay():
    assert prune(torch.tensor([1.0, -2.0, 2.0, 1.0, -2.0, 0.0]), 0.67).tolist() == [
        0,
        -2,
        2,
        0,
        0,
        0,
    ]


def test_nothing_is_pruned_at_zero_and_a_zero_gradient_stays():
    gradient = normal(5, 5)
    assert torch.equal(prune(gradient, 0), gradient)
    assert torch.equal(prune(torch.zeros(10), 0.5), torch.zeros(10))


def test_the_rate_is_lowered_for_sgd_at_a_tenth_alone():
    usual = Recipe(optimizer="sgd", lr=0.1)
    assert Gradprune(GradpruneConfig(p=0.99)).adapt(usual).lr == 0.02
    assert Gradprune(GradpruneConfig(p=0.98)).adapt(usual).lr == 0.1
    for other in (Recipe(optimizer="sgd", lr=0.05), Recipe(optimizer="adamw", lr=0.1)):
        assert Gradprune(GradpruneConfig(p=0.999)).adapt(other) == other


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_has_the_deviation_and_the_law_that_was_asked_for(kind):
    gradient = normal(200, 100)
    noise = (noisy({"w": gradient}, kind=kind, scale=0.3)["w"] - gradient).flatten()
    assert float(noise.std()) == pytest.approx(0.3, rel=0.03)
    assert abs(float(noise.mean())) < 0.01
    law, scale = {"gaussian": ("norm", 0.3), "laplace": ("laplace", 0.3 / math.sqrt(2))}[kind]
    assert kstest(noise.numpy(), law, args=(0, scale)).pvalue > 1e-3


def test_noise_follows_the_stream_and_differs_between_tensors():
    gradients = {"a": torch.zeros(50), "b": torch.zeros(50)}
    first, again, other = noisy(gradients), noisy(gradients), noisy(gradients, seed=1)
    assert torch.equal(first["a"], again["a"])
    assert not torch.equal(first["a"], other["a"])
    assert not torch.equal(first["a"], first["b"])


def test_one_defense_draws_new_noise_at_every_step():
    defense, rng = Gradnoise(GradnoiseConfig()), stream()
    gradients = {"a": torch.zeros(50)}
    assert not torch.equal(
        defense.protect(gradients, rng)["a"], defense.protect(gradients, rng)["a"]
    )


@pytest.mark.parametrize("protect", [lambda g: pruned(g, 0.5), noisy])
def test_gradients_keep_their_dtype_and_layout_and_the_gradient_is_not_touched(protect):
    """Fused optimisers walk gradient and parameter side by side in memory."""
    gradient = normal(4, 3, 5, 5).to(memory_format=torch.channels_last).double()
    before = gradient.clone()
    (result,) = protect({"w": gradient}).values()
    assert (result.dtype, result.stride()) == (gradient.dtype, gradient.stride())
    assert torch.equal(gradient, before)


@pytest.mark.parametrize("wrong", [{"p": 1}, {"p": -0.1}, {"p": float("nan")}])
def test_shares_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValidationError, match="p"):
        GradpruneConfig(**wrong)


@pytest.mark.parametrize("wrong", [{"scale": 0}, {"scale": float("inf")}, {"kind": "uniform"}])
def test_noise_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        GradnoiseConfig(**wrong)
