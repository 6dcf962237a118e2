"""Learners on releases whose answer is known, and on real clothes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from small_fashion import CPU, built_in, splits, tiny
from torch import Tensor, nn

from harness.api import (
    AssetFolder,
    Budget,
    Config,
    EncodingDefense,
    Lesson,
    NotApplicable,
    Samples,
)
from harness.api.plugins import silent
from harness.api.release import Encoder
from harness.rng import KeyedStream, seeded
from harness.sandbox.rebuilding import plain
from harness_plugins.datasets.synthetic_gaussian import SyntheticGaussianConfig
from harness_plugins.datasets.synthetic_gaussian.dataset import SyntheticGaussian
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix
from harness_plugins.learners.centroid_filter import CentroidFilterConfig
from harness_plugins.learners.centroid_filter.learner import CentroidFilter
from harness_plugins.learners.classmeans import ClassMeansConfig
from harness_plugins.learners.classmeans.learner import ClassMeans
from harness_plugins.learners.components import components_of
from harness_plugins.learners.encoded.learner import Encoded
from harness_plugins.learners.network import NetworkConfig
from harness_plugins.learners.network.learner import Network
from harness_plugins.learners.reading import Reading, readings
from harness_plugins.learners.ridge import RidgeConfig
from harness_plugins.learners.ridge.learner import Ridge
from harness_plugins.learners.shrinkage import between_classes
from harness_plugins.learners.training import has_batchnorm, without_batchnorm

BUDGET = Budget(seconds=60, megabytes=4000, threads=1)
CLASSMEANS, RIDGE = ClassMeans(ClassMeansConfig()), Ridge(RidgeConfig())
CENTROIDS = CentroidFilter(CentroidFilterConfig())
NETWORK, ENCODED = Network(NetworkConfig()), Encoded(Config())
WITHOUT_BATCHNORM = Network(NetworkConfig(batchnorm="avoid"))


@dataclass(frozen=True)
class Held:
    """Rounds of encodings that lie in memory."""

    images: Tensor
    labels: Tensor
    piece: int = 256

    @property
    def rounds(self) -> int:
        return len(self.images)

    @property
    def rows(self) -> int:
        return self.images.shape[1]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.images.shape[2:])

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(
            self.images[round_].split(self.piece),
            self.labels[round_].split(self.piece),
            strict=True,
        )


def lesson(data, defense: EncodingDefense | None = None, rounds: int = 1, victim=None) -> Lesson:
    """What a server gets of standardised splits, whose public images it is not told anything of."""
    private, public, scale, classes = data
    public = Samples(public.images, torch.zeros_like(public.labels))
    law = Encoder("none", Config(), lambda own, *_: plain(own, classes))
    made = [plain(private, classes)] * rounds
    if defense:
        secret = KeyedStream(b"owner")
        made = [defense.encode(private, public, secret.stream(round=t)) for t in range(rounds)]
        known = type(defense)(defense.config.model_copy(update=dict(made[0].resolved)))
        infer = known.infer if known.infers else None
        law = Encoder("law", known.config, known.encode, infer)
    labels = [nn.functional.pad(e.labels, (0, classes - e.labels.shape[1])) for e in made]
    return Lesson(
        release=Held(torch.stack([each.images for each in made]), torch.stack(labels)),
        public=public,
        law=law,
        scale=scale,
        shape=tuple(private.images.shape[1:]),
        classes=classes,
        device=CPU,
        rng=KeyedStream(b"learner"),
        victim=victim or tiny(epochs=3),
    )


@cache
def gaussian(apart: float = 3.0, d: int = 64, n: int = 2000):
    """Private and public vectors of classes with orthogonal means, others to ask about, the best
    accuracy there is."""
    dataset = SyntheticGaussian(SyntheticGaussianConfig(d=d, n=2 * n, n_test=2000, apart=apart))
    held = dataset.load(AssetFolder({}))
    data = held.train[:n], held.train[n:], held.scale, len(held.classes)
    return data, held.test, dataset.best_accuracy()


@cache
def clothes(private: int = 600, public: int = 1500):
    held = splits(private, public, 600)
    own, public, test = (
        part.standardised(held.scale) for part in (held.private, held.public, held.test)
    )
    return (own, public, held.scale, len(held.classes)), test


def logits(learner, given: Lesson, images: Tensor) -> Tensor:
    with seeded(KeyedStream(b"torch"), CPU):
        learned = learner.learn(given, BUDGET, silent)
    with torch.no_grad():
        return learned.logits(images)


def accuracy(learner, given: Lesson, test: Samples) -> float:
    return (logits(learner, given, test.images).argmax(1) == test.labels).double().mean().item()


def singmix(tau: float, **options) -> Singmix:
    return Singmix(SingmixConfig(tau=tau, **options))


# ---------------------------------------------------------------- what can be learned is learned


@pytest.mark.parametrize(
    ("learner", "defense", "share"),
    [
        (CLASSMEANS, None, 0.95),
        (CLASSMEANS, singmix(1e-1), 0.85),
        (RIDGE, None, 0.95),
        (RIDGE, singmix(1e-1), 0.8),
        (CentroidFilter(CentroidFilterConfig(pool=1)), singmix(1e-1), 0.75),
    ],
)
def test_closed_forms_come_near_the_best_classifier_there_is(learner, defense, share):
    data, test, best = gaussian()
    assert accuracy(learner, lesson(data, defense), test) >= share * best


@pytest.mark.parametrize("learner", [CLASSMEANS, RIDGE, CENTROIDS])
def test_rounds_average_noise_away(learner):
    data, test = clothes()
    once, often = (accuracy(learner, lesson(data, singmix(1e-4), t), test) for t in (1, 12))
    assert often > once + 0.05


def test_whitening_finds_more_than_filters_do():
    data, test = clothes()
    given = lesson(data, singmix(1e-2))
    assert accuracy(CLASSMEANS, given, test) > accuracy(CENTROIDS, given, test) + 0.02


def test_nothing_is_learned_from_labels_that_mean_nothing():
    data, test, best = gaussian(apart=0.0)
    assert best == pytest.approx(0.1)
    assert accuracy(CLASSMEANS, lesson(data), test) < 0.13


@pytest.mark.parametrize("learner", [CLASSMEANS, RIDGE, NETWORK, ENCODED])
def test_hidden_signs_hide_no_classes(learner):
    """Chance is .1. Of the images themselves a linear map learns .75 here."""
    data, test = clothes()
    given = lesson(data, InstaHide(InstaHideConfig(k=4)), victim=built_in("mlp", epochs=10))
    assert accuracy(learner, given, test) > 0.3


@pytest.mark.parametrize("learner", [NETWORK, WITHOUT_BATCHNORM])
def test_networks_learn_of_noise_a_hundred_times_as_loud_as_images(learner):
    data, test = clothes()
    given = lesson(data, singmix(1e-2), victim=built_in("cnn"))
    assert accuracy(learner, given, test) > 0.4


# ---------------------------------------------------------------- what they need, and what not


@pytest.mark.parametrize("learner", [CLASSMEANS, CENTROIDS, NETWORK])
def test_without_public_images_they_still_learn(learner):
    data, test = clothes()
    given = lesson(data, victim=built_in("mlp"))
    without = replace(given, public=given.public[:0])
    assert accuracy(learner, without, test) > 0.5


def test_centroids_look_at_nothing_but_the_release():
    data, test = clothes()
    given = lesson(data, singmix(1e-2))
    without = replace(given, public=given.public[:0], law=None)
    found = (logits(CENTROIDS, each, test.images) for each in (given, without))
    assert torch.equal(*found)


def test_who_has_no_use_for_a_lesson_says_so():
    data, _ = clothes()
    given = lesson(data, victim=built_in("mlp"))
    with pytest.raises(NotApplicable, match="asks about plain images"):
        ENCODED.learn(given, BUDGET, silent)
    with pytest.raises(NotApplicable, match="has no BatchNorm"):
        WITHOUT_BATCHNORM.learn(given, BUDGET, silent)
    with pytest.raises(NotApplicable, match="there are none"):
        RIDGE.learn(replace(given, public=given.public[:1]), BUDGET, silent)


@pytest.mark.parametrize("learner", [CLASSMEANS, RIDGE, CENTROIDS, NETWORK, ENCODED])
def test_one_seed_gives_one_answer(learner):
    data, test = clothes()
    given = lesson(data, InstaHide(InstaHideConfig(k=2)))
    one, other = (logits(learner, given, test.images[:50]) for _ in range(2))
    assert torch.equal(one, other)
    assert (one.shape, one.dtype) == ((50, 10), torch.float32)


@pytest.mark.parametrize("learner", [CLASSMEANS, RIDGE, CENTROIDS])
def test_how_a_round_is_cut_into_pieces_does_not_matter(learner):
    data, test = clothes()
    given = lesson(data, singmix(1e-1))
    cut = replace(given, release=replace(given.release, piece=37))
    one, other = (logits(learner, each, test.images) for each in (given, cut))
    assert (one.argmax(1) == other.argmax(1)).double().mean() > 0.99


@pytest.mark.parametrize("learner", [CLASSMEANS, RIDGE, CENTROIDS, NETWORK])
def test_encodings_may_be_larger_than_the_images(learner):
    data, test = clothes()
    given = lesson(data, singmix(1e-2, resolution=56), victim=built_in("mlp"))
    assert given.release.shape == (1, 56, 56)
    assert accuracy(learner, given, test) > 0.4


# ---------------------------------------------------------------- how they read


def test_the_law_tells_the_noise_of_each_row_from_its_norm():
    data, _ = clothes()
    given = lesson(data, singmix(1e-2))
    reading = Reading.of(given)
    _, _, noise, labels = next(iter(readings(given, reading)))
    variance = float(given.law.config.radius) ** 2 / 784
    two = labels.amax(1) < 1  # the weights of a row of two classes stand in its label
    low, high = (labels[two].amax(1) ** 2 * variance, (1 - labels[two].amax(1)) ** 2 * variance)
    off = torch.minimum((noise[two] / low - 1).abs(), (noise[two] / high - 1).abs())
    assert off.median() < 0.05


def test_a_law_that_changes_nothing_and_one_that_hides_signs_are_recognised():
    data, _ = clothes()
    assert not Reading.of(lesson(data)).changes
    assert not Reading.of(lesson(data)).magnitudes
    assert Reading.of(lesson(data, InstaHide(InstaHideConfig(k=2)))).magnitudes
    assert not Reading.of(lesson(data, singmix(1e-4))).magnitudes


def test_spread_within_classes_averages_as_the_mixing_matrix_says():
    """The error of least squares on W Y, for one class, beside that of the images themselves."""
    data, _ = clothes()
    reading = Reading.of(lesson(data, singmix(1.0, radius=0.0)))
    n, stream = 400, KeyedStream(b"matrix")
    images = torch.eye(n) - 1 / n
    made = Singmix(SingmixConfig(radius=0.0)).encode(
        Samples(images.view(n, 1, 1, n), torch.zeros(n, dtype=torch.int64)),
        Samples(images[:0].view(0, 1, 1, n), torch.zeros(0, dtype=torch.int64)),
        stream,
    )
    mixed = made.images.view(n, n)
    gram = mixed.T @ mixed
    ratio = float((gram @ gram).trace() / gram.trace())
    assert reading.again + reading.once == pytest.approx(ratio, rel=0.05)


def test_variances_are_those_of_images_that_did_not_choose_the_directions():
    rows = torch.randn(200, 64, generator=torch.Generator().manual_seed(1))
    found = components_of(rows, 64)
    assert found.variances.max() < 1.5  # in the sample itself the largest is 2.4
    basis = found.basis
    assert torch.allclose(basis.T @ basis, torch.eye(basis.shape[1]), atol=1e-4)


def test_the_share_between_classes_is_told_by_the_means_or_falls_where_noise_hides_it():
    stream = torch.Generator().manual_seed(2)
    variances = torch.ones(256)
    planted = torch.where(torch.arange(256) < 16, 0.3, 1e-4)
    error = torch.full((9, 256), 1e-3)
    means = torch.randn(9, 256, generator=stream) * (planted + error).sqrt()
    found = between_classes(means, error, variances)
    assert found[:16].log().sub(planted[:16].log()).abs().max() < 0.7
    assert found[32:].max() < 1e-3
    deaf = torch.full((9, 256), 1e4)
    hidden = between_classes(torch.randn(9, 256, generator=stream) * 100, deaf, variances)
    assert hidden.diff().max() <= 0
    assert hidden[-1] < 0.01


def test_a_network_without_batchnorm_sees_one_image_at_a_time():
    victim = built_in("cnn")
    with seeded(KeyedStream(b"weights"), CPU):
        model = without_batchnorm(victim.build((1, 28, 28), 10))
    assert not has_batchnorm(model)
    images = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(3))
    assert torch.allclose(model.train()(images)[:1], model(images[:1]), atol=1e-5)
