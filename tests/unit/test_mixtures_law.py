"""What an attacker learns from images of its own: noise, subspace, classes, prior."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import one_hot
from views import BUDGET, clothes, coloured, quiet, released, stream

from harness.api import Config, Encoded, Samples, Secrets
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.defenses.noise import NoiseConfig
from harness_plugins.defenses.noise.encode import Noise
from harness_plugins.defenses.none import NoDefense
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix
from harness_plugins.mixing import draw_sources, draw_weights, mix
from harness_plugins.mixtures import prior as priors
from harness_plugins.mixtures.classes import class_shares
from harness_plugins.mixtures.law import NoiseLaw, learn_law
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.mixtures.prior import GaussianPrior, learn_prior, prior_of
from harness_plugins.mixtures.subspace import Subspace
from harness_plugins.resizing import resize

PUBLIC = clothes(800, 100)


def law_of(defense):
    view = released(defense, clothes(40), PUBLIC)
    return learn_law(view, Subspace.between(view.shape, view.encodings[0], "auto"))


@pytest.mark.parametrize("noise", ["sphere", "gaussian"])
@pytest.mark.parametrize("radius", [5.0, 500.0])
def test_the_cover_of_singularized_mixup_is_measured(noise, radius):
    law = law_of(Singmix(SingmixConfig(radius=radius, noise=noise)))
    assert law.gain == 1
    assert law.cover == pytest.approx(radius**2 / 784, rel=0.03)
    own = torch.tensor([[0.35, 0.65], [0.6, 0.4]])
    told = law.power(own) / ((1 - own[:, 0]).double().square() * radius**2 / 784)
    torch.testing.assert_close(told, torch.ones(2, dtype=torch.float64), atol=0.03, rtol=0)


def test_a_faded_image_under_noise_has_both_its_gain_and_its_power_told():
    law = law_of(Noise(NoiseConfig(kind="gaussian", alpha=0.3, scale=0.5)))
    assert law.gain == 1  # of the image times its weight, which is .7
    assert float(law.power(torch.ones(1, 1))) == pytest.approx(2 * 0.5**2, rel=0.03)


@pytest.mark.parametrize("defense", [NoDefense(Config()), Mixup(MixupConfig(k=2))])
def test_without_noise_nothing_but_rounding_is_left(defense):
    law = law_of(defense)
    assert law.gain == 1
    assert float(law.power(torch.full((1, 2), 0.5))) < 1e-13


def test_random_signs_leave_no_trace():
    assert law_of(InstaHide(InstaHideConfig(k=2))).hidden


class Patched(Mixup):
    """The third image of each mixture is public, as in cross-dataset InstaHide, but unmasked."""

    def encode(self, private, public, rng):
        weights = draw_weights(len(private), 3, rng, max_weight=0.65)
        sources = draw_sources(len(private), 2, rng)
        chosen = rng.integers(len(public), len(private), 1)
        images = mix(private.images, sources, weights[:, :2].contiguous())
        images += mix(public.images, chosen, weights[:, 2:].contiguous())
        secrets = Secrets(weights, torch.cat([sources, len(private) + chosen], 1))
        return Encoded(images, torch.zeros(len(private), 10), secrets)


def test_public_images_of_a_mixture_are_noise_like_images():
    law = law_of(Patched(MixupConfig(k=2)))
    assert law.gain == pytest.approx(1, abs=0.05)
    assert law.patches == pytest.approx(1, abs=0.15)
    mixture = Mixture.of(torch.tensor([[[0.5, 0.3, 0.2]]]), torch.tensor([[[0, 1, 2]]]), 2)
    told = NoiseLaw(1.0, 0.0, 0.0, 2.0, 0.0).patched(mixture)
    assert float(told) == pytest.approx(2 * 0.2**2)


def subspace(shape=(3, 12, 16), size=40):
    return Subspace.between(shape, torch.zeros(1, 3, size, size), "auto")


def test_coordinates_of_resized_images_lead_back_to_the_images():
    images, space = coloured(clothes(6), (12, 16)).images, subspace()
    torch.testing.assert_close(space.recover(space.embed(images)), images, atol=1e-4, rtol=1e-4)
    projected = space.project(resize(images, 40, 40))
    torch.testing.assert_close(projected, space.embed(images), atol=1e-4, rtol=1e-4)


def test_white_noise_stays_white_in_the_subspace_and_loses_what_lies_outside():
    noise = torch.randn(4000, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    inside = subspace((3, 4, 4)).project(noise)
    torch.testing.assert_close(inside.T @ inside / 4000, torch.eye(48), atol=0.12, rtol=0)


def test_encodings_of_the_images_own_shape_need_no_subspace():
    space = Subspace.between((16, 3, 3), torch.zeros(2, 16, 3, 3), "auto")
    assert space.trivial
    assert space.recover(space.project(torch.ones(2, 16, 3, 3))).shape == (2, 16, 3, 3)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_soft_labels_tell_the_class_of_each_image_also_within_one_class(k):
    n, rng = 300, stream(use="owner")
    weights, sources = draw_weights(n, k, rng, max_weight=0.9), draw_sources(n, k, rng)
    hard = one_hot(rng.integers(4, n), 4).float()  # of four classes: a quarter of pairs are alike
    mixture = Mixture.of(weights[None], sources[None], n)
    shares = class_shares(mixture, mixture.apply(hard))
    assert float((shares.argmax(1) == hard.argmax(1)).float().mean()) > 0.99


def test_weights_that_are_alike_leave_it_open_which_image_is_of_which_class():
    mixture = Mixture.of(torch.full((1, 1, 2), 0.5), torch.tensor([[[0, 1]]]), 2)
    shares = class_shares(mixture, torch.tensor([[0.5, 0.5, 0.0]]))
    torch.testing.assert_close(shares, torch.tensor([[0.5, 0.5, 0.0]] * 2))


def gaussian(n, d=30):
    generator = torch.Generator().manual_seed(0)
    directions, _ = torch.linalg.qr(torch.randn(d, d, generator=generator))
    variances = torch.arange(1, d + 1).float().pow(-1)
    images = 2 + (torch.randn(n, d, generator=generator) * variances.sqrt()) @ directions.T
    covariance = directions @ (variances.view(-1, 1) * directions.T)
    return Samples(images.view(n, d, 1, 1), torch.arange(n) % 10), covariance


def test_a_known_covariance_is_recovered_from_samples_and_from_itself():
    samples, covariance = gaussian(20_000)
    for found in (
        prior_of(samples, 10, "public", 4000),
        GaussianPrior.known(torch.full((30,), 2.0), covariance),
    ):
        rebuilt = found.basis @ (found.variances.view(-1, 1) * found.basis.T)
        assert float((rebuilt - covariance).norm() / covariance.norm()) < 0.05
        torch.testing.assert_close(found.mean, torch.full((30,), 2.0), atol=0.05, rtol=0)


def test_variances_fall_the_basis_is_orthonormal_and_whitening_whitens():
    prior = prior_of(clothes(900), 10, "class", 4000)
    assert bool((prior.variances.diff() <= 0).all())
    assert bool((prior.variances > 0).all())
    torch.testing.assert_close(prior.basis.T @ prior.basis, torch.eye(784), atol=1e-4, rtol=0)
    assert prior.complete
    assert float(prior.kept) == pytest.approx(1, abs=1e-4)
    samples, _ = gaussian(20_000)
    known = prior_of(samples, 10, "public", 4000)
    white = known.whiten(known.embed(samples.images))
    torch.testing.assert_close(white.T @ white / len(white), torch.eye(30), atol=0.1, rtol=0)


def test_class_means_are_those_of_the_public_images():
    prior = prior_of(clothes(900), 10, "class", 4000)
    seen = clothes(900)[90:]
    rows = seen.images.flatten(1)
    torch.testing.assert_close(prior.means[3], rows[seen.labels == 3].mean(0))
    torch.testing.assert_close(prior.mean, rows.mean(0))


def test_where_dimensions_are_too_many_a_share_is_kept_and_told(monkeypatch):
    monkeypatch.setattr(priors, "LARGEST", 100)
    monkeypatch.setattr(priors, "_COMPONENTS", 60)
    prior = prior_of(clothes(900), 10, "public", 4000)
    assert prior.basis.shape == (784, 60)
    assert not prior.complete
    held = clothes(90).images.flatten(1) - prior.mean
    share = (held @ prior.basis).square().sum() / held.square().sum()
    assert 0.7 < float(prior.kept) < 0.98
    assert float(prior.kept) == pytest.approx(float(share), rel=1e-3)
    assert float(prior.total) == pytest.approx(float(held.square().sum() / 90), rel=1e-3)


def test_the_preparation_is_what_the_attacks_read():
    view = released(NoDefense(Config()), clothes(10), PUBLIC)
    made = learn_prior(view, BUDGET, quiet, mean="class")
    view = replace(view, shared={f"gaussian-prior.{name}": value for name, value in made.items()})
    assert torch.equal(
        GaussianPrior.of(view).means, prior_of(PUBLIC, 10, "class", BUDGET.megabytes).means
    )
