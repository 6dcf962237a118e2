"""Mixtures solved without a prior, against dense algebra and theorem 4.1's closed form."""

import numpy as np
import pytest
import torch
from views import quiet, stream

from harness_plugins.attacks.exact.inversion import Factorised, LeastSquares, invert
from harness_plugins.defenses.singmix.encode import draw_weights
from harness_plugins.defenses.singmix.inversion import log_amplification
from harness_plugins.mixing import draw_sources
from harness_plugins.mixing import draw_weights as draw_many
from harness_plugins.mixtures.mixture import Mixture

D = 6


def pairs(n, alpha, seed, partners=None):
    """One round of singularized mixup, its rows in a random order."""
    rng = stream(use="owner", seed=seed)
    weights = draw_weights(n, alpha, rng)
    partners = rng.permutation(n) if partners is None else partners
    order = rng.permutation(n)
    sources = torch.stack([torch.arange(n), partners], 1)[order]
    return Mixture.of(weights[order][None], sources[None], n)


def many(n, k, rounds, seed=0):
    rng = stream(use="owner", seed=seed)
    weights = [draw_many(n, k, rng, max_weight=0.65 if k > 1 else 1) for _ in range(rounds)]
    return Mixture.of(
        torch.stack(weights), torch.stack([draw_sources(n, k, rng) for _ in range(rounds)]), n
    )


def dense(mixture):
    """W [rows, n] in float64."""
    return mixture.apply(torch.eye(mixture.n, dtype=torch.float64))


def rows_of(mixture, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(mixture.sources), D, generator=generator, dtype=torch.float64)


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("n", [1, 2, 7, 100, 501])
@pytest.mark.parametrize("alpha", [0.65, 0.9])
def test_rings_are_inverted_as_a_dense_solve_does(n, alpha):
    for seed in range(4):
        mixture = pairs(n, alpha, seed)
        rows = rows_of(mixture, seed)
        found = invert(mixture, rows, quiet).values
        assert relative(found, torch.linalg.solve(dense(mixture), rows)) < 1e-6


def test_a_ring_of_many_is_inverted_from_the_side_where_errors_die_out():
    # all weights on one side: from the other, products of ratios reach (.65/.35)^300 = 1e80
    n, partners = 301, torch.arange(301).roll(-1)
    for first in (0.35, 0.65):
        weights = torch.tensor([first, 1 - first]).expand(1, n, 2)
        sources = torch.stack([torch.arange(n), partners], 1)[None]
        mixture = Mixture.of(weights, sources, n)
        rows = rows_of(mixture)
        found = invert(mixture, rows, quiet).values
        assert relative(found, torch.linalg.solve(dense(mixture), rows)) < 1e-12


def test_public_images_and_missing_rings_are_left_to_least_squares():
    rings = pairs(40, 0.65, 0)
    assert rings.following is not None
    assert many(40, 3, 1).following is None
    assert many(40, 2, 2).following is None
    public = Mixture.of(rings.weights[None], rings.sources[None], 39)
    assert public.following is None


@pytest.mark.parametrize(("k", "rounds"), [(1, 1), (2, 3), (3, 1), (4, 1), (1, 4), (4, 2)])
def test_any_mixture_is_solved_as_dense_least_squares_do(k, rounds):
    mixture = many(60, k, rounds)
    rows = rows_of(mixture)
    found = invert(mixture, rows, quiet).values
    assert relative(found, torch.linalg.lstsq(dense(mixture), rows).solution) < 1e-6


def test_all_ways_agree_where_all_can_be_taken():
    mixture = pairs(80, 0.65, 3)
    rows = rows_of(mixture)
    first = invert(mixture, rows, quiet).values
    second, third = (
        way.solve(rows) for way in (Factorised(mixture), LeastSquares(mixture, torch.float64))
    )
    assert relative(second, first) < 1e-9
    assert relative(third, first) < 1e-5


@pytest.mark.parametrize("alpha", [0.65, 0.9])
def test_noise_is_blown_up_as_theorem_4_1_says(alpha):
    # x~_i = w_i x_i + (1-w_i)(x_pi(i) + e_i): T_i is the energy of row i of W^-1 diag(1-w)
    n, rng = 300, stream(use="owner")
    weights, partners = draw_weights(n, alpha, rng), rng.permutation(n)
    mixture = Mixture.of(weights[None], torch.stack([torch.arange(n), partners], 1)[None], n)
    inverse = invert(mixture, torch.eye(n, dtype=torch.float64), quiet).values
    found = (inverse * weights[:, 1].double()).square().sum(1).log()
    # the closed form is of w and 1-w; float32 weights sum to 1 exactly
    expected = log_amplification(weights[:, 0].double().numpy(), partners.numpy())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_the_answer_has_the_type_of_the_rows_and_goes_where_it_is_wanted():
    mixture = pairs(50, 0.65, 0)
    rows = rows_of(mixture)
    out = torch.full((50, D), torch.nan)
    found = invert(mixture, rows.float(), quiet, out).values
    assert found is out
    torch.testing.assert_close(
        found.double(), invert(mixture, rows, quiet).values, rtol=1e-3, atol=1e-3
    )


def test_weights_of_zero_are_no_obstacle_where_the_rest_tells_all():
    # row 0 is all of image 1, rows 1 and 2 are halves; images 3 and 4 are merely exchanged
    weights = torch.tensor([[[0.0, 1.0], [0.5, 0.5], [0.5, 0.5], [0.0, 1.0], [0.0, 1.0]]])
    sources = torch.tensor([[[0, 1], [1, 2], [2, 0], [3, 4], [4, 3]]])
    mixture = Mixture.of(weights, sources, 5)
    rows = rows_of(mixture)
    found = invert(mixture, rows, quiet).values
    torch.testing.assert_close(found, torch.linalg.solve(dense(mixture), rows))


def test_a_singular_ring_spoils_no_other():
    weights = torch.tensor([[[0.5, 0.5], [0.5, 0.5], [0.6, 0.4], [0.6, 0.4]]])
    sources = torch.tensor([[[0, 1], [1, 0], [2, 3], [3, 2]]])
    mixture = Mixture.of(weights, sources, 4)
    rows = rows_of(mixture)
    found = invert(mixture, rows, quiet).values
    assert bool(found.isfinite().all())
    torch.testing.assert_close(mixture.apply(found)[2:], rows[2:])


def test_a_singular_ring_gives_numbers_all_the_same():
    # two images, each half of both rows: det = .5 · .5 - .5 · .5 = 0
    weights = torch.full((1, 2, 2), 0.5)
    mixture = Mixture.of(weights, torch.tensor([[[0, 1], [1, 0]]]), 2)
    found = invert(mixture, rows_of(mixture), quiet).values
    assert bool(found.isfinite().all())
