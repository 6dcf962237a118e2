"""Singularized mixup against the letter of its algorithm and both of its theorems."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.stats import ks_2samp
from torch.nn.functional import interpolate, one_hot
from views import clothes, stream

from harness.api import Samples
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.calibration import Spread, measure_spread
from harness_plugins.defenses.singmix.encode import Singmix, draw_weights
from harness_plugins.defenses.singmix.inversion import log_amplification


def encode(samples, seed=0, **config):
    return Singmix(SingmixConfig(**config)).encode(samples, samples, stream(use="owner", seed=seed))


def blank(n, pixels=3072):
    return Samples(torch.zeros(n, 1, 1, pixels), torch.arange(n) % 10)


def redrawn(n, alpha):
    """First weights by the paper's own words: draw two uniforms, normalise, redraw above alpha."""
    generator = np.random.default_rng(7)
    kept = np.empty(0)
    while len(kept) < n:
        pair = generator.random((n, 2))
        pair /= pair.sum(1, keepdims=True)
        kept = np.append(kept, pair[pair.max(1) <= alpha, 0])
    return kept[:n]


@pytest.mark.parametrize("alpha", [0.55, 0.65, 0.9, 0.999])
def test_weights_follow_the_law_that_redrawing_leaves(alpha):
    drawn = draw_weights(20_000, alpha, stream(use="weights"))
    assert ks_2samp(drawn[:, 0].numpy(), redrawn(20_000, alpha)).pvalue > 1e-3
    assert torch.equal(drawn.double().sum(1), torch.ones(20_000, dtype=torch.float64))
    assert drawn.max() <= alpha + 1e-7


def test_clipped_weights_would_be_told_apart():
    generator = np.random.default_rng(8)
    pair = generator.random((20_000, 2))
    clipped = np.clip(pair[:, 0] / pair.sum(1), 0.35, 0.65)
    assert ks_2samp(clipped, redrawn(20_000, 0.65)).pvalue < 1e-9


def test_the_larger_weight_may_be_the_images_own():
    encoded = encode(blank(2000, 4), radius=0, first="larger")
    own, partner = encoded.secrets.weights.T
    assert bool((own >= partner).all())
    larger = np.maximum(redrawn(2000, 0.65), 1 - redrawn(2000, 0.65))
    assert ks_2samp(own.numpy(), larger).pvalue > 1e-3


def test_alpha_of_a_half_leaves_one_pair_of_weights():
    assert torch.equal(draw_weights(50, 0.5, stream()), torch.full((50, 2), 0.5))


def test_noise_free_encodings_and_labels_are_the_secret_mixture():
    private = clothes(60)
    encoded = encode(private, radius=0)
    own, partner = encoded.secrets.sources.T
    first, second = encoded.secrets.weights.view(60, 2, 1, 1, 1).unbind(1)
    mixed = private.images[own] * first + private.images[partner] * second
    torch.testing.assert_close(encoded.images, mixed)
    hard = one_hot(private.labels, 10).float()
    soft = hard[own] * first.view(-1, 1) + hard[partner] * second.view(-1, 1)
    torch.testing.assert_close(encoded.labels, soft)
    assert torch.equal(own, torch.arange(60))
    assert torch.equal(partner.sort().values, torch.arange(60))


def test_the_permutation_is_uniform_fixed_points_included():
    # a uniform permutation has one fixed point on average, whatever its length
    rounds = [encode(blank(8, 4), seed, radius=0).secrets.sources for seed in range(400)]
    fixed = sum(float((own == partner).sum()) for own, partner in (s.T for s in rounds)) / 400
    assert fixed == pytest.approx(1, abs=4 / math.sqrt(400))


@pytest.mark.parametrize("radius", [1e-3, 86.9, 10317.0, 1e6])
def test_sphere_noise_has_its_norm_to_the_last_rounding(radius):
    encoded = encode(blank(64), radius=radius)
    second = encoded.secrets.weights[:, 1:].double()
    norms = (encoded.images.flatten(1).double() / second).norm(dim=1)
    assert (norms / radius - 1).abs().max() < 1e-8


def test_gaussian_noise_has_the_same_energy_but_no_exact_norm():
    encoded = encode(blank(400), radius=50.0, noise="gaussian")
    second = encoded.secrets.weights[:, 1:].double()
    energy = (encoded.images.flatten(1).double() / second).square().sum(1)
    assert float(energy.mean()) == pytest.approx(2500, rel=0.01)
    assert float(energy.std()) == pytest.approx(2500 * math.sqrt(2 / 3072), rel=0.2)


def test_encodings_are_the_same_on_any_number_of_threads():
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(encode(clothes(300), tau=1e-2))
    torch.set_num_threads(threads)
    assert all(torch.equal(results[0].images, other.images) for other in results[1:])
    assert len({other.resolved["radius"] for other in results}) == 1


def test_the_resolved_radius_encodes_by_the_same_law():
    private = clothes(100)
    first = encode(private, tau=1e-2)
    again = encode(private, radius=first.resolved["radius"])
    assert torch.equal(first.images, again.images)


def test_every_round_of_a_release_has_one_radius():
    radii = {encode(clothes(700), seed, tau=1e-2).resolved["radius"] for seed in range(3)}
    assert len(radii) == 1


def test_spread_is_what_all_pairs_and_all_pixels_say():
    images = clothes(200).images
    spread = measure_spread(Samples(images, torch.zeros(len(images))), None)
    rows = images.flatten(1).double()
    pairs = torch.nn.functional.pdist(rows)
    assert spread.distance == pytest.approx(float(pairs.mean()), rel=1e-9)
    assert spread.variance == pytest.approx(float(rows.var(0, correction=0).sum()), rel=1e-9)


def test_random_pairs_come_close_to_all_pairs(monkeypatch):
    images = clothes(200).images
    exact = measure_spread(Samples(images, torch.zeros(len(images))), None).distance
    monkeypatch.setattr("harness_plugins.defenses.singmix.calibration._PIXELS_COMPARED", 5000 * 784)
    sampled = measure_spread(Samples(images, torch.zeros(len(images))), None).distance
    assert sampled != exact
    assert sampled == pytest.approx(exact, rel=0.02)


def test_radius_meets_theorem_4_2_with_equality():
    spread = Spread(distance=32.3, variance=547.0)
    for tau in (1.0, 1e-2, 1e-6):
        assert spread.bound(spread.radius(tau, 0.65), 0.65) == pytest.approx(tau)


def test_radii_of_fashion_mnist():
    # worked out on the full standardised training set: D = 32.3, V = 547, c = .95
    spread = measure_spread(clothes(2000), None)
    assert spread.distance == pytest.approx(32.3, rel=0.02)
    assert spread.variance == pytest.approx(547, rel=0.04)
    radii = [spread.radius(tau, 0.65) for tau in (1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6)]
    assert radii == pytest.approx([36.6, 135, 434, 1374, 4345, 43450], rel=0.02)


def test_no_noise_where_the_bound_holds_without():
    assert Spread(32.3, 547.0).radius(tau=4.0, alpha=0.65) == 0
    assert encode(clothes(50), tau=4.0).resolved["radius"] == 0


def inverted(weights, partners):
    """T_i by theorem 4.1 as it is written: from the dense inverse of W = D1 + D2 P."""
    n = len(weights)
    mixing = np.diag(weights)
    mixing[np.arange(n), partners] += 1 - weights
    return (np.linalg.inv(mixing) ** 2) @ (1 - weights) ** 2


@pytest.mark.parametrize("n", [1, 2, 3, 7, 200])
def test_amplification_equals_the_dense_inverse(n):
    partners = stream(use="partners", n=n).permutation(n).numpy()
    weights = draw_weights(n, 0.65, stream(use="weights", n=n))[:, 0].double().numpy()
    closed = np.exp(log_amplification(weights, partners))
    np.testing.assert_allclose(closed, inverted(weights, partners), rtol=1e-6)


def test_amplification_survives_a_very_long_cycle():
    # weights of .05 all along: the product of 20 000 squared ratios is far beyond float64
    n = 20_000
    partners = np.roll(np.arange(n), -1)
    values = log_amplification(np.full(n, 0.05), partners)
    # a geometric series with ratio q = (.95/.05)^2 behind one factor: q / (q - 1) / q^0
    ratio = (0.95 / 0.05) ** 2
    np.testing.assert_allclose(np.exp(values), ratio / (ratio - 1), rtol=1e-6)


def test_a_singular_mixture_amplifies_without_bound():
    assert np.isposinf(log_amplification(np.full(4, 0.5), np.array([1, 2, 3, 0]))).all()


def test_images_are_mixed_at_the_resolution_asked_for():
    private = clothes(20)
    encoded = encode(private, radius=0, resolution=56)
    large = interpolate(private.images, size=(56, 56), mode="bilinear", antialias=True)
    own, partner = encoded.secrets.sources.T
    first, second = encoded.secrets.weights.view(20, 2, 1, 1, 1).unbind(1)
    torch.testing.assert_close(encoded.images, large[own] * first + large[partner] * second)


def test_encoding_feature_maps_needs_no_resolution():
    maps = Samples(torch.randn(12, 5, 3, 3), torch.arange(12) % 10)
    assert encode(maps, tau=1e-2).images.shape == (12, 5, 3, 3)


MEASURE = """
import torch
from pathlib import Path
from harness.api import Samples
from harness.rng import KeyedStream
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

def encode(n):
    private = Samples(torch.zeros(n, 3, 32, 32), torch.arange(n) % 10)
    defense = Singmix(SingmixConfig(radius=10.0, resolution=224))
    return defense.encode(private, private, KeyedStream(b"")).images

torch.set_num_threads(1)
encode(4)
before = peak()
release = encode(400)
print((peak() - before) / (release.numel() * 4))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's peak memory")
def test_encoding_never_holds_a_second_release():
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True
    )
    assert 0.9 < float(measured.stdout) < 1.5


def test_analysis_reports_spread_radii_and_amplification():
    private = clothes(300)
    spread, radii, amplification = Singmix(SingmixConfig()).analyse(private, stream())
    assert spread.rows[0][:2] == pytest.approx((32.3, 547), rel=0.05)
    assert [row[0] for row in radii.rows] == pytest.approx([10.0**-p for p in range(7)])
    for tau, _, _, bound, measured, decibels in radii.rows:
        assert bound == pytest.approx(tau)
        assert decibels == pytest.approx(10 * math.log10(measured))
        assert measured < bound  # weights are rarely at their bound
    least, median, mean, tail, most = amplification.rows[0]
    assert least < median < mean < most
    assert median < tail <= most


@pytest.mark.parametrize(
    "wrong", [{"tau": 0}, {"tau": -1}, {"alpha": 0.4}, {"alpha": 1}, {"radius": -1}, {"k": 2}]
)
def test_values_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValidationError):
        SingmixConfig(**wrong)
