"""The noise that InstaHide is compared with, against section 5.2 of its paper."""

import math

import pytest
import torch
from pydantic import ValidationError
from scipy.stats import kstest
from torch.nn.functional import one_hot
from views import clothes, stream

from harness.api import Samples
from harness_plugins.defenses.noise import NoiseConfig
from harness_plugins.defenses.noise.encode import Noise, mean_absolute


def encode(samples, seed=0, **config):
    return Noise(NoiseConfig(**config)).encode(samples, samples, stream(use="owner", seed=seed))


def noise_of(encoded, private):
    """[n, d] float64: what was added to the faded images."""
    share = encoded.secrets.weights.double()
    return encoded.images.flatten(1).double() - share * private.images.flatten(1).double()


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_laplace_noise_is_as_large_as_the_image_it_stands_for(alpha):
    private = clothes(300)
    noise = noise_of(encode(private, alpha=alpha), private)
    stood_for = alpha * private.images.flatten(1).double().abs().sum(1).mean()
    assert float(noise.abs().sum(1).mean()) == pytest.approx(float(stood_for), rel=0.01)


def test_gaussian_noise_has_the_energy_of_laplace_noise():
    private = clothes(300)
    kinds = [noise_of(encode(private, kind=kind), private) for kind in ("laplace", "gaussian")]
    laplace, gaussian = (float(noise.square().sum(1).mean()) for noise in kinds)
    assert gaussian == pytest.approx(laplace, rel=0.02)


@pytest.mark.parametrize(("kind", "law"), [("laplace", "laplace"), ("gaussian", "norm")])
def test_noise_has_its_law(kind, law):
    blank = Samples(torch.zeros(20, 1, 30, 30), torch.arange(20) % 10)
    noise = noise_of(encode(blank, kind=kind, scale=0.7), blank).flatten().numpy()
    deviation = 0.7 * (math.sqrt(2) if kind == "gaussian" else 1)
    assert kstest(noise, law, args=(0, deviation)).pvalue > 1e-3


def test_images_fade_and_labels_stay():
    private = clothes(50)
    encoded = encode(private, alpha=0.3, scale=0)
    torch.testing.assert_close(encoded.images, 0.7 * private.images)
    assert torch.equal(encoded.labels, one_hot(private.labels, 10).float())
    assert torch.equal(encoded.secrets.sources, torch.arange(50).view(-1, 1))
    torch.testing.assert_close(encoded.secrets.weights, torch.full((50, 1), 0.7))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_resolved_scale_encodes_by_the_same_law(kind):
    private = clothes(100)
    first = encode(private, kind=kind, alpha=0.4)
    again = encode(private, kind=kind, alpha=0.4, **first.resolved)
    assert torch.equal(first.images, again.images)
    mine = encode(clothes(30, start=500), kind=kind, alpha=0.4, **first.resolved)
    assert mine.resolved == first.resolved


def test_every_round_has_one_scale_and_noise_of_its_own():
    defense, private = Noise(NoiseConfig()), clothes(100)
    first, second = (defense.encode(private, private, stream(round=t)) for t in (0, 1))
    assert first.resolved == second.resolved
    assert not torch.equal(first.images, second.images)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_encodings_are_the_same_on_any_number_of_threads(kind):
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        results.append(encode(clothes(700), kind=kind))
    torch.set_num_threads(threads)
    assert torch.equal(results[0].images, results[1].images)
    assert results[0].resolved == results[1].resolved


def test_the_scale_is_the_mean_of_all_numbers():
    images = clothes(700).images  # more numbers than one block holds
    assert mean_absolute(Samples(images, torch.zeros(len(images)))) == pytest.approx(
        float(images.double().abs().mean()), rel=1e-12
    )


def test_feature_maps_are_covered_alike():
    maps = Samples(torch.randn(12, 5, 3, 2), torch.arange(12) % 10)
    assert encode(maps).images.shape == (12, 5, 3, 2)


@pytest.mark.parametrize(
    ("wrong", "bound"),
    [
        ({"alpha": 0}, "greater than 0"),
        ({"alpha": 1}, "less than 1"),
        ({"alpha": -0.2}, "greater than 0"),
        ({"kind": "uniform"}, "'laplace' or 'gaussian'"),
        ({"scale": -1}, "greater than or equal to 0"),
        ({"scale": float("inf")}, "finite"),
    ],
)
def test_values_that_cannot_be_are_refused(wrong, bound):
    with pytest.raises(ValidationError, match=bound):
        NoiseConfig(**wrong)
