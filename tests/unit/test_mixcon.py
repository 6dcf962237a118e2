"""MixCon's and UniCon's penalties against the letter of their equations."""

from statistics import mean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.nn.functional import cross_entropy, one_hot

from harness.api import AssetFolder, Recipe
from harness_plugins.datasets.synthetic_mixcon import SyntheticMixconConfig
from harness_plugins.datasets.synthetic_mixcon.dataset import SyntheticMixcon
from harness_plugins.defenses.mixcon import MixconConfig, UniconConfig, harness_defenses
from harness_plugins.defenses.mixcon.penalties import Mixcon, Unicon
from harness_plugins.victims.mixcon_mlp import MixconMlpConfig
from harness_plugins.victims.mixcon_mlp.network import MixconMlp

pytestmark = pytest.mark.numeric


def batch(n, classes, seed=0, shape=(3, 2, 2)):
    """h(x) [n, *shape] and soft labels [n, classes] whose heaviest class is the first drawn."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, *shape, generator=generator)
    hard = torch.randint(classes, (n,), generator=generator)
    other = torch.randint(classes, (n,), generator=generator)
    soft = 0.6 * one_hot(hard, classes) + 0.4 * one_hot(other, classes)
    return hidden, soft.float()


def members(hidden, labels):
    """The rows of each class that is present, in the batch's order, at length 1, in float64."""
    rows = [row.double().flatten() / row.double().norm() for row in hidden]
    classes = {}
    for row, label in zip(rows, labels, strict=True):
        classes.setdefault(int(label.argmax()), []).append(row)
    return list(classes.values())


def equation_1(hidden, labels, beta, epsilon):
    classes = members(hidden, labels)
    if len(classes) < 2:
        return 0.0
    p = min(len(rows) for rows in classes)
    total = 0.0
    for i in range(p):
        for c1 in range(len(classes)):
            for c2 in range(len(classes)):
                if c1 != c2:
                    dist = float((classes[c1][i] - classes[c2][i]).square().sum())
                    dist = min(max(dist, epsilon), 1 / epsilon)
                    total += dist + beta / dist
    return total / p / (len(classes) * (len(classes) - 1))


def appendix_d1(hidden, labels):
    classes = members(hidden, labels)
    total = 0.0
    for rows in classes:
        if len(rows) > 1:
            pairs = sum(float((a - b).square().sum()) for a in rows for b in rows)
            total += pairs / (len(rows) * (len(rows) - 1))
    return total / len(classes)


def mixcon(hidden, labels, **config):
    return Mixcon(MixconConfig(**config)).penalty(hidden, labels)


def unicon(hidden, labels, **config):
    return Unicon(UniconConfig(**config)).penalty(hidden, labels)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 99), st.sampled_from([0, 1e-4, 0.1]))
def test_mixcon_is_equation_1(n, classes, seed, beta):
    hidden, labels = batch(n, classes, seed)
    expected = 2.5 * equation_1(hidden, labels, beta, 1e-4)
    found = mixcon(hidden, labels, strength=2.5, beta=beta, epsilon=1e-4)
    assert float(found) == pytest.approx(expected, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(
    ("sizes", "pairs"), [((5, 5), 10), ((7, 2), 4), ((4, 4, 3), 18), ((6,), 0)]
)
def test_the_sum_counts_each_pair_in_both_orders(sizes, pairs):
    hidden, _ = batch(sum(sizes), 2)
    numbers = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    labels = one_hot(numbers, 3).float()
    mean, total = (mixcon(hidden, labels, reduction=how) for how in ("mean", "sum"))
    assert total.item() == pytest.approx(pairs * mean.item(), rel=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 99))
def test_unicon_is_appendix_d1(n, classes, seed):
    hidden, labels = batch(n, classes, seed)
    expected = 3 * appendix_d1(hidden, labels)
    assert float(unicon(hidden, labels, strength=3)) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_only_as_many_of_each_class_as_the_smallest_has_take_part():
    hidden, _ = batch(7, 2)
    labels = one_hot(torch.tensor([0, 0, 1, 0, 1, 0, 0]), 3).float()  # p = 2
    hidden.requires_grad_()
    mixcon(hidden, labels).backward()
    moved = hidden.grad.flatten(1).any(dim=1)
    assert moved.tolist() == [True, True, True, False, True, False, False]


def test_distances_are_held_within_epsilon():
    labels = one_hot(torch.tensor([0, 1]), 2).float()
    apart = torch.tensor([[1.0, 0.0], [1.0, 0.01]])  # squared distance 1e-4
    assert mixcon(apart, labels, beta=0.01, epsilon=0.1).item() == pytest.approx(0.1 + 0.1)
    assert mixcon(100 * apart, labels, beta=0, epsilon=0.2, unit=False).item() == pytest.approx(1.0)
    far = torch.tensor([[30.0, 0.0], [0.0, 40.0]])
    assert mixcon(far, labels, beta=0, epsilon=0.2, unit=False).item() == pytest.approx(5.0)


@pytest.mark.parametrize("penalty", [mixcon, unicon])
def test_the_length_of_a_representation_does_not_matter(penalty):
    hidden, labels = batch(30, 4)
    lengths = torch.linspace(0.01, 300, 30).view(30, 1, 1, 1)
    torch.testing.assert_close(penalty(hidden * lengths, labels), penalty(hidden, labels))


@pytest.mark.parametrize("penalty", [mixcon, unicon])
def test_the_length_matters_where_rows_are_not_scaled(penalty):
    hidden, labels = batch(30, 4)
    once, twice = (penalty(s * hidden, labels, unit=False) for s in (1, 2))
    assert twice.item() == pytest.approx(4 * once.item(), rel=1e-3)


@pytest.mark.parametrize("penalty", [mixcon, unicon])
@pytest.mark.parametrize("value", [0.0, 1e-30, 1.0])
def test_gradients_are_finite_where_all_points_coincide(penalty, value):
    hidden = torch.full((12, 5), value, requires_grad=True)
    labels = one_hot(torch.arange(12) % 3, 3).float()
    loss = penalty(hidden, labels)
    loss.backward()
    assert loss.isfinite()
    assert hidden.grad.isfinite().all()


@pytest.mark.parametrize("penalty", [mixcon, unicon])
def test_one_image_or_one_class_alone_gives_a_loss_that_can_be_derived(penalty):
    hidden = torch.ones(1, 4, requires_grad=True)
    loss = penalty(hidden, torch.tensor([[0.0, 1.0]]))
    loss.backward()
    assert loss.item() == 0
    assert not hidden.grad.any()


def descended(beta, steps=400):
    """The squared distance of two representations that follow mixcon's gradient."""
    labels = one_hot(torch.tensor([0, 1]), 2).float()
    hidden = torch.tensor([[1.0, 0.2], [0.3, 1.0]], requires_grad=True)
    optimizer = torch.optim.Adam([hidden], lr=0.005)
    for _ in range(steps):
        optimizer.zero_grad()
        mixcon(hidden, labels, beta=beta, epsilon=1e-6).backward()
        optimizer.step()
    first, second = torch.nn.functional.normalize(hidden.detach(), dim=1)
    return float((first - second).square().sum())


def test_pairs_rest_at_the_square_root_of_beta():
    assert descended(1e-2) == pytest.approx(0.1, rel=0.05)


def test_without_beta_pairs_collapse():
    assert descended(0) < 1e-3


def learned(seed, **options):
    """The accuracy of the paper's network on its synthetic data, trained under the preset."""
    torch.manual_seed(seed)
    data, recipe = SyntheticMixcon(SyntheticMixconConfig()).load(AssetFolder({})), MixconMlpConfig()
    model = MixconMlp(recipe).build((1, 1, 10), 2)
    h, g = model[:3], model[3:]
    optimizer = torch.optim.SGD(model.parameters(), recipe.lr, momentum=0.9)
    preset = harness_defenses()[0].presets["synthetic"]
    for _ in range(recipe.epochs):
        for rows in torch.randperm(800).split(recipe.batch_size):
            optimizer.zero_grad()
            hidden, labels = h(data.train.images[rows]), one_hot(data.train.labels[rows], 2).float()
            loss = cross_entropy(g(hidden), labels)
            (loss + mixcon(hidden, labels, **{**preset, **options})).backward()
            optimizer.step()
    return float((model(data.test.images).argmax(1) == data.test.labels).double().mean())


def test_the_preset_learns_where_beta_keeps_pairs_apart_and_not_where_it_is_0():
    """Table 1: 88.0 % and 50.0 %, give or take what draws of weights differ in.

    One draw ends anywhere from 64 % to 93 %, and elsewhere with other instructions.
    """
    apart, together = (mean(learned(seed, beta=beta) for seed in range(3)) for beta in (0.01, 0.0))
    assert apart > 0.65
    assert together < 0.55


@pytest.mark.parametrize("penalty", [mixcon, unicon])
def test_half_precision_representations_are_measured_in_float32(penalty):
    hidden, labels = batch(30, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = penalty(hidden.bfloat16(), labels)
    torch.testing.assert_close(found, penalty(hidden.bfloat16().float(), labels))


def test_the_layer_option_moves_the_cut():
    recipe = Recipe(cut="conv2")
    assert Mixcon(MixconConfig(layer="conv1")).adapt(recipe).cut == "conv1"
    assert Unicon(UniconConfig(layer="conv1")).adapt(recipe).cut == "conv1"
    assert Mixcon(MixconConfig()).adapt(recipe) is recipe


@pytest.mark.parametrize(
    "wrong",
    [
        {"beta": -1e-9},
        {"strength": -1},
        {"epsilon": 0},
        {"epsilon": 1},
        {"layer": ""},
        {"reduction": "median"},
    ],
)
def test_values_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        MixconConfig(**wrong)


def test_every_preset_is_a_config():
    for spec in harness_defenses():
        for options in spec.presets.values():
            assert spec.config(**options)
