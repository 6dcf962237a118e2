"""Synthetic data obeys its laws, and is the same for everyone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from harness.api import AssetFolder, Collection
from harness_plugins.datasets.synthetic_gaussian import SyntheticGaussianConfig
from harness_plugins.datasets.synthetic_gaussian.dataset import SyntheticGaussian, plane
from harness_plugins.datasets.synthetic_mixcon import SyntheticMixconConfig
from harness_plugins.datasets.synthetic_mixcon.dataset import SyntheticMixcon
from harness_plugins.victims.mixcon_mlp import MixconMlpConfig
from harness_plugins.victims.mixcon_mlp.network import MixconMlp


def gaussian(**options: int) -> Collection:
    return SyntheticGaussian(SyntheticGaussianConfig(**options)).load(AssetFolder({}))


def mixcon(**options: float) -> Collection:
    return SyntheticMixcon(SyntheticMixconConfig(**options)).load(AssetFolder({}))


# ---------------------------------------------------------------- synthetic-gaussian


def test_vectors_are_standard_normal_and_uncorrelated() -> None:
    vectors = gaussian(d=16, n=20_000).train.images.flatten(1)
    assert vectors.mean(0).abs().max() < 5 / math.sqrt(20_000)
    assert (vectors.T.cov() - torch.eye(16)).abs().max() < 0.05
    assert ((vectors**4).mean() - 3).abs() < 0.1  # a normal's fourth moment


def test_labels_are_uniform() -> None:
    counts = gaussian(d=2, n=20_000, classes=4).train.labels.bincount(minlength=4)
    assert (counts / 20_000 - 0.25).abs().max() < 0.02


@pytest.mark.parametrize("apart", [2.0, 3.0])
def test_the_best_accuracy_is_that_of_the_nearest_mean(apart: float) -> None:
    data = SyntheticGaussian(SyntheticGaussianConfig(d=32, n=20_000, n_test=20_000, apart=apart))
    held = data.load(AssetFolder({}))
    train, test = held.train, held.test
    means = torch.stack([train.images[train.labels == c].flatten(1).mean(0) for c in range(10)])
    assert (means @ means.T - apart**2 * torch.eye(10)).abs().max() < 0.6
    right = (test.images.flatten(1) @ means.T).argmax(1) == test.labels
    assert right.double().mean().item() == pytest.approx(data.best_accuracy(), abs=0.01)


def test_labels_that_mean_nothing_leave_the_best_at_chance() -> None:
    data = SyntheticGaussian(SyntheticGaussianConfig(d=2, n=2, classes=4))
    assert data.best_accuracy() == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("d", "shape"), [(1024, (32, 32)), (3072, (48, 64)), (10, (2, 5)), (13, (1, 13)), (2, (1, 2))]
)
def test_a_vector_lies_in_a_plane_as_square_as_it_can(d: int, shape: tuple[int, int]) -> None:
    assert plane(d) == shape


def test_shapes_are_those_of_images_and_have_no_bounds() -> None:
    held = gaussian(d=36, n=5, n_test=3, classes=2)
    assert held.train.images.shape == (5, 1, 6, 6)
    assert held.test.images.shape == (3, 1, 6, 6)
    assert held.train.images.dtype == torch.float32
    assert held.classes == ("0", "1")
    assert not held.scale.of_images
    far = torch.full((1, 1, 6, 6), 1e6)
    assert torch.equal(held.scale.clamp(far), far)
    assert torch.equal(held.scale.standardise(far), far)


def test_the_same_seed_gives_the_same_vectors_whatever_the_sizes() -> None:
    few, many = gaussian(d=8, n=4), gaussian(d=8, n=6, n_test=9)
    assert torch.equal(few.train.images, many.train.images[:4])
    assert torch.equal(few.train.labels, many.train.labels[:4])
    other = gaussian(d=8, n=4, seed=1)
    assert not torch.equal(few.train.images, other.train.images)
    assert not torch.equal(few.train.images, few.test.images[:4])


def test_more_than_a_gigabyte_is_refused_before_any_work() -> None:
    with pytest.raises(ValidationError, match=r"\(n \+ n_test\)·d must be at most"):
        SyntheticGaussianConfig(d=1 << 20, n=1000)


# ---------------------------------------------------------------- synthetic-mixcon


def test_two_normals_one_apart_in_each_of_ten_dimensions() -> None:
    held = mixcon(n_train=20_000, flip=0).train
    points = held.images.flatten(1)
    for label, mean in ((1, 0.0), (0, -1.0)):
        cloud = points[held.labels == label]
        assert len(cloud) == 10_000
        assert (cloud.mean(0) - mean).abs().max() < 0.05
        assert (cloud.T.cov() - torch.eye(10)).abs().max() < 0.07


def bayes(points: Tensor) -> Tensor:
    """The best classifier: positive where the coordinates' mean is above the middle."""
    return (points.flatten(1).mean(1) > -0.5).long()


def test_the_best_classifier_is_as_right_as_theory_says() -> None:
    """Φ(√10/2): the normals' means are √10 apart."""
    held = mixcon(n_test=20_000).test
    expected = 0.5 * (1 + math.erf(math.sqrt(10) / 2 / math.sqrt(2)))
    assert expected == pytest.approx(0.943, abs=5e-4)
    assert (bayes(held.images) == held.labels).double().mean() == pytest.approx(expected, abs=6e-3)


@pytest.mark.parametrize("flip", [0.0, 0.05, 0.5])
def test_a_share_of_the_train_labels_is_wrong_and_no_test_label(flip: float) -> None:
    true, noisy = mixcon(flip=0), mixcon(flip=flip)
    assert torch.equal(true.train.images, noisy.train.images)
    assert (true.train.labels != noisy.train.labels).sum() == round(1000 * flip)
    assert torch.equal(true.test.labels, noisy.test.labels)
    assert true.test.labels.bincount().tolist() == [100, 100]


def test_points_come_in_random_order_and_from_their_seed_alone() -> None:
    labels = mixcon(flip=0).train.labels
    assert 300 < (labels[1:] != labels[:-1]).sum() < 700
    assert torch.equal(mixcon(seed=3).train.images, mixcon(seed=3).train.images)
    assert not torch.equal(mixcon(seed=3).train.images, mixcon(seed=4).train.images)


def test_the_default_holds_the_papers_800_and_a_public_pool() -> None:
    held = mixcon()
    assert held.train.images.shape == (1000, 1, 1, 10)
    assert len(held.test) == 200
    assert held.classes == ("negative", "positive")
    assert not held.scale.of_images


@pytest.mark.parametrize("options", [{"flip": 0.6}, {"flip": math.nan}, {"n_train": 1}])
def test_nonsense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        SyntheticMixconConfig(**options)


# ---------------------------------------------------------------- mixcon-mlp


def linears(**options: object) -> list[nn.Linear]:
    model = MixconMlp(MixconMlpConfig(**options)).build((1, 1, 10), 2)
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


@pytest.mark.parametrize(
    ("server", "widths"),
    [
        ("default", [10, 500, 2, 100, 2]),
        ("deeper", [10, 500, 2, 100, 100, 100, 2]),
        ("wider", [10, 500, 2, 2048, 2]),
    ],
)
def test_layers_are_those_of_the_paper(server: str, widths: list[int]) -> None:
    layers = linears(server=server)
    assert [layers[0].in_features, *(layer.out_features for layer in layers)] == widths


def test_weights_are_drawn_from_a_normal_with_one_mean_per_layer() -> None:
    torch.manual_seed(0)
    for layer in linears():
        assert (layer.weight.mean().abs() * math.sqrt(layer.weight.numel())) < 4
    wide = linears(spread=10.0)[0].weight
    assert wide.std().item() == pytest.approx(1, abs=0.05)
    means = np.array([linears(spread=4.0)[0].weight.mean().item() for _ in range(40)])
    assert 1.2 < means.std() < 2.8


def test_what_leaves_the_cut_are_two_activations() -> None:
    config = MixconMlpConfig()
    model = MixconMlp(config).build((1, 1, 10), 2)
    names = [name for name, _ in model.named_children()]
    assert names == ["flatten", "hidden1", "hidden2", "hidden3", "head"]
    h = model[: names.index(config.cut) + 1]
    hidden = h(torch.randn(5, 1, 1, 10))
    assert hidden.shape == (5, 2)
    assert 0 <= hidden.min() <= hidden.max() <= 1


def test_plain_training_reaches_the_papers_accuracy() -> None:
    """91.5 % on 200 test points (Table 1, vanilla), give or take their sampling."""
    torch.manual_seed(0)
    data, config = mixcon(), MixconMlpConfig()
    model = MixconMlp(config).build((1, 1, 10), 2)
    train = data.train[:800]
    optimiser = torch.optim.SGD(model.parameters(), config.lr, momentum=0.9)
    for _ in range(config.epochs):
        for rows in torch.randperm(800).split(config.batch_size):
            optimiser.zero_grad()
            logits = model(train.images[rows])
            nn.functional.cross_entropy(logits, train.labels[rows]).backward()
            optimiser.step()
    right = (model(data.test.images).argmax(1) == data.test.labels).double().mean()
    assert right == pytest.approx(0.915, abs=0.045)
