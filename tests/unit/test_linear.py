"""The linear attack against autograd, exact algebra, and the features it also inverts."""

from dataclasses import replace

import pytest
import torch
from views import attack, clothes, coloured, quiet, released, snr, stream, view_of

from harness.api import CellFailed, Channel, Config, Scale
from harness_plugins.attacks.linear import LinearConfig, harness_attacks
from harness_plugins.attacks.linear.descent import Objective, descend
from harness_plugins.attacks.linear.invert import Linear
from harness_plugins.defenses.none import NoDefense
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix
from harness_plugins.mixtures.mixture import Mixture

pytestmark = pytest.mark.numeric

WEIGHTS = torch.tensor([[[0.6, 0.3, 0.1], [0.5, 0.5, 0.0], [0.2, 0.4, 0.4], [0.7, 0.2, 0.1]]])
SOURCES = torch.tensor([[[0, 1, 2], [1, 0, 2], [2, 2, 1], [0, 3, 2]]])


def dense(mixture):
    rows = torch.zeros(len(mixture.sources), mixture.n)
    for row, (sources, weights) in enumerate(zip(mixture.sources, mixture.weights, strict=True)):
        for source, weight in zip(sources, weights, strict=True):
            rows[row, source] += weight
    return rows


def side_by_side(view, times):
    """The same release so many times, of as many different private images."""
    n = view.n_private
    apart = n * torch.arange(times).repeat_interleave(n).view(1, -1, 1)
    copies = {
        Channel.ENCODINGS: view.encodings.repeat(1, times, 1, 1, 1),
        Channel.WEIGHTS: view.weights.repeat(1, times, 1),
        Channel.SOURCES: view.sources.repeat(1, times, 1) + apart,
        Channel.N_PRIVATE: n * times,
    }
    return replace(view, channels={**view.channels, **copies})


def test_the_sparse_mixture_is_the_dense_one_with_repeated_sources_too():
    mixture = Mixture.of(WEIGHTS, SOURCES, 4)
    whole, images, rows = dense(mixture), torch.randn(4, 5), torch.randn(4, 5)
    torch.testing.assert_close(mixture.apply(images), whole @ images)
    torch.testing.assert_close(mixture.gather(rows), whole.T @ rows)
    torch.testing.assert_close(mixture.gram().to_dense(), whole.T @ whole)


def test_public_images_of_a_mixture_count_as_noise():
    mixture = Mixture.of(WEIGHTS, SOURCES, 3)  # source 3 is now the first public image
    assert float(mixture.apply(torch.ones(3, 1))[3]) == pytest.approx(0.8)


@pytest.mark.parametrize("size", [(4, 6), (1, 24), (24, 1)])
def test_the_gradient_by_hand_is_the_gradient_of_autograd(size):
    generator = torch.Generator().manual_seed(0)
    observed = torch.randn(4, 24, generator=generator)
    images = torch.randn(4, 24, generator=generator).requires_grad_()
    objective = Objective(Mixture.of(WEIGHTS, SOURCES, 4), observed, size, 0.3, 0.2)
    (expected,) = torch.autograd.grad(objective.value(images), images)
    found = torch.empty(4, 24)
    objective.gradient()(images.detach(), found)
    torch.testing.assert_close(found, expected)


def test_descent_without_penalties_finds_the_solution_inside_the_bounds():
    truth = torch.rand(4, 24, generator=torch.Generator().manual_seed(1))
    mixture = Mixture.of(WEIGHTS, SOURCES, 4)
    objective = Objective(mixture, mixture.apply(truth), (4, 6), 0.0, 0.0)
    found = descend(objective, (0.0, 1.0), 3000, 0.02, lambda _: None)
    torch.testing.assert_close(found, truth, atol=1e-2, rtol=0)


def test_noise_free_mixtures_come_back_under_their_own_names():
    private = clothes(60)
    view = released(Singmix(SingmixConfig(radius=0)), private, clothes(20, 100), rounds=4)
    found = attack(Linear(LinearConfig(steps=600, lambda_tv=0, lambda_2=0)), view)
    assert float(snr(found.images, private.images[found.targets]).mean()) > 25


def test_undefended_images_come_back():
    private = clothes(40)
    found = attack(Linear(LinearConfig()), released(NoDefense(Config()), private, clothes(20, 100)))
    assert float(snr(found.images, private.images[found.targets]).mean()) > 20


def test_strong_noise_fills_images_with_extremes_as_the_paper_reports():
    # zeros would score 0 dB; on Fashion-MNIST this attack scores about -5.4 at tau = 1e-3
    private = clothes(500)
    view = released(Singmix(SingmixConfig(tau=1e-3)), private, clothes(20, 600))
    found = attack(Linear(LinearConfig()), view)
    score = float(snr(found.images, private.images[found.targets]).mean())
    assert score == pytest.approx(-5.4, abs=0.6)


def test_a_release_at_another_resolution_is_solved_there_and_brought_back():
    private = coloured(clothes(30), (12, 20))
    scale = Scale((0.4,) * 3, (0.3,) * 3)
    defense = Singmix(SingmixConfig(radius=0, resolution=40))
    view = released(defense, private, coloured(clothes(5, 90), (12, 20)), scale=scale)
    found = attack(Linear(LinearConfig(steps=50)), view)
    assert found.images.shape == (30, 3, 12, 20)


def test_encodings_that_are_no_images_are_refused_with_a_reason():
    private = clothes(8)
    view = released(NoDefense(Config()), private, clothes(5, 90))
    maps = {**view.channels, Channel.ENCODINGS: torch.zeros(1, 8, 512, 3, 3)}
    with pytest.raises(CellFailed, match="are not images"):
        Linear(LinearConfig()).reconstruct(view_of(maps, private), {}, None, quiet)


def test_features_of_a_linear_layer_are_inverted_by_ridge_regression():
    private, public = clothes(50), clothes(800, 100)
    layer = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 600))
    with torch.no_grad():
        layer[1].weight.copy_(torch.randn(600, 784, generator=stream().generator()))
        features = layer(private.images)
    channels = {
        Channel.FEATURES: features,
        Channel.FEATURE_ENCODER: layer.eval(),
        Channel.PUBLIC: public,
    }
    found = attack(Linear(LinearConfig()), view_of(channels, private))
    mean = public.images.mean(0).expand_as(private.images)
    scores = snr(found.images, private.images[found.targets])
    assert float(scores.mean()) > float(snr(mean, private.images).mean()) + 5
    assert set(found.diagnostics) == {"ridge_penalty", "held_out_mse"}


def test_the_defaults_are_the_papers_constants():
    (spec,) = harness_attacks()
    assert spec.config(**spec.presets["paper"]) == spec.config()


def test_copies_of_a_release_come_back_as_the_release_itself_does():
    # with a mean over all images as its loss .3 dB are lost: Adam's eps outweighs the gradients
    private = clothes(20)
    view = released(Singmix(SingmixConfig(radius=0)), private, clothes(20, 100))
    alone = attack(Linear(LinearConfig(steps=40)), view)
    many = attack(Linear(LinearConfig(steps=40)), side_by_side(view, 200))
    first, last = (many.images[part] for part in (slice(0, 20), slice(-20, None)))
    assert float(snr(first, private.images).mean()) == pytest.approx(
        float(snr(alone.images, private.images).mean()), abs=0.01
    )
    torch.testing.assert_close(first, last)
