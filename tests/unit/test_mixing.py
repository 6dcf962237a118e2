"""Who is mixed with whom and by how much, against the letter of the algorithms."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, ks_2samp
from views import clothes, stream

from harness.api import CellFailed
from harness_plugins.mixing import draw_sources, draw_weights, mix, mix_labels


def redrawn(n, k, bound, *, law="uniform", privates=None, least=0.0):
    """Weights by the papers' own words: draw k, normalise, redraw what breaks a bound."""
    generator = np.random.default_rng(3)
    kept = np.empty((0, k))
    while len(kept) < n:
        drawn = generator.random((n, k)) if law == "uniform" else generator.normal(size=(n, k))
        drawn = np.abs(drawn) / np.abs(drawn).sum(1, keepdims=True)
        fine = drawn.max(1) <= bound
        if privates:
            fine &= drawn[:, :privates].sum(1) >= least
        kept = np.concatenate([kept, drawn[fine]])
    return kept[:n]


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 40), k=st.integers(1, 7), seed=st.integers(0, 99))
def test_every_image_is_once_in_each_column_and_never_twice_in_a_row(n, k, seed):
    if n < k:
        with pytest.raises(CellFailed, match=f"k={k}.* there are {n}"):
            draw_sources(n, k, stream(seed=seed))
        return
    sources = draw_sources(n, k, stream(seed=seed))
    assert sources.dtype == torch.int64
    assert torch.equal(sources[:, 0], torch.arange(n))
    assert torch.equal(sources.sort(0).values, torch.arange(n).view(-1, 1).expand(n, k))
    assert all(len(set(row)) == k for row in sources.tolist())


@pytest.mark.parametrize(("n", "k"), [(2, 2), (12, 12), (20, 16)])
def test_hardly_more_images_than_places_still_end(n, k):
    sources = draw_sources(n, k, stream(use="tight"))
    assert all(len(set(row)) == k for row in sources.tolist())


def test_partners_are_uniform_over_all_other_images():
    counts = np.zeros((6, 6))
    for seed in range(3000):
        sources = draw_sources(6, 3, stream(seed=seed)).numpy()
        for column in (1, 2):
            counts[np.arange(6), sources[:, column]] += 1
    others = counts[~np.eye(6, dtype=bool)].reshape(6, 5)
    assert counts.trace() == 0
    assert min(chisquare(row).pvalue for row in others) > 1e-3


def test_columns_are_not_tied_to_each_other():
    sources = draw_sources(20_000, 3, stream(use="tie")).double()
    correlations = np.corrcoef(sources.T.numpy())[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(20_000)


@pytest.mark.parametrize("law", ["uniform", "half-normal"])
@pytest.mark.parametrize(("k", "bound"), [(2, 0.65), (4, 0.65), (4, 0.4), (6, 1.0)])
def test_weights_follow_the_law_that_redrawing_leaves(k, bound, law):
    drawn = draw_weights(20_000, k, stream(use="weights"), max_weight=bound, law=law)
    wanted = redrawn(20_000, k, bound, law=law)
    assert ks_2samp(drawn[:, 0].numpy(), wanted[:, 0]).pvalue > 1e-3
    assert ks_2samp(drawn.amax(1).numpy(), wanted.max(1)).pvalue > 1e-3
    assert drawn.double().amax() <= bound
    assert drawn.min() >= 0
    assert (drawn.double().sum(1) - 1).abs().max() < 1e-6


def test_the_least_share_of_the_private_images_is_kept():
    bounds = {"privates": 2, "min_private": 0.3}
    drawn = draw_weights(20_000, 6, stream(use="c2"), max_weight=0.65, **bounds)
    wanted = redrawn(20_000, 6, 0.65, privates=2, least=0.3)
    shares = drawn[:, :2].double().sum(1)
    assert shares.min() >= 0.3
    assert ks_2samp(shares.numpy(), wanted[:, :2].sum(1)).pvalue > 1e-3


def test_the_two_laws_are_told_apart():
    uniform, normal = (
        draw_weights(20_000, 4, stream(use="laws"), max_weight=0.65, law=law)[:, 0].numpy()
        for law in ("uniform", "half-normal")
    )
    assert ks_2samp(uniform, normal).pvalue < 1e-9


def test_a_lone_image_has_all_the_weight():
    assert torch.equal(draw_weights(3, 1, stream(), max_weight=0.5), torch.ones(3, 1))


def test_bounds_that_no_draw_meets_are_a_failed_cell():
    with pytest.raises(CellFailed, match=r"max_weight=0\.2"):
        draw_weights(3, 4, stream(), max_weight=0.2)


@settings(max_examples=20, deadline=None)
@given(k=st.integers(1, 6), shape=st.sampled_from([(5,), (1, 28, 28), (7, 3, 2)]))
def test_a_mixture_is_the_explicit_sum(k, shape):
    images = torch.randn(30, *shape, generator=torch.Generator().manual_seed(k))
    sources = draw_sources(30, k, stream(use="sources"))[:20]
    weights = draw_weights(20, k, stream(use="weights"), max_weight=1.0)
    wanted = torch.einsum("nk,nkd->nd", weights.double(), images.flatten(1).double()[sources])
    mixed = mix(images, sources, weights)
    assert mixed.shape == (20, *shape)
    torch.testing.assert_close(mixed.flatten(1), wanted.float())


def test_labels_keep_their_mass():
    labels = torch.eye(10)[clothes(50).labels]
    sources = draw_sources(50, 4, stream(use="sources"))
    weights = draw_weights(50, 4, stream(use="weights"), max_weight=0.65)
    soft = mix_labels(labels, sources, weights)
    torch.testing.assert_close(soft.sum(1), torch.ones(50))
    assert float(soft[7, labels[7].argmax()]) >= float(weights[7, 0])


def test_everything_is_the_same_on_any_number_of_threads():
    threads = torch.get_num_threads()
    images = torch.randn(3000, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        sources = draw_sources(3000, 4, stream(use="sources"))
        weights = draw_weights(3000, 4, stream(use="weights"), max_weight=0.65, law="half-normal")
        results.append((sources, weights, mix(images, sources, weights)))
    torch.set_num_threads(threads)
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))
