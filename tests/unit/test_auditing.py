"""Guessing coins from a release: against enumeration of all coins, and on real clothes."""

import itertools
import json
import math

import pytest
import torch
from click.testing import CliRunner

from harness.api import Measured, UsageError
from harness.api.law import Law
from harness.auditing import Design, _right, audit
from harness.auditing.likelihood import (
    Seen,
    certified,
    check,
    farthest,
    log_odds,
    log_odds_of_sums,
)
from harness.cli.audit import command
from harness.running.run import Observer

GAUSSIAN = Law("gaussian", 0.8, covers="others")
SMALL = {"dataset": "fashion-mini", "public_size": 300, "threads": 1}


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def release(sources, law, coins, d=5, seed=1):
    """Rows of these sources [n, 2] of pairs whose coins fell as `coins` says."""
    sources = torch.tensor(sources)
    pairs = random(len(coins), 2, d, seed=seed)
    chosen = pairs[torch.arange(len(coins)), torch.tensor(coins)]
    weights = torch.tensor([[0.6, 0.4], [0.45, 0.55]]).repeat(len(sources), 1)[: len(sources)]
    clean = (weights[..., None] * chosen[sources]).sum(1)
    noise = law.deviations(weights).float().view(-1, 1) * random(len(sources), d, seed=seed + 1)
    return Seen(clean + noise, weights, sources, pairs)


def enumerated(seen, law):
    """Log-odds of each coin by summing the density of all rows over all other coins."""
    count = len(seen.pairs)
    logs = {}
    for coins in itertools.product((0, 1), repeat=count):
        chosen = seen.pairs[torch.arange(count), torch.tensor(coins)].double()
        clean = (seen.weights.double()[..., None] * chosen[seen.sources]).sum(1)
        spread = law.deviations(seen.weights).view(-1, 1)
        logs[coins] = float(-(((seen.rows.double() - clean) / spread) ** 2).sum() / 2)
    sides = [
        [torch.tensor([v for k, v in logs.items() if k[i] == side]).logsumexp(0) for side in (0, 1)]
        for i in range(count)
    ]
    return torch.tensor([float(second - first) for first, second in sides])


@pytest.mark.parametrize("sources", [[(0, 1), (1, 2), (2, 3)], [(0, 0), (1, 0), (3, 2)]])
def test_odds_are_those_of_all_coins_together_where_rows_form_no_circle(sources):
    seen = release(sources, GAUSSIAN, (0, 1, 1, 0))
    found = log_odds(seen, GAUSSIAN)
    torch.testing.assert_close(found, enumerated(seen, GAUSSIAN).double(), rtol=1e-6, atol=1e-6)


def test_in_a_circle_they_are_nearly_so():
    seen = release([(i, (i + 1) % 8) for i in range(8)], GAUSSIAN, (0, 1, 1, 0, 0, 1, 0, 1))
    found, wanted = log_odds(seen, GAUSSIAN), enumerated(seen, GAUSSIAN)
    assert float((found - wanted).abs().max()) < 0.05


def test_laplace_rows_of_single_images_are_judged_by_absolute_values():
    pairs, rows = random(3, 2, 6), random(3, 6, seed=1)
    law = Law("laplace", math.sqrt(2) * 0.7)
    seen = Seen(rows, torch.full((3, 1), 0.5), torch.tensor([[2], [0], [1]]), pairs)
    off = (rows.double()[[1, 2, 0], None] - 0.5 * pairs).abs().sum(2) / 0.7
    torch.testing.assert_close(log_odds(seen, law), off[:, 0] - off[:, 1])


@pytest.mark.parametrize("deviation", [1.0, 1e3])
def test_the_norm_of_sphere_noise_gives_every_coin_away(deviation):
    law, n, d = Law("sphere", deviation, covers="others"), 200, 400
    fell = torch.randint(0, 2, (n,), generator=torch.Generator().manual_seed(2))
    pairs, order = random(n, 2, d), torch.randperm(n, generator=torch.Generator().manual_seed(3))
    chosen = pairs[torch.arange(n), fell]
    noise = random(n, d, seed=9).double()
    noise *= deviation * math.sqrt(d) / noise.norm(dim=1, keepdim=True)
    weights = torch.tensor([[0.6, 0.4]]).repeat(n, 1)
    rows = (0.6 * chosen + 0.4 * (chosen[order] + noise)).float()
    odds = log_odds(Seen(rows, weights, torch.stack([torch.arange(n), order], 1), pairs), law)
    assert _right(odds, fell, n) == n


def test_sums_are_read_by_their_most_likely_coins():
    """Of one coin a class, its odds are those of two normal laws."""
    rows = random(2, 2, 4)
    made = Measured(random(2, 4, seed=5), torch.ones(2), 0.9, 0.0, {}, {})
    odds = log_odds_of_sums(made, rows, torch.tensor([0, 1]))
    far = (made.sums[:, None] - rows).double().square().sum(2) / (2 * 0.9**2)
    exact = far[:, 0] - far[:, 1]
    assert bool((odds.sign() == exact.sign()).all())


@pytest.mark.parametrize(
    ("law", "columns", "reason"),
    [
        (None, 1, "states no law"),
        (Law("none", signs=True), 2, "signs are random"),
        (Law("none", altered="crops"), 2, "mixes crops"),
        (Law("none"), 4, "4 images are in a row"),
    ],
)
def test_what_has_no_likelihood_is_refused_in_words(law, columns, reason):
    with pytest.raises(UsageError, match=reason):
        check(law, "it", columns)


def test_a_certificate_needs_normal_noise_that_no_private_image_decided():
    exposed = Law("gaussian", 1.0, exposure=0.25)
    assert certified(exposed, 2.0, rounds=4) == (2.0, "")
    assert certified(Law("gaussian", 1.0, exposure=1, calibrated=("radius",)), 1, 1)[0] is None
    assert certified(Law("sphere", 1.0), 1, 1)[0] is None
    assert farthest(torch.tensor([[[0.0, 0], [3, 4]], [[1, 1], [1, 1]]])) == 5


def test_coins_that_were_thrown_again_are_guessed_by_chance():
    seen = release([(i, (i + 3) % 400) for i in range(400)], GAUSSIAN, [0, 1] * 200)
    again = torch.randint(0, 2, (400,), generator=torch.Generator().manual_seed(4))
    assert 160 < _right(log_odds(seen, GAUSSIAN), again, 400) < 240
    assert _right(log_odds(seen, GAUSSIAN), torch.tensor([0, 1] * 200), 400) > 300


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"guesses": 0}, "at least one"),
        ({"guesses": 11}, "no more than"),
        ({"delta": 0.0}, "between 0 and 1"),
        ({"delta": 1.0}, "between 0 and 1"),
    ],
)
def test_designs_that_prove_nothing_are_refused(wrong, message):
    with pytest.raises(UsageError, match=message):
        Design(**{"coins": 10, "guesses": 10, "delta": 1e-5, **wrong})


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))


def audited(defense, coins=200, **options):
    return audit(Design(coins, coins, 1e-5), Observer(), defense=defense, **{**SMALL, **options})


def test_an_audit_of_sphere_noise_finds_as_much_as_it_can(cache):
    found = audited("singmix[tau=1e-4]")
    assert found.right == found.coins
    assert found.epsilon_at_least == found.largest > 3
    assert "sphere" in found.uncertified


def test_what_an_audit_finds_is_no_more_than_what_is_proven(cache):
    radius = "calibrate=public,noise=gaussian"
    for defense in (
        f"singmix[tau=1e-2,{radius}]",
        "dpmeans[epsilon=20]",
        f"singmix[tau=1,{radius}]",
    ):
        found = audited(defense)
        assert found.epsilon_at_least_gaussian is not None
        assert found.epsilon_at_most is not None
        assert max(found.epsilon_at_least, found.epsilon_at_least_gaussian) < found.epsilon_at_most
    assert found.epsilon_at_least > 1


def test_more_coins_than_images_are_refused(cache):
    with pytest.raises(UsageError, match="private images were asked for"):
        audited("singmix", coins=20_000)


def test_a_defense_of_training_has_no_coins_to_guess(cache):
    with pytest.raises(UsageError, match="encodes or sums"):
        audited("dpsgd")


def test_the_command_says_first_what_was_fixed_beforehand(cache):
    asked = ["--defense", "mixup[k=2]", "--dataset", "fashion-mini", "--public-size", "100"]
    asked += ["--coins", "50", "--guesses", "40", "--threads", "1", "-q"]
    told = CliRunner().invoke(command, asked)
    assert told.output.startswith("fixed beforehand: 50 coins, 40 guesses, delta 1e-05, level 0.05")
    found = json.loads(CliRunner().invoke(command, [*asked, "--json"]).stdout)
    assert found["right"] == found["guesses"] == 40
