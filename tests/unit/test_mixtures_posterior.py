"""The Gaussian posterior: what it promises of itself, and that nothing linear does better."""

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from views import quiet, stream

from harness_plugins.attacks.exact.inversion import invert
from harness_plugins.mixing import draw_sources, draw_weights
from harness_plugins.mixtures.law import NoiseLaw
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.mixtures.posterior import Mixed
from harness_plugins.mixtures.prior import GaussianPrior
from harness_plugins.mixtures.rowwise import filtered

pytestmark = pytest.mark.numeric

D, DRAWS, N = 256, 20, 60
"""Columns of the eigenbasis are systems of their own: each of D · DRAWS is a sample of the error,
also where one nearly singular ring makes most of it."""
SIGMAS = 4
"""Standard errors of a paired difference that count as beyond its interval."""


def normal(seed, *shape):
    """In float64: no rounding hides behind the least noise."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@cache
def prior(dimensions=D):
    """A mean that is not zero, and a covariance whose variances fall as those of images do."""
    directions, _ = torch.linalg.qr(normal(0, dimensions, dimensions))
    variances = torch.arange(1, dimensions + 1).double().pow(-0.7)
    mean = normal(1, dimensions)
    return GaussianPrior.known(mean, directions @ (variances.view(-1, 1) * directions.T))


@dataclass(frozen=True)
class World:
    """A defense with secrets drawn, and what it makes of Gaussian images."""

    prior: GaussianPrior
    law: NoiseLaw
    mixture: Mixture

    @classmethod
    def of(cls, n, k, rounds, weights_law, law, seed=0):
        rng = stream(use="owner", seed=seed)
        top = 0.65 if k > 1 else 1
        weights = [draw_weights(n, k, rng, max_weight=top, law=weights_law) for _ in range(rounds)]
        sources = [draw_sources(n, k, rng) for _ in range(rounds)]
        return cls(prior(), law, Mixture.of(torch.stack(weights), torch.stack(sources), n))

    @property
    def model(self):
        return Mixed.of(self.prior, self.law, self.mixture, None)

    def drawn(self, seed):
        """Images [n, D] and their encodings [rows, D]."""
        coordinates = normal(seed, self.mixture.n, D) * self.prior.variances.sqrt()
        images = self.prior.mean + coordinates @ self.prior.basis.T
        rows = self.law.gain * self.mixture.apply(images)
        deviation = self.law.power(self.mixture.weights).sqrt().view(-1, 1)
        return images, rows + deviation * normal(seed + 1000, *rows.shape)


def errors(world, found, images):
    """[D] squared errors of all images together, along each principal component."""
    return ((found - images) @ world.prior.basis).square().sum(0)


def rivals(world, rows, best):
    """Other linear estimates of all images, by name."""
    mean, mixture = world.prior.mean, world.mixture
    scaled = Mixture(mixture.sources, mixture.weights * world.law.gain, mixture.public, mixture.n)
    yield "exact", invert(scaled, rows, quiet).values
    first = rows[: mixture.n]
    yield (
        "row-wise",
        filtered(world.prior, world.law, first, mixture.weights[: len(first)], None)[0],
    )
    for factor in (0.8, 0.95, 1.05, 1.2):
        yield f"scaled by {factor}", mean + factor * (best - mean)
    dense = scaled.apply(torch.eye(mixture.n, dtype=torch.float64))
    centred = rows - dense.sum(1, keepdim=True) * mean
    for strength in (1e-3, 1e-1, 10.0):
        gram = dense.T @ dense + strength * torch.eye(mixture.n, dtype=torch.float64)
        yield f"ridge {strength}", mean + torch.linalg.solve(gram, dense.T @ centred)


def better(rival, best):
    """Whether squared errors [samples] are lower than the best's by more than their interval."""
    less = best - rival
    return float(less.mean()) > SIGMAS * float(less.std() / len(less) ** 0.5)


defenses = st.builds(
    World.of,
    n=st.just(N),
    k=st.sampled_from([1, 2, 3]),
    rounds=st.sampled_from([1, 2, 3]),
    weights_law=st.sampled_from(["uniform", "half-normal"]),
    law=st.builds(
        NoiseLaw,
        gain=st.sampled_from([1.0, 0.5]),
        constant=st.sampled_from([0.0, 1e-3, 0.3]),
        cover=st.sampled_from([1e-8, 1e-4, 1e-2, 1.0, 100.0]),
        patches=st.just(0.0),
        rounding=st.just(1e-14),
    ),
    seed=st.integers(0, 3),
)


@settings(max_examples=10, derandomize=True, deadline=None)
@given(world=defenses)
@example(world=World.of(N, 3, 1, "uniform", NoiseLaw(1.0, 0.0, 1e-8, 0.0, 1e-14)))
def test_it_knows_its_error_and_no_linear_estimate_has_a_lower_one(world):
    model, measured, others = world.model, [], defaultdict(list)
    for draw in range(DRAWS):
        images, rows = world.drawn(draw)
        best = model.estimate(rows, report=quiet)
        measured.append(errors(world, best, images))
        for name, found in rivals(world, rows, best):
            others[name].append(errors(world, found, images))
    pooled = torch.cat(measured)
    predicted = float(model.expected_error().sum())
    assert float(pooled.sum()) / DRAWS == pytest.approx(predicted, rel=0.03)
    for name, found in others.items():
        assert not better(torch.cat(found), pooled), name


def test_a_truncated_basis_counts_the_rest_as_isotropic():
    # the rest of the variances made equal: then the truncated prior says all that there is to say
    kept, whole = 40, prior()
    rest = whole.variances[kept:].mean()
    level = replace(whole, variances=torch.cat([whole.variances[:kept], rest.expand(D - kept)]))
    short = replace(level, basis=whole.basis[:, :kept], variances=whole.variances[:kept], rest=rest)
    world = World.of(N, 2, 1, "uniform", NoiseLaw(1.0, 0.0, 0.1, 0.0, 0.0))
    _, rows = world.drawn(0)
    models = [replace(world, prior=known).model for known in (level, short)]
    first, second = (model.estimate(rows, report=quiet) for model in models)
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-4)
    expected, found = (model.expected_error() for model in models)
    torch.testing.assert_close(expected, found, rtol=2e-2, atol=0)


def test_the_answer_goes_where_it_is_wanted():
    world = World.of(N, 2, 1, "uniform", NoiseLaw(1.0, 0.0, 0.1, 0.0, 0.0))
    _, rows = world.drawn(0)
    out = torch.full((N, D), torch.nan, dtype=torch.float64)
    assert world.model.estimate(rows, out, quiet) is out
    assert torch.equal(out, world.model.estimate(rows, report=quiet))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_patches_are_noise_with_the_spectrum_of_images(k):
    # one public image in each mixture: as noise of known spectrum, against dense algebra
    world = World.of(N, k, 1, "uniform", NoiseLaw(1.0, 0.2, 0.0, 1.0, 0.0))
    mixture = world.mixture
    public = torch.zeros_like(mixture.weights)
    public[:, 0] = 0.3
    model = Mixed.of(world.prior, world.law, replace(mixture, public=public), None)
    rows = normal(0, N, D)
    found = (model.estimate(rows, report=quiet) - world.prior.mean) @ world.prior.basis
    dense = mixture.apply(torch.eye(N, dtype=torch.float64))
    total = dense.sum(1, keepdim=True) + 0.3
    told = (rows - total * world.prior.mean) @ world.prior.basis
    for column in (0, 10, D - 1):
        variance = world.prior.variances[column]
        noise = torch.eye(N, dtype=torch.float64) * (0.2 + 0.3**2 * variance)
        spread = dense @ dense.T * variance + noise
        expected = variance * dense.T @ torch.linalg.solve(spread, told[:, column])
        torch.testing.assert_close(found[:, column], expected, rtol=1e-3, atol=1e-4)


def test_four_images_without_noise_are_solved_exactly_though_iterations_do_not_end():
    world = World.of(400, 4, 1, "uniform", NoiseLaw(1.0, 0.0, 0.0, 0.0, 1e-14))
    images, rows = world.drawn(0)
    model = world.model
    found = model.estimate(rows, report=quiet)
    torch.testing.assert_close(found, images, rtol=0, atol=1e-3)
    assert model.effort["cg_steps"] == 100
    assert model.effort["cg_residual"] < 1e-12
    dense = world.mixture.apply(torch.eye(400, dtype=torch.float64))
    variance = world.prior.variances[[0, -1]]
    normal = dense.T @ dense / 1e-14
    expected = [torch.linalg.inv(normal + torch.eye(400) / v).diagonal() for v in variance]
    uncertainty = model.system.uncertainty(variance)
    torch.testing.assert_close(uncertainty, torch.stack(expected, 1), rtol=1e-4, atol=0)
