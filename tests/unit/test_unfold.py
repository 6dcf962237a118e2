"""Masked mixtures that are known: solved on absolute values, and after demasking."""

import pytest
import torch
from sign_views import PUBLIC, masked, prepared
from views import attack, clothes, coloured, released, snr, stream

from harness.api import Channel, Scale
from harness_plugins.attacks.unfold import harness_attacks
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.mixtures.prior import GaussianPrior
from harness_plugins.signs.unfolder import Unfolder, learn
from harness_plugins.unfolding import UnfoldConfig
from harness_plugins.unfolding.attack import Unfold
from harness_plugins.unfolding.magnitudes import Wishes, magnitudes_of
from harness_plugins.unfolding.signed import Folded, solved

(SPEC,) = harness_attacks()
SMALL = {"base": 8, "images": 900, "epochs": 2, "steps": 20}


def unfold(view, **options):
    config = UnfoldConfig(**{**SMALL, **options})
    return attack(Unfold(config), prepared(view, SPEC, config))


def folded(view, odds):
    mixture = Mixture.of(view.weights, view.sources, view.n_private)
    return Folded(view.encodings.flatten(0, 1).abs().flatten(1), odds, mixture)


def test_rounds_of_known_mixtures_give_the_images_back_signs_and_all():
    found = unfold(masked(rounds=8, k=2))
    assert torch.equal(found.targets, torch.arange(100))
    assert found.diagnostics["sweeps"] > 0
    assert float(snr(found.images, clothes(100).images).mean()) > 12
    assert found.diagnostics["public_snr_db"] > found.diagnostics["public_snr_db_absolute"] + 6


def test_the_score_on_public_images_foretells_the_one_on_private_ones():
    found = unfold(masked(rounds=3, k=2), way="signed")
    reached = float(snr(found.images, clothes(100).images).mean())
    assert abs(found.diagnostics["public_snr_db"] - reached) < 1.5


def test_a_few_wrong_signs_are_put_right_by_the_rounds():
    view, private = masked(60, rounds=12, k=2), clothes(60)
    mixture = Mixture.of(view.weights, view.sources, 60)
    truth = mixture.apply(private.images.flatten(1))
    doubted = torch.where(torch.rand(truth.shape, generator=seeded()) < 0.1, -1.0, 1.0)
    *_, images = solved(folded(view, truth.sign() * doubted), flat_prior(784), 12)
    assert float(snr(images.view_as(private.images), private.images).median()) > 40


def test_one_sweep_is_the_regularised_least_squares_of_the_guessed_mixtures():
    view = masked(10, rounds=2, k=2)
    mixture = Mixture.of(view.weights, view.sources, 10)
    truth = mixture.apply(clothes(10).images.flatten(1))
    certain = folded(view, 20 * truth.sign())
    (images,) = solved(certain, flat_prior(784), 1)
    design = mixture.apply(torch.eye(10))
    normal = design.T @ design / 0.003**2 + torch.eye(10)
    expected = torch.linalg.solve(normal, design.T @ truth / 0.003**2)
    torch.testing.assert_close(images, expected, atol=2e-2, rtol=0)


def test_the_absolute_way_starts_at_the_answer_where_nothing_is_mixed():
    view = masked(20, rounds=3, k=1)
    seen = view.encodings.flatten(0, 1).flatten(1).abs()
    mixture = Mixture.of(view.weights, view.sources, 20)
    found = magnitudes_of(seen, mixture, 0, Wishes(0.05, 0.0, (1, 28, 28)), lambda step: None)
    torch.testing.assert_close(found, clothes(20).images.flatten(1).abs())


def test_the_absolute_way_explains_the_encodings_better_step_by_step():
    view = masked(30, rounds=4, k=2)
    seen = view.encodings.flatten(0, 1).flatten(1).abs()
    mixture = Mixture.of(view.weights, view.sources, 30)

    def misfit(steps):
        images = magnitudes_of(
            seen, mixture, steps, Wishes(0.0, 0.0, (1, 28, 28)), lambda step: None
        )
        return float((seen - mixture.apply(images).abs()).square().mean())

    assert misfit(100) < 0.95 * misfit(0)


def test_mixtures_without_masks_are_solved_as_they_are():
    private = clothes(60)
    view = released(Mixup(MixupConfig(k=2)), private, PUBLIC, rounds=3)
    found = unfold(view, way="signed")
    assert float(snr(found.images, private.images).median()) > 25


@pytest.mark.parametrize("scheme", ["inside", "cross"])
@pytest.mark.parametrize("way", ["absolute", "signed"])
def test_images_of_any_size_with_patches_among_them(scheme, way):
    scale = Scale((0.4,) * 3, (0.3,) * 3)
    private, pool = coloured(clothes(24), (17, 30)), coloured(PUBLIC[:80], (17, 30))
    defense = InstaHide(InstaHideConfig(k=3, scheme=scheme))
    view = released(defense, private, pool, rounds=2, scale=scale)
    found = unfold(view, way=way, base=4, images=80, epochs=1, sweeps=3)
    assert found.images.shape == private.images.shape
    assert torch.isfinite(found.images).all()


def test_the_unfolding_network_needs_nothing_but_public_images():
    view = masked(20, without=(Channel.ENCODER, Channel.ENCODINGS))
    torch.manual_seed(0)
    kept = learn(view, None, lambda *args: None, base=8, epochs=4, images=900)
    unfolder, images = Unfolder.restore(kept, 1), clothes(100).images
    right = (unfolder.signs(images.abs()) * images > 0).float().mean()
    trivial = max(float((images > 0).float().mean()), float((images < 0).float().mean()))
    assert float(right) > max(0.8, trivial + 0.05)
    assert float(snr(unfolder.apply(images.abs()), images).mean()) > 1.5


def seeded():
    return stream(use="signs").generator()


def flat_prior(d):
    return GaussianPrior.known(torch.zeros(d), torch.eye(d))


def test_the_pull_of_both_wishes_is_their_gradient():
    images = clothes(4).images.flatten(1).clone().requires_grad_()
    whole = images.abs().view(-1, 1, 28, 28)
    variation = whole.diff(dim=2).abs().sum() + whole.diff(dim=3).abs().sum()
    loss = 0.05 * (1 - images.abs()).mean() + 0.3 * variation / images.numel()
    (wanted,) = torch.autograd.grad(loss, images)
    with torch.no_grad():
        found = Wishes(0.05, 0.3, (1, 28, 28)).pull(images)
    torch.testing.assert_close(found, wanted)
