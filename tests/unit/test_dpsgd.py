"""DP-SGD: what it bounds, what it spends, what it leaves behind."""

import copy
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from small_fashion import BOARD, CPU, OWNER, built_in, same, splits
from torch.nn.functional import cross_entropy, one_hot

from harness.api import CellFailed, UsageError
from harness.running.release import Stack
from harness.running.training import Batches, fit, fresh
from harness_plugins.defenses.dpsgd import DpSgdConfig
from harness_plugins.defenses.dpsgd.defense import DpSgd, clipped_sum

SHAPE = (1, 28, 28)


@pytest.fixture(scope="module", autouse=True)
def _opacus():
    pytest.importorskip("opacus")


@pytest.fixture(scope="module")
def material():
    data = splits(private=40)
    private = data.private.standardised(data.scale)
    return private.images[None], one_hot(private.labels, 10).float()[None]


def train(material, *, seed=0, epochs=2, batch_size=8, victim="lenet5", norm=None, **config):
    """A trained victim, and the defense with what it measured."""
    options = {"epochs": epochs, "batch_size": batch_size} | ({"norm": norm} if norm else {})
    owner = built_in(victim, **options)
    defense = DpSgd(DpSgdConfig(**config))
    model = fresh(owner, SHAPE, 10, BOARD, device=CPU)
    stack = Stack(training=(("dpsgd", defense),))
    fit(model, *material, owner.config, OWNER.stream(seed=seed), device=CPU, stack=stack)
    return model, defense


def per_image(seed=0, images=5, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"w": (images, 4, 3), "b": (images, 4)}
    return {name: scale * torch.randn(s, generator=generator) for name, s in shapes.items()}


def norm_of(gradients):
    return float(torch.cat([g.flatten() for g in gradients.values()]).norm())


def test_small_gradients_pass_and_large_ones_get_the_length_of_clip():
    small, large = per_image(images=1, scale=1e-3), per_image(images=1, scale=1e3)
    for name, total in clipped_sum(small, clip=1.0).items():
        torch.testing.assert_close(total, small[name][0])
    assert norm_of(clipped_sum(large, clip=0.7)) == pytest.approx(0.7, rel=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.floats(1e-3, 10), st.floats(1e-2, 100))
def test_one_image_more_moves_the_sum_by_at_most_clip(seed, clip, scale):
    with_it = per_image(seed, images=6, scale=scale)
    without = {name: g[:-1] for name, g in with_it.items()}
    whole, rest = clipped_sum(with_it, clip), clipped_sum(without, clip)
    assert norm_of({n: whole[n] - rest[n] for n in whole}) <= clip * (1 + 1e-4)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.floats(1e-2, 100))
def test_one_image_exchanged_moves_the_sum_by_at_most_twice_clip(seed, scale):
    first, second = per_image(seed, scale=scale), per_image(seed + 1, scale=scale)
    other = {n: torch.cat([first[n][:-1], second[n][-1:]]) for n in first}
    a, b = clipped_sum(first, 0.5), clipped_sum(other, 0.5)
    assert norm_of({n: a[n] - b[n] for n in a}) <= 1.0 + 1e-4


def test_released_gradients_are_the_clipped_mean_with_noise_over_the_batch():
    gradients = {"w": torch.zeros(4, 200, 100)}
    defense = DpSgd(DpSgdConfig(noise_multiplier=3.0, clip=0.5))
    noise = defense.gradient(gradients, OWNER.stream(a=1))["w"]
    assert float(noise.std()) == pytest.approx(3.0 * 0.5 / 4, rel=0.02)
    quiet = DpSgd(DpSgdConfig(noise_multiplier=1e-6)).gradient(per_image(), OWNER)
    for name, total in clipped_sum(per_image(), 1.0).items():
        torch.testing.assert_close(quiet[name], total / 5, atol=1e-5, rtol=0)


def test_gradients_need_noise_that_is_known():
    with pytest.raises(CellFailed, match="noise_multiplier"):
        DpSgd(DpSgdConfig(epsilon=1)).gradient(per_image(), OWNER)


def test_a_training_prepared_for_tells_the_noise_of_released_gradients(material):
    _, defense = train(material, epsilon=3.0, epochs=1)
    images = {"w": torch.zeros(2, 20_000)}
    sigma = defense.measures()["noise_multiplier"]
    assert float(defense.gradient(images, OWNER)["w"].std()) == pytest.approx(sigma / 2, rel=0.03)


@pytest.mark.parametrize("epsilon", [0.5, 100.0])
def test_the_budget_is_spent_and_not_overspent(material, epsilon):
    _, defense = train(material, epsilon=epsilon, delta=1e-4, epochs=2)
    measured = defense.measures()
    assert 0.99 * epsilon <= measured["epsilon"] <= epsilon
    assert measured["delta"] == 1e-4
    assert measured["steps"] == 2 * 5
    assert measured["sample_rate"] == 8 / 40


def test_measures_are_those_of_opacus_own_accountant(material):
    from opacus.accountants import RDPAccountant

    _, defense = train(material, noise_multiplier=1.3, epochs=1)
    accountant = RDPAccountant()
    for _ in range(5):
        accountant.step(noise_multiplier=1.3, sample_rate=0.2)
    measured = defense.measures()
    assert measured["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6)
    assert measured["clip"] == 1.0


def test_a_gradient_of_a_known_batch_costs_more_than_a_sampled_step(material):
    _, defense = train(material, noise_multiplier=2.0, epochs=1, batch_size=2)
    measured = defense.measures()
    # The Gaussian mechanism's own bound (Mironov 2017): RDP a/(2s^2), best order, at delta=1e-5.
    assert measured["epsilon_per_gradient"] == pytest.approx(2.2, rel=0.1)
    assert measured["epsilon"] / measured["steps"] < measured["epsilon_per_gradient"]


def test_a_budget_beyond_reach_says_what_to_ask_for(material):
    with pytest.raises(UsageError, match="larger epsilon"):
        train(material, epsilon=1e-6, delta=1e-12)


def test_one_step_with_hardly_any_noise_is_the_clipped_step_done_by_hand(material):
    """Every image joins where a batch holds them all."""
    recipe = {"epochs": 1, "batch_size": 40, "clip": 0.3, "noise_multiplier": 1e-6}
    start = fresh(built_in("lenet5"), SHAPE, 10, BOARD, device=CPU)
    images, labels = material[0][0], material[1][0]
    each = [
        torch.autograd.grad(cross_entropy(start(x[None]), y[None]), list(start.parameters()))
        for x, y in zip(images, labels, strict=True)
    ]
    stacked = {
        n: torch.stack(g) for (n, _), *g in zip(start.named_parameters(), *each, strict=True)
    }
    expected = clipped_sum(stacked, 0.3)
    end, _ = train(material, **recipe)
    rate = built_in("lenet5").config.lr
    for (name, old), new in zip(start.named_parameters(), end.parameters(), strict=True):
        torch.testing.assert_close(new, old - rate * expected[name] / 40, atol=1e-6, rtol=1e-5)


def test_the_same_stream_trains_the_same_bits_and_another_does_not(material):
    few = {"noise_multiplier": 1.0, "epochs": 1, "batch_size": 20}
    first, second = (train(material, **few)[0].state_dict() for _ in range(2))
    other = train(material, **few, seed=1)[0].state_dict()
    assert same(first, second)
    assert not same(first, other)


def test_the_model_is_left_as_plain_as_it_came(material):
    model, _ = train(
        material, noise_multiplier=1.0, victim="cnn", norm="group", epochs=1, batch_size=20
    )
    plain = fresh(built_in("cnn", norm="group"), SHAPE, 10, BOARD, device=CPU)
    assert list(model.state_dict()) == list(plain.state_dict())
    for old, new in zip(plain.modules(), model.modules(), strict=True):
        assert old.__dict__.keys() == new.__dict__.keys()
        assert not new._forward_hooks
        assert not new._backward_hooks
    assert all(not parameter.__dict__ for parameter in model.parameters())
    assert torch.equal(copy.deepcopy(model)(material[0][0]), model(material[0][0]))
    model(material[0][0].requires_grad_()).sum().backward()


def test_batches_are_drawn_by_a_coin_for_each_row_and_an_empty_one_still_steps(material):
    """A rate of 1/40: of 40 batches about 15 are empty, and each is a step of noise."""
    seen = []

    class Watched(Batches):
        def epoch_of(self, batches):
            for images, labels in super().epoch_of(batches):
                seen.append(len(images))
                yield images, labels

    model = fresh(built_in("lenet5"), SHAPE, 10, BOARD, device=CPU)
    start = copy.deepcopy(model.state_dict())
    loader = Watched(*material, batch_size=1, generator=torch.Generator(), device=CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    defense = DpSgd(DpSgdConfig(noise_multiplier=1.0))
    _, _, private = defense.prepare(model, optimizer, loader, epochs=1, rng=OWNER)
    given_out = [len(images) for images, _ in private]  # nobody steps on these
    assert len(seen) == len(loader) == 40
    assert set(seen) >= {0, 1, 2}
    assert sum(seen) == pytest.approx(40, abs=4 * 40**0.5)
    assert given_out == [count for count in seen if count]
    assert defense.measures()["steps"] == seen.count(0)
    assert not same(start, model.state_dict())


def test_channels_last_weights_and_images_train_alike(material):
    """Opacus' own gradients of channels-last convolutions are wrong."""
    images = torch.randn(1, 40, *SHAPE, generator=torch.Generator().manual_seed(3))
    owner = built_in("lenet5", epochs=1, batch_size=20)
    ends = []
    for layout in (torch.contiguous_format, torch.channels_last):
        model = fresh(owner, SHAPE, 10, BOARD, device=CPU).to(memory_format=layout)
        stack = Stack(training=(("dpsgd", DpSgd(DpSgdConfig(noise_multiplier=1.0))),))
        given_images = images[0].to(memory_format=layout)[None]
        fit(model, given_images, material[1], owner.config, OWNER, device=CPU, stack=stack)
        ends.append(model)
    for one, other in zip(*(end.parameters() for end in ends), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_norms_are_exact_where_the_loop_computes_in_half_precision(material):
    model = fresh(built_in("lenet5"), SHAPE, 10, BOARD, device=CPU)
    loader = Batches(*material, batch_size=40, generator=torch.Generator(), device=CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    defense = DpSgd(DpSgdConfig(noise_multiplier=1.0))
    wrapped, _, private = defense.prepare(model, optimizer, loader, epochs=1, rng=OWNER)
    images, labels = next(iter(private))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(wrapped(images), labels)
    loss.backward()
    assert {p.grad_sample.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("victim", ["cnn", "resnet18"])
def test_batchnorm_is_refused_with_a_victim_that_can_be_trained(material, victim):
    with pytest.raises(UsageError, match=r"BatchNorm.*cnn\[norm=group\]"):
        train(material, victim=victim)


def test_without_opacus_the_message_says_how_to_get_it(material, monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith("harness_plugins.defenses.dpsgd.")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opacus", None)
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    with pytest.raises(UsageError, match=r"encoding-harness\[dp\]"):
        train(material)


def test_naming_the_noise_switches_the_default_budget_off():
    assert DpSgdConfig().epsilon == 8
    noise = DpSgdConfig(noise_multiplier=1.1)
    assert (noise.epsilon, noise.noise_multiplier) == (None, 1.1)
    assert DpSgdConfig(**noise.model_dump()) == noise


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 1, "noise_multiplier": 1},
        {"epsilon": None},
        {"epsilon": 0},
        {"delta": 1},
        {"delta": 0},
        {"clip": 0},
        {"noise_multiplier": 0},
    ],
)
def test_budgets_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        DpSgdConfig(**wrong)
