"""The ceiling of exchangeable candidates, against priors whose best attack is known."""

import math

import numpy as np
import pytest
import torch
from views import stream

from harness_plugins.ceilings.exchangeable.intervals import Resamples
from harness_plugins.ceilings.exchangeable.posterior import Candidates, gaussian, laplace
from harness_plugins.ceilings.exchangeable.visibility import information, partners

TRIALS, OTHERS = 10_000, 800


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def draws(*shape, first=100):
    return lambda number: normal(*shape, seed=first + number)


# -- The posterior itself ---------------------------------------------------------------------


def plainly(y, s, logits):
    """Posterior over s [n, d] by logits [n], in float64: its mean and probabilities."""
    p = (logits - logits.max()).exp()
    p = p / p.sum()
    return (p.view(-1, 1) * s).sum(0), p


def test_the_normal_posterior_is_that_of_its_formula():
    x, z, noise = normal(5, 7) + 3, normal(40, 7, seed=1) + 3, normal(5, 7, seed=100)
    told = torch.zeros(5, 40, dtype=torch.bool)
    told[2, 4] = told[2, 39] = True
    variances = torch.tensor([[0.5, 1, 2, 4, 8], [9, 9, 9, 9, 9]]).double()
    sets = (slice(0, 10), slice(10, 40))
    best = gaussian(Candidates(x, z, told, sets), variances, draws(5, 7), 1, ())
    for setting, each in enumerate(variances):
        for i, v in enumerate(each):
            y = (x[i] + v.sqrt() * noise[i]).double()
            for place, part in enumerate([slice(None), *sets]):
                s = torch.cat([x[i : i + 1], z[part][~told[i][part]]]).double()
                mean, p = plainly(y, s, -(y - s).square().sum(1) / (2 * v))
                error = float((x[i].double() - mean).square().sum())
                if place:
                    assert float(best.trend[setting, place - 1, i]) == pytest.approx(
                        error, rel=1e-3
                    )
                    continue
                assert float(best.errors[setting, i]) == pytest.approx(error, rel=1e-3)
                assert float(best.largest[setting, i]) == pytest.approx(float(p.max()), rel=1e-4)


def test_the_posterior_under_laplace_noise_is_that_of_its_formula():
    x, z = normal(4, 6), normal(30, 6, seed=1)
    noise = torch.distributions.Laplace(0, 1).icdf(0.02 + 0.96 * torch.rand(4, 6))
    best = laplace(Candidates(x, z), 0.7, 0.4, lambda _: noise, 1, ())
    for i in range(4):
        y, s = (0.7 * x[i] + 0.4 * noise[i]).double(), torch.cat([x[i : i + 1], z]).double()
        mean, p = plainly(y, s, -(y - 0.7 * s).abs().sum(1) / 0.4)
        wanted = float((x[i].double() - mean).square().sum())
        assert float(best.errors[0, i]) == pytest.approx(wanted, rel=1e-3)
        assert float(best.largest[0, i]) == pytest.approx(float(p.max()), rel=1e-4)


def test_what_one_guess_covers_is_the_heaviest_ball_among_all_pairs():
    x, z, noise = normal(3, 2), normal(20, 2, seed=1), normal(3, 2, seed=100)
    best = gaussian(Candidates(x, z), torch.full((1, 3), 0.7), draws(3, 2), 1, (3.0,))
    for i in range(3):
        s = torch.cat([x[i : i + 1], z]).double()
        y = (x[i] + 0.7**0.5 * noise[i]).double()
        _, p = plainly(y, s, -(y - s).square().sum(1) / 1.4)
        reach = s.norm(dim=1) * 10 ** (-3 / 20)
        heavy = [
            sum(p[j] for j in range(21) if (s[j] - s[k]).norm() <= reach[j] + reach[k])
            for k in range(21)
        ]
        assert float(best.covered[0, 0, i]) == pytest.approx(float(max(heavy)), rel=1e-4)


def test_blocks_change_nothing(monkeypatch):
    among = Candidates(normal(50, 5), normal(60, 5, seed=1))
    variances = torch.full((1, 50), 1.5)
    whole = gaussian(among, variances, draws(50, 5), 2, (6.0,))
    monkeypatch.setattr("harness_plugins.ceilings.exchangeable.posterior.BLOCK", 60 * 7)
    pieces = gaussian(among, variances, draws(50, 5), 2, (6.0,))
    for name in ("errors", "largest", "covered"):
        torch.testing.assert_close(
            getattr(whole, name), getattr(pieces, name), rtol=1e-5, atol=1e-7
        )


# -- How much noise an image is seen under ----------------------------------------------------


def test_information_is_that_of_least_squares_with_all_other_images_known():
    """1/v is the Fisher information of x: for every image, Wᵀ S⁻² W has it on its diagonal."""
    rng = np.random.default_rng(0)
    sources = rng.integers(6, size=(30, 3))
    weights = rng.dirichlet(np.ones(3), 30)
    scales = rng.uniform(0.5, 2, 30)
    dense = np.zeros((30, 6))
    np.add.at(dense, (np.arange(30)[:, None], sources), weights)
    told = information(*map(torch.from_numpy, (weights, sources, scales)), 6)
    np.testing.assert_allclose(told, (dense**2 / scales[:, None] ** 2).sum(0))


def test_singularized_mixup_tells_what_the_formula_says():
    """a²/σ² as first, 1/σ² as second, and 1/((1-w)²σ²) of an image that is its own partner."""
    weights = torch.tensor([[0.6, 0.4], [0.45, 0.55], [0.5, 0.5]])
    sources = torch.tensor([[0, 1], [1, 0], [2, 2]])
    deviations = 2.0 * (1 - weights[:, 0])
    told = information(weights, sources, deviations, 3)
    a, b = 0.6 / 0.4, 0.45 / 0.55
    wanted = torch.tensor([(a**2 + 1) / 4, (b**2 + 1) / 4, 1 / (0.25 * 4)]).double()
    torch.testing.assert_close(told, wanted, rtol=1e-6, atol=0)


def test_partners_are_those_of_any_row_but_not_oneself():
    told = partners(torch.tensor([[0, 3], [1, 0], [2, 2], [3, 1]]), 3, 4)
    assert told.nonzero().tolist() == [[0, 1], [0, 3], [1, 0], [1, 3]]


# -- Validity: nothing is above the ceiling ---------------------------------------------------


class Prior:
    """Images drawn from a known law, and what is best for whoever knows it."""

    def sample(self, count, seed):
        raise NotImplementedError

    def mean(self, y, v):
        """Posterior mean of y [n, d]."""
        raise NotImplementedError


class Normal(Prior):
    scales = torch.tensor([3.0, 1.0, 0.3, 0.1])

    def sample(self, count, seed):
        return normal(count, 4, seed=seed) * self.scales

    def mean(self, y, v):
        return y * self.scales**2 / (self.scales**2 + v)


class Discrete(Prior):
    atoms = normal(12, 4, seed=77) * 2

    def sample(self, count, seed):
        which = torch.randint(12, (count,), generator=torch.Generator().manual_seed(seed))
        return self.atoms[which]

    def posterior(self, y, v):
        return (-torch.cdist(y.double(), self.atoms.double()).square() / (2 * v)).softmax(1).float()

    def mean(self, y, v):
        return self.posterior(y, v) @ self.atoms


class Mixture(Discrete):
    spread = 0.4

    def sample(self, count, seed):
        return super().sample(count, seed) + self.spread * normal(count, 4, seed=seed + 1)

    def mean(self, y, v):
        share = self.spread**2 / (self.spread**2 + v)
        p = self.posterior(y, v + self.spread**2)
        return share * y + (1 - share) * (p @ self.atoms)


PRIORS = {"normal": Normal(), "mixture": Mixture(), "discrete": Discrete()}


def decibels(x, guess):
    """Pooled, and capped as scores are."""
    error = max(float((x - guess).square().sum()), 1e-30)
    return min(120.0, 10 * math.log10(float(x.square().sum()) / error))


def hits(x, guess, within):
    reach = x.norm(dim=1) * 10 ** (-within / 20)
    return ((x - guess).norm(dim=1) <= reach).double().numpy()


def named(x, others, noise, v):
    """How often the likeliest of S is x: a share of one where several are the same image."""
    exact = "donot_use_mm_for_euclid_dist"
    apart = torch.cdist(x + v**0.5 * noise, others, compute_mode=exact)
    own = (v**0.5 * noise).norm(dim=1, keepdim=True)
    nearer, alike = (apart < own - 1e-5).any(1), ((apart - own).abs() <= 1e-5).sum(1)
    return torch.where(nearer, 0.0, 1 / (1 + alike)).double().numpy()


def surely_above(reached, ceiling):
    """By how many standard errors the mean of what was reached is above its ceiling.

    Products are taken in float32: 1e-5 of a share is rounding.
    """
    gap = np.asarray(reached) - np.asarray(ceiling)
    return (gap.mean() - np.sign(gap.mean()) * min(1e-5, abs(gap.mean()))) / (
        gap.std() / len(gap) ** 0.5 + 1e-12
    )


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("v", [0.05, 1.0, 30.0])
def test_nobody_is_above_the_ceiling(name, v):
    """Who knows the prior, who knows S too, and who gambles, in 10 000 trials."""
    prior = PRIORS[name]
    x, others = prior.sample(TRIALS, 1), prior.sample(OTHERS, 50_001)
    noise, within = normal(TRIALS, 4, seed=9), (3.0, 10.0)
    among, variances = Candidates(x, others), torch.full((1, TRIALS), v)
    best = gaussian(among, variances, lambda _: noise, 1, within)
    energies, errors = x.double().square().sum(1).numpy(), best.errors[0].numpy()
    over = Resamples(TRIALS, stream(use="test"))
    _, (_, most) = over.pooled_db(energies, errors)

    y = x + v**0.5 * noise
    bayes = prior.mean(y, v)
    nearest = others[torch.cdist(y, others).argmin(1)]
    gambles = {"bayes": bayes, "encoding": y, "nearest": nearest, "nothing": torch.zeros_like(x)}
    if isinstance(prior, Discrete):
        gambles["atom"] = prior.atoms[prior.posterior(y, v).argmax(1)]
    for guess in gambles.values():
        assert decibels(x, guess) <= most
        assert surely_above(errors, (x - guess).double().square().sum(1)) < 2.6
        for place, each in enumerate(within):
            assert surely_above(hits(x, guess, each), best.covered[0, place]) < 2.6
    assert abs(surely_above(named(x, others, noise, v), best.largest[0])) < 3


def test_with_many_candidates_the_ceiling_comes_down_to_what_is_reached():
    """No bound at all would pass the test above: in few dimensions this one is met."""
    v, prior = 1.0, Normal()
    x, others = prior.sample(2000, 1), prior.sample(20_000, 50_001)
    sets = (slice(0, 20), slice(20, 300), slice(300, 20_000))
    best = gaussian(
        Candidates(x, others, None, sets), torch.full((1, 2000), v), draws(2000, 4), 2, ()
    )
    closed = sum(v * s**2 / (v + s**2) for s in prior.scales.tolist())
    assert float(best.errors.mean()) == pytest.approx(closed, rel=0.03)
    few, more, many = best.trend[0].mean(1).tolist()
    assert few < more < many < 1.03 * closed


# -- What a careless program gets wrong -------------------------------------------------------


def test_broken_where_partners_stay_in_s():
    """Under much noise one of three is named; with the partner among four, S says one of four."""
    s = normal(4, 6, seed=3)
    x, told = s[torch.arange(TRIALS) % 4], torch.arange(TRIALS) // 4 % 3
    places = torch.stack([torch.tensor([k for k in range(4) if k != i]) for i in range(4)])
    others = s[places[torch.arange(TRIALS) % 4]]  # [trials, 3, d]
    v = 1e6

    def largest(excluded):
        """Of each trial among its own S, one call of the function under test each four alike."""
        found = []
        for i in range(4):
            among = Candidates(s[i].expand(100, 6), s[places[i]], excluded(i))
            best = gaussian(among, torch.full((1, 100), v), draws(100, 6), 1, ())
            found.append(float(best.largest.mean()))
        return sum(found) / 4

    def without(_):
        mask = torch.zeros(100, 3, dtype=torch.bool)
        mask[:, 0] = True
        return mask

    y = x + v**0.5 * normal(TRIALS, 6, seed=4)
    apart = (y.unsqueeze(1) - others).square().sum(2)
    apart[torch.arange(TRIALS), told] = torch.inf  # the attacker knows that it is the partner
    named = (apart.min(1).values > (y - x).square().sum(1)).double().mean()
    careless, careful = largest(lambda _: None), largest(without)
    error = float(named * (1 - named) / TRIALS) ** 0.5
    assert float(named) > careless + 10 * error
    assert float(named) < careful + 3 * error


def test_broken_where_s_lacks_the_target():
    """The mean over others is worse than what is reached without any of them."""
    v, prior = 0.05, Normal()
    x, others = prior.sample(2000, 1), prior.sample(100, 2)
    y = x + v**0.5 * normal(2000, 4, seed=9)
    p = (-torch.cdist(y, others).double().square() / (2 * v)).softmax(1).float()
    careless, reached = decibels(x, p @ others), decibels(x, prior.mean(y, v))
    among = Candidates(x, others)
    best = gaussian(among, torch.full((1, 2000), v), lambda _: normal(2000, 4, seed=9), 1, ())
    careful = 10 * math.log10(float(x.double().square().sum() / best.errors.sum()))
    assert careless < reached - 1
    assert reached < careful


def test_broken_where_the_radius_depends_on_the_target():
    """Noise as large as x itself tells |x|: one bit, the sign, is all that is left to find."""
    x, others = normal(TRIALS, 1, seed=1), normal(OTHERS, 1, seed=2)
    v = x[:, 0].double().square()
    best = gaussian(Candidates(x, others), v.view(1, -1), draws(TRIALS, 1), 2, ())
    y = x + v.sqrt().float().view(-1, 1) * normal(TRIALS, 1, seed=9)
    size = x.abs()
    told = size * torch.tanh(y * size / v.float().view(-1, 1))
    assert float((x - told).square().mean()) < 0.8 * float(best.errors.mean())


# -- Intervals --------------------------------------------------------------------------------


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng, held = np.random.default_rng(0), 0
    for seed in range(200):
        energies, errors = rng.exponential(2, 60), rng.exponential(1, 60)
        _, (low, high) = Resamples(60, stream(seed=seed)).pooled_db(energies, errors)
        held += low < 10 * math.log10(2) < high
    assert 0.88 < held / 200 <= 0.98
