"""Inversion of features: what is minimised, which restart is kept, and what a decoder learns."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn
from views import attack, clothes, quiet, snr, view_of

from harness.api import CellFailed, Channel, NotApplicable, Samples, Scale
from harness_plugins.attacks.inversion import InversionConfig, harness_attacks
from harness_plugins.attacks.inversion.attack import Inversion
from harness_plugins.attacks.inversion.descent import restarted
from harness_plugins.attacks.inversion.objective import total_variation
from harness_plugins.attacks.inversion.whitening import Whitening

pytestmark = pytest.mark.numeric

PUBLIC = clothes(300, 1000)
(SPEC,) = harness_attacks()


def preset(name, **changes):
    return Inversion(InversionConfig(**{**SPEC.presets[name], **changes}))


def linear_encoder(inputs, outputs):
    """Flatten, and a matrix of orthonormal rows or columns times ten."""
    torch.manual_seed(1)
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, 10.0)
    return nn.Sequential(nn.Flatten(), layer)


@cache
def square_encoder():
    """An invertible one for 28 x 28 pixels."""
    return linear_encoder(784, 784)


def features_view(encoder, private, public=PUBLIC, **frame):
    with torch.no_grad():
        released = encoder(private.images)
    channels = {Channel.FEATURES: released, Channel.FEATURE_ENCODER: encoder}
    if public is not None:
        channels[Channel.PUBLIC] = public
    return view_of(channels, private, **frame)


def vectors(n, seed):
    values = torch.randn(n, 1, 1, 10, generator=torch.Generator().manual_seed(seed))
    return Samples(values, torch.zeros(n, dtype=torch.int64))


UNBOUNDED = Scale((0.0,), (1.0,), None, None)


@pytest.mark.parametrize(
    ("public", "features"), [(None, "relative"), (PUBLIC, "whitened")], ids=["alone", "public"]
)
def test_an_invertible_encoder_is_inverted(public, features):
    """Without the penalties, which trade fidelity for plausible images."""
    private = clothes(4)
    view = features_view(square_encoder(), private, public)
    config = InversionConfig(
        features=features, lambda_tv=0, lambda_prior=0, shrinkage=10, restarts=1, steps=200
    )
    found = attack(Inversion(config), view)
    assert float(snr(found.images, private.images).min()) > 30


def test_one_step_of_the_papers_descent_is_that_of_its_equation():
    """From zeros: s = -lr d/ds ‖As - z‖ / ‖z‖; total variation is flat there."""
    encoder, private = linear_encoder(10, 6), vectors(3, 0)
    nn.init.zeros_(encoder[1].bias)
    view = features_view(encoder, private, None, scale=UNBOUNDED)
    images = attack(preset("paper", steps=1, lr=0.5), view).images
    matrix, z = encoder[1].weight.detach(), view.features
    expected = 0.5 * (z @ matrix) / z.norm(dim=1, keepdim=True).square()
    torch.testing.assert_close(images.flatten(1), expected)


def test_weight_decay_and_total_variation_move_the_second_step():
    encoder, private = linear_encoder(10, 6), vectors(3, 0)
    view = features_view(encoder, private, None, scale=UNBOUNDED)
    matrix, bias = encoder[1].weight.detach(), encoder[1].bias.detach()
    s = torch.zeros(3, 10)
    for _ in range(2):
        off = s @ matrix.T + bias - view.features
        data = (off / off.norm(dim=1, keepdim=True)) @ matrix
        sign = (s[:, 1:] - s[:, :-1]).sign()
        rough = torch.zeros(3, 10)
        rough[:, 1:] += sign
        rough[:, :-1] -= sign
        data = data / view.features.norm(dim=1, keepdim=True)
        s = s - 0.1 * (data + 0.3 * rough + 0.2 * s)
    plugin = preset("paper", steps=2, lr=0.1, lambda_tv=0.3, weight_decay=0.2)
    torch.testing.assert_close(attack(plugin, view).images.flatten(1), s)


def test_total_variation_is_isotropic():
    image = torch.tensor([[0.0, 3.0], [4.0, 4.0]]).view(1, 1, 2, 2).requires_grad_()
    value = total_variation(image)
    assert value.item() == pytest.approx(math.hypot(4, 3) + 1 + 0)
    flat = torch.zeros(1, 1, 3, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(total_variation(flat).sum(), flat)
    assert torch.equal(gradient, torch.zeros_like(flat))


@pytest.mark.parametrize("count", [500, 12])
def test_whitening_is_the_inverse_root_of_the_shrunk_covariance(count):
    rows = torch.randn(count, 20) @ torch.randn(20, 20)
    centred = rows - rows.mean(0)
    covariance = centred.T @ centred / count
    ridge = 0.1 * covariance.trace() / 20 * torch.eye(20)
    probe = torch.randn(4, 20)
    expected = (probe @ torch.linalg.inv(covariance + ridge) * probe).sum(1)
    found = Whitening.of(rows, 0.1).apply(probe).square().sum(1)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def toy(loss_of, count=3, **options):
    """Restarts on a loss of one's own, over vectors without bounds."""
    view = features_view(nn.Flatten(), vectors(count, 0), None, scale=UNBOUNDED)
    plain = {"features": "raw", "lambda_prior": 0, "lambda_tv": 0, "steps": 1, "lr": 1e-6}
    config = InversionConfig(**{**plain, **options})
    start = torch.zeros(count, 1, 1, 10)
    return restarted(loss_of, view.features, start, config, view, quiet)


def test_of_the_restarts_the_one_with_the_lowest_loss_is_kept():
    """The loss grows with the first number: the noise that drew it lowest wins, for each image."""
    firsts = []

    def loss_of(images, released):
        if not torch.is_grad_enabled():
            firsts.append(images[:, 0, 0, 0].clone())
        return images[:, 0, 0, 0]

    found = toy(loss_of, restarts=6)
    lowest = torch.stack(firsts).min(0).values
    assert torch.equal(found.images[:, 0, 0, 0], lowest)
    assert torch.equal(found.loss, lowest)
    assert len(set(torch.stack(firsts).argmin(0).tolist())) > 1


def test_diverged_restarts_are_dropped_and_counted():
    """A start with a positive first number has no loss."""
    seen = []

    def loss_of(images, released):
        first = images[:, 0, 0, 0]
        if not torch.is_grad_enabled():
            seen.append(int((first > 0.1).sum()))
        return first.masked_fill(first > 0.1, torch.nan)

    found = toy(loss_of, restarts=6)
    assert found.diverged == sum(seen) > 0
    assert found.loss.isfinite().all()


class Touchy(nn.Module):
    """The pixels; but a search for the images numbered `hopeless` finds no numbers."""

    def __init__(self, hopeless):
        super().__init__()
        self.hopeless = sorted(hopeless)

    def forward(self, images):
        """[n, pixels]."""
        flat = images.flatten(1)
        if not images.requires_grad:
            return flat
        bad = torch.zeros(len(flat), 1, dtype=torch.bool)
        bad[self.hopeless] = True
        return flat.masked_fill(bad, torch.nan)


def test_images_whose_restarts_all_diverged_are_left_out_of_the_answer():
    private = vectors(4, 0)
    view = features_view(Touchy({1}), private, None, scale=UNBOUNDED)
    found = attack(preset("paper", lr=0.1, steps=5, restarts=2), view)
    assert found.targets.tolist() == [0, 2, 3]
    assert found.diagnostics["diverged_restarts"] == 2
    assert found.images.isfinite().all()


def test_an_attack_that_diverged_everywhere_has_failed():
    view = features_view(Touchy({0, 1}), vectors(2, 0), None, scale=UNBOUNDED)
    with pytest.raises(CellFailed, match="all 6 descents on 2 images diverged; try a smaller lr"):
        attack(preset("paper", restarts=3, steps=2), view)


def test_vectors_without_bounds_are_inverted():
    private = vectors(5, 0)
    encoder = linear_encoder(10, 10)
    view = features_view(encoder, private, None, scale=UNBOUNDED)
    found = attack(preset("synthetic", lr=2e-3, steps=700), view)
    assert found.images.shape == (5, 1, 1, 10)
    assert float((found.images - private.images).abs().max()) < 0.2
    assert float(private.images.abs().max()) > 1


def test_features_that_tell_nothing_are_answered_with_a_likely_image():
    """A dead network: its features do not vary, and the prior is all there is."""
    dead = nn.Sequential(nn.Flatten(), nn.Linear(784, 5), nn.Threshold(1e9, 0.0))
    private = clothes(8)
    found = attack(preset("quick"), features_view(dead, private))
    assert float(snr(found.images, private.images).mean()) > 0
    assert found.diagnostics["diverged_restarts"] == 0


@pytest.mark.parametrize("name", ["paper", "quick"])
def test_the_order_of_the_targets_is_that_of_the_features(name):
    private, order = clothes(6), torch.tensor([3, 1, 5, 0, 2, 4])
    encoder = nn.Sequential(nn.AvgPool2d(4), nn.Flatten())
    plugin = preset(name, steps=20, restarts=1)
    straight = attack(plugin, features_view(encoder, private)).images
    turned = attack(plugin, features_view(encoder, private[order])).images
    torch.testing.assert_close(turned, straight[order], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("options", [{}, {"gan": True, "decoder_lr": 5e-3}])
def test_a_decoder_beats_the_mean_image(options):
    private = clothes(40)
    encoder = nn.Sequential(nn.AvgPool2d(4), nn.Flatten())
    tiny = {"method": "decoder", "base": 4, "batch": 16, "epochs": 8, "images": 160}
    found = attack(Inversion(InversionConfig(**tiny, **options)), features_view(encoder, private))
    mean = PUBLIC.images.mean(0).expand_as(private.images)
    gain = snr(found.images, private.images) - snr(mean, private.images)
    assert float(gain.mean()) > 0.3


def test_a_decoder_without_public_images_says_what_it_lacks():
    view = features_view(nn.Flatten(), clothes(4), None)
    with pytest.raises(NotApplicable, match="trained on public images"):
        attack(Inversion(InversionConfig(method="decoder")), view)


def test_features_of_another_encoder_are_refused():
    view = features_view(nn.Flatten(), clothes(4), None)
    odd = {**view.channels, Channel.FEATURES: torch.zeros(4, 7)}
    with pytest.raises(CellFailed, match=r"shape \(7,\), and the encoder makes \(784,\)"):
        attack(preset("paper"), replace(view, channels=odd))


def test_what_learns_nothing_of_public_images_is_not_given_them():
    assert preset("paper").config.forgoes() == {Channel.PUBLIC}
    assert not preset("standard").config.forgoes()
    assert not preset("decoder").config.forgoes()


def test_whitening_needs_public_images():
    view = features_view(square_encoder(), clothes(2), None)
    with pytest.raises(NotApplicable, match="measures features by public images"):
        attack(Inversion(InversionConfig()), view)


def test_whitening_has_a_measure_for_directions_beyond_the_largest():
    torch.manual_seed(0)
    rows = torch.randn(3000, 1200)
    lengths = Whitening.of(rows, 1e-3).apply(rows - rows.mean(0)).square().sum(1)
    assert float(lengths.mean() / 1200) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(("options", "busy"), [({}, "steps"), ({"method": "decoder"}, "epochs")])
def test_twice_the_effort_is_twice_what_the_method_does(options, busy):
    assert InversionConfig(**options).busiest() == busy


def test_a_gan_without_a_decoder_is_refused():
    with pytest.raises(ValueError, match="add method=decoder"):
        InversionConfig(gan=True)


def test_a_decoder_that_went_wild_is_a_failure():
    view = features_view(square_encoder(), clothes(4))
    with pytest.raises(CellFailed, match="training diverged"):
        attack(preset("decoder", epochs=1, base=4, decoder_lr=1.0, batch=16), _with_nan(view))


def _with_nan(view):
    """The same, where one public image is no number."""
    public = view.public
    broken = public.images.clone()
    broken[200, 0, 0, 0] = math.nan
    channels = {**view.channels, Channel.PUBLIC: Samples(broken, public.labels)}
    return replace(view, channels=channels)
