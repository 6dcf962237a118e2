"""`classmeans`: class prototypes from encodings and soft labels."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from views import BUDGET, MIXTURE, attack, clothes, quiet, released, stream, view_of

from harness.api import Channel, Config, Samples
from harness_plugins.attacks.classmeans import ClassMeansConfig
from harness_plugins.attacks.classmeans.exercise import measure_law
from harness_plugins.attacks.classmeans.membership import own_class
from harness_plugins.attacks.classmeans.posterior import (
    Belief,
    class_means,
    least_squares,
    posterior,
)
from harness_plugins.attacks.classmeans.prototypes import ClassMeans
from harness_plugins.attacks.classmeans.sums import Sums
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.defenses.noise import NoiseConfig
from harness_plugins.defenses.noise.encode import Noise
from harness_plugins.defenses.none import NoDefense
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix
from harness_plugins.mixtures.prior import learn_prior

PRIVATE, PUBLIC = clothes(400), clothes(600, 1000)
TRUTH, _ = class_means(PRIVATE, 10)


@cache
def shared():
    pool = view_of({Channel.PUBLIC: PUBLIC}, PRIVATE)
    learned = learn_prior(pool, BUDGET, quiet, mean="class")
    return {f"gaussian-prior.{name}": tensor for name, tensor in learned.items()}


def prototypes(defense, prior="classes", **options):
    view = replace(released(defense, PRIVATE, PUBLIC, **options), shared=shared())
    return attack(ClassMeans(ClassMeansConfig(prior=prior)), view)


def decibels(means):
    wrong = (means.flatten(1) - TRUTH).square().sum(1).clamp(min=1e-9)
    return float((10 * torch.log10(TRUTH.square().sum(1) / wrong)).mean())


def null():
    return decibels(class_means(PUBLIC, 10)[0])


def reached(defense, prior="classes", **options):
    return decibels(prototypes(defense, prior, **options).claims["class_means"])


def test_undefended_class_means_are_exact():
    assert reached(NoDefense(Config()), "none") > 80
    assert reached(NoDefense(Config())) > 35


def test_noise_free_mixtures_tell_more_than_the_public_pool():
    assert reached(Mixup(MixupConfig(k=2))) > null() + 3


@pytest.mark.parametrize("tau", [1e-1, 1e-2, 1e-4, 1e-8])
def test_what_is_known_before_is_never_lost(tau):
    assert reached(Singmix(SingmixConfig(tau=tau))) > null() - 0.1


def test_the_release_alone_tells_less_and_less():
    scores = [reached(Singmix(SingmixConfig(tau=tau)), "spread") for tau in (1, 1e-2, 1e-6)]
    assert scores[0] > scores[1] + 1 > scores[2] + 2


def test_every_round_adds():
    defense = Singmix(SingmixConfig(tau=1e-2))
    assert reached(defense, "spread", rounds=8) > reached(defense, "spread") + 2


def test_random_signs_leave_what_was_known():
    found = prototypes(InstaHide(InstaHideConfig(k=2)))
    assert found.diagnostics["mixture_gain"] == 0
    assert decibels(found.claims["class_means"]) == pytest.approx(null(), abs=0.05)


def test_a_faded_release_is_not_taken_for_faded_classes():
    defense = Noise(NoiseConfig(alpha=0.5))
    assert reached(defense) > null() + 3
    assert reached(defense, without=MIXTURE) > null() + 3


def test_without_public_images_there_is_least_squares():
    without = (*MIXTURE, Channel.PUBLIC, Channel.ENCODER)
    bare = reached(Mixup(MixupConfig(k=2)), without=without)
    assert bare > 15
    assert reached(Mixup(MixupConfig(k=2)), "none", without=without) == pytest.approx(bare)


def test_an_upsampled_release_is_projected_back():
    small = reached(Singmix(SingmixConfig(radius=300)), "spread")
    large = reached(Singmix(SingmixConfig(radius=600, resolution=56)), "spread")  # as loud a value
    assert large > small + 1


def test_each_row_is_answered_with_its_own_classs_mean():
    defense = Mixup(MixupConfig(k=4))
    view = replace(released(defense, PRIVATE, PUBLIC), shared=shared())
    found = attack(ClassMeans(ClassMeansConfig()), view)
    labels = PRIVATE.labels[view.sources[0, :, 0]]
    assert torch.equal(found.rows, torch.arange(400))
    right = (found.images == found.claims["class_means"][labels]).flatten(1).all(1)
    assert float(right.float().mean()) > 0.98


def test_without_weights_a_row_is_answered_with_what_its_label_says():
    labels = torch.tensor([[0.0, 0.6, 0.4], [0.5, 0, 0]])
    assert torch.allclose(own_class(labels, None), torch.tensor([[0, 0.6, 0.4], [1, 0, 0]]))
    weights = torch.tensor([[0.4, 0.35, 0.25], [0.3, 0.5, 0.2]])
    told = torch.tensor([[0.0, 0.35, 0.65], [0.5, 0.5, 0]])
    assert own_class(told, weights).argmax(1).tolist() == [2, 0]
    faded = torch.tensor([[0.5], [0.5]])
    assert own_class(torch.eye(3)[1:], faded).argmax(1).tolist() == [1, 2]


def test_the_exercise_knows_the_law():
    view = released(Singmix(SingmixConfig(tau=1e-4)), PRIVATE, PUBLIC)
    law = measure_law(view)
    per_value = view.encoder.config.radius**2 / 784
    assert (law.gain, law.held) == (1, pytest.approx(1))
    # The noise is (1 - w)^2 r^2 / d a value; what images bring beside it is nothing here.
    assert law.slope == pytest.approx(per_value, rel=0.01)
    assert measure_law(released(NoDefense(Config()), PRIVATE, PUBLIC)).slope == 0
    assert measure_law(released(Noise(NoiseConfig(alpha=0.25)), PRIVATE, PUBLIC)).held == 0.75


def test_the_posterior_is_the_textbooks():
    """A dense Gaussian regression in float64 on a few dimensions."""
    classes, d, rows = 3, 4, 40
    rng = stream(use="textbook")
    labels = rng.uniform(rows, classes).double()
    labels /= labels.sum(1, keepdim=True)
    images = rng.normal(rows, d).double()
    start, variances = rng.normal(classes, d).double(), rng.uniform(classes, d) + 0.1
    noise = rng.uniform(d) + 0.5
    zero = torch.zeros(d).double()
    belief = Belief(start, variances, zero, torch.eye(d).double(), zero, zero.sum())
    gram, pull = labels.T @ labels, labels.T @ images
    found, errors = posterior(gram, pull, noise, belief)
    for q in range(d):
        precision = labels.T @ labels / noise[q] + torch.diag(1 / variances[:, q])
        right = labels.T @ images[:, q] / noise[q] + start[:, q] / variances[:, q]
        assert torch.allclose(found[:, q], torch.linalg.solve(precision, right))
        errors = errors - torch.linalg.inv(precision).diagonal()
    assert torch.allclose(errors, torch.zeros(classes).double(), atol=1e-12)


def test_blocks_sum_to_the_whole(monkeypatch):
    view = released(Singmix(SingmixConfig(tau=1)), PRIVATE, PUBLIC)
    law = measure_law(view)

    def summed():
        sums = Sums.none(10, view.encodings)
        sums.add(view.encodings[0], view.labels[0], view.weights[0], law)
        return sums

    whole = summed()
    monkeypatch.setattr("harness_plugins.attacks.classmeans.sums._NUMBERS", 784 * 33)
    parts = summed()
    assert parts.count == whole.count == 400
    assert torch.allclose(parts.pull, whole.pull, rtol=1e-4, atol=1e-3)
    solved = least_squares(parts.gram, parts.pull.flatten(1))
    assert solved.shape == (10, 784)


def test_a_class_that_nobody_has_is_the_mean_of_all():
    kept = PUBLIC.labels != 3
    poor = Samples(PUBLIC.images[kept], PUBLIC.labels[kept])
    view = released(Singmix(SingmixConfig(tau=1e-12)), PRIVATE, poor)
    learned = learn_prior(view_of({Channel.PUBLIC: poor}, PRIVATE), BUDGET, quiet, mean="class")
    view = replace(view, shared={f"gaussian-prior.{k}": v for k, v in learned.items()})
    means = attack(ClassMeans(ClassMeansConfig()), view).claims["class_means"][3]
    assert torch.allclose(means.flatten(), learned["mean"], atol=0.1)


def test_a_class_that_no_label_names_keeps_what_was_known_of_it():
    gram, pull = torch.diag(torch.tensor([4.0, 0.0])), torch.tensor([[8.0, 4.0], [0.0, 0.0]])
    known = Belief(
        means=torch.tensor([[1.0, 1.0], [5.0, 6.0]]),
        origin=torch.zeros(2),
        basis=torch.eye(2),
        variances=torch.ones(2, 2),
        within=torch.ones(2),
        total=torch.tensor(2.0),
    )
    means, errors = posterior(gram, pull, torch.zeros(2), known)
    torch.testing.assert_close(means, torch.tensor([[2.0, 1.0], [5.0, 6.0]]))
    assert errors.isfinite().all()
