"""Noisy mixtures of random images: who is in a row, the noise on it, and what that proves."""

import math
import sys

import numpy as np
import pytest
import torch
from scipy.stats import binom, chisquare, kstest
from torch.nn.functional import one_hot
from views import clothes, stream

from harness.api import CellFailed, NotApplicable, Samples, UsageError
from harness.api.gaussian import epsilon_of as of_gaussian
from harness_plugins.defenses.dpmix import DpmixConfig
from harness_plugins.defenses.dpmix.mixing import (
    SENSITIVITY,
    Dpmix,
    allowed,
    clip_factors,
    drawn,
    padded,
    room,
)
from harness_plugins.privacy.gaussian import mu_of
from harness_plugins.privacy.subsampled import epsilon_of, noise_of

PUBLIC = clothes(300, start=1000)


def encode(private, seed=0, public=PUBLIC, **options):
    asked = {"m": 8, "noise": 1.0, **options}
    return Dpmix(DpmixConfig(**asked)).encode(private, public, stream(use="owner", seed=seed))


def test_every_image_is_in_every_row_by_a_coin_of_its_own():
    n, rate = 300, 0.03
    rows, images = drawn(n, rate, stream(use="members"))
    places = rows * n + images
    assert len(places.unique()) == len(places)
    for of in (rows, images):
        counts = of.bincount(minlength=n)
        seen = counts.bincount(minlength=30)[:30].double().numpy()
        wanted = n * binom.pmf(np.arange(30), n, rate)
        common = wanted > 5
        told = np.append(seen[common], seen[~common].sum())
        law = np.append(wanted[common], wanted[~common].sum())
        assert chisquare(told, law * told.sum() / law.sum()).pvalue > 1e-3
    own = int((rows == images).sum())
    assert abs(own - n * rate) < 4 * math.sqrt(n * rate)


def test_rows_hold_whom_they_drew_and_their_own_image_stands_first():
    n, members = 40, drawn(40, 0.2, stream(use="members"))
    sources, inside = padded(*members, n, room(8, n))
    assert torch.equal(sources[:, 0], torch.arange(n))
    drew = {(int(r), int(i)) for r, i in zip(*members, strict=True)}
    held = {(r, int(sources[r, c])) for r, c in inside.nonzero().tolist()}
    assert held == drew
    assert int(inside.sum()) == len(drew)


def test_a_row_without_room_fails_and_is_not_cut_short():
    with pytest.raises(CellFailed, match="has room for 2"):
        padded(torch.zeros(3, dtype=torch.int64), torch.tensor([1, 2, 3]), 4, 3)


def test_no_image_adds_more_than_the_norm():
    wild = Samples(
        clothes(50).images * torch.logspace(-2, 4, 50).view(-1, 1, 1, 1), clothes(50).labels
    )
    made = encode(wild, norm=5.0)
    lengths = wild.images.flatten(1).double().norm(dim=1)[made.secrets.sources]
    assert float((made.secrets.weights.double() * 8 * lengths).max()) <= 5.0
    assert bool((clip_factors(wild, 5.0) <= 1).all())


@pytest.mark.parametrize("noise", [0.5, 3.0])
def test_noise_has_its_law(noise):
    private = clothes(200)
    made = encode(private, noise=noise, norm=20.0)
    clean = (made.secrets.weights[..., None] * private.images.flatten(1)[made.secrets.sources]).sum(
        1
    )
    left = (made.images.flatten(1) - clean).flatten().double().numpy()
    deviation = noise * SENSITIVITY * 20 / 8
    assert kstest(left[::7], "norm", args=(0, deviation)).pvalue > 1e-3
    law = Dpmix(DpmixConfig()).law(784, {"m": 8, "norm": 20.0, "noise": noise})
    assert law.deviation == pytest.approx(deviation)


def test_labels_are_the_means_of_those_in_the_row_where_noise_is_small():
    private = clothes(200)
    made = encode(private, noise=1e-4, norm=1e6)
    by = (made.secrets.weights > 0).float() / 8
    told = (by[..., None] * one_hot(private.labels, 10).float()[made.secrets.sources]).sum(1)
    few = told.sum(1) < 0.99
    assert int(few.sum()) > 50
    torch.testing.assert_close(made.labels[few], told[few], atol=1e-3, rtol=0)


def test_labels_are_moved_to_the_nearest_that_may_be():
    """No feasible point is nearer: the distance grows towards every one of many."""
    labels = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    found = allowed(labels)
    assert bool((found >= 0).all())
    assert bool((found.sum(1) <= 1 + 1e-6).all())
    others = torch.rand(2000, 4, generator=torch.Generator().manual_seed(2))
    others = others / others.sum(1, keepdim=True).clamp(min=1)
    towards = ((labels - found)[:, None] * (others[None] - found[:, None])).sum(2)
    assert float(towards.max()) <= 1e-5
    torch.testing.assert_close(allowed(found), found)


def test_the_number_of_images_in_a_row_follows_from_the_budget():
    asked = {"noise": 1.0, "epsilon": 8, "m": None}
    private = clothes(400)
    resolved = encode(private, **asked).resolved
    assert resolved["m"] == round(mu_of(8, 1e-5) * math.sqrt(400) / 2)
    assert encode(private[:10], **{**asked, "epsilon": 100}).resolved["m"] == 5


def test_public_images_alone_set_the_norm():
    norms = {encode(clothes(30, start=at), seed=at).resolved["norm"] for at in (0, 40)}
    assert len(norms) == 1
    with pytest.raises(NotApplicable, match="public images"):
        encode(clothes(30), public=PUBLIC[:0])
    with pytest.raises(NotApplicable, match="two at least"):
        encode(clothes(1))


def test_the_accountant_agrees_with_the_closed_form_where_nearly_all_images_are_drawn():
    """Four steps of noise 1 / μ are one of 1 / 2μ."""
    pytest.importorskip("opacus")
    for mu in (0.25, 0.75):
        wanted = of_gaussian(2 * mu, 1e-5)
        assert epsilon_of(1 / mu, 1e-5, 0.9999, 4) == pytest.approx(wanted, rel=0.01)


def test_the_noise_spends_the_budget_over_the_rounds_it_was_asked_for():
    pytest.importorskip("opacus")
    defense = Dpmix(DpmixConfig(epsilon=4, m=10))
    resolved = {"m": 10, "norm": 1.0, "noise": noise_of(4, 1e-5, 10 / 200, 200)}
    spent = defense.guarantee(200, 1, resolved)
    assert 0.98 * 4 <= spent["epsilon"] <= 4
    assert "add or remove" in spent["adjacency"]
    assert defense.guarantee(200, 3, resolved)["epsilon"] > 4


def test_without_opacus_it_says_so_in_a_line(monkeypatch):
    for name in [each for each in sys.modules if each.partition(".")[0] == "opacus"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(UsageError, match=r"pip install 'encoding-harness\[dp\]'"):
        noise_of(3.0, 1e-6, 0.123, 77)
    encode(clothes(20))
