"""Guessing coins from a release: against enumeration of all coins, and on real clothes."""

import itertools
import json
import math

import pytest
import torch
from click.testing import CliRunner

from harness.api import Reconstruction, Samples, Scale, Splits, UsageError
from harness.api.law import Law
from harness.asking.registry import registry
from harness.auditing import Design, audit
from harness.auditing.coins import toss
from harness.auditing.guessers import _compared, _places, planned
from harness.auditing.likelihood import (
    Seen,
    certified,
    check,
    farthest,
    log_odds,
    log_odds_of_sums,
)
from harness.auditing.membership import Shadow, confidence, fitted
from harness.cli.audit import command
from harness.rng import secret_stream
from harness.running.attack import candidates
from harness.running.run import Observer
from harness.scoring.audit import named

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
    assert named(odds, fell, n).right == n


def test_sums_are_read_by_their_most_likely_coins():
    """Of one coin a class, its odds are those of two normal laws."""
    rows = random(2, 2, 4)
    sums = random(2, 4, seed=5)
    odds = log_odds_of_sums(sums, 0.9, rows, torch.tensor([0, 1]))
    far = (sums[:, None] - rows).double().square().sum(2) / (2 * 0.9**2)
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
    odds = log_odds(seen, GAUSSIAN)
    assert 160 < named(odds, again, 400).right < 240
    assert named(odds, torch.tensor([0, 1] * 200), 400).right > 300


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


@pytest.mark.parametrize(
    ("defense", "guesser", "learner", "message"),
    [
        ("dpsgd", "likelihood", None, "No likelihood is known of what is trained under 'dpsgd'"),
        ("mixcon", "loss", None, "features leave, and not the weights"),
        ("mixcon", "matchedfilter", None, "reads encodings"),
        ("dpmeans", "innerproduct", None, "is statistics"),
        ("mixup", "lmmse", None, "'lmmse' ranks no candidates"),
        ("mixup", "suite", None, "'suite' ranks no candidates"),
        ("mixup", "matchfilter", None, "no guesser. Did you mean 'matchedfilter'"),
        ("mixup", "lirra", None, "Did you mean 'lira'"),
        ("mixup", "loss", "closed", "many learners; name one of classmeans, ridge"),
        ("mixup", "innerproduct", "ridge", "trains no learner"),
        ("mixup+dpsgd", "loss", None, "of one defense"),
    ],
)
def test_a_guesser_with_nothing_to_look_at_is_refused_in_words(defense, guesser, learner, message):
    with pytest.raises(UsageError, match=message):
        planned(guesser, learner, {"defense": defense}, registry())


def splits(private, classes=3, d=4):
    labels = torch.arange(private) % classes
    images = random(private, 1, 1, d)
    scale = Scale((0.0,), (1.0,), None, None)
    none = Samples(images[:0], labels[:0])
    return Splits(Samples(images, labels), none, none, scale, tuple("abc"[:classes]))


def test_each_coin_chooses_one_of_two_images_of_a_class_that_no_other_coin_has():
    found = splits(60)
    coins = toss(found, 25, seed=3)
    assert (coins.pairs.labels[::2] == coins.pairs.labels[1::2]).all()
    assert len(torch.unique(coins.pairs.images.flatten(1), dim=0)) == 50
    chosen, others = coins.chosen.images, coins.others.images
    pairs = coins.pairs.images.view(25, 2, 1, 1, 4)
    for i, side in enumerate(coins.fell.tolist()):
        assert torch.equal(chosen[i], pairs[i, side])
        assert torch.equal(others[i], pairs[i, 1 - side])
    assert 5 < int(coins.fell.sum()) < 20
    with pytest.raises(UsageError, match="pairs of one class for 31 coins"):
        toss(found, 31, seed=3)


class Standing:
    """What a guesser by scores asks of a run."""

    def __init__(self, coins, weights=None, sources=None):
        self.secret = b"key"
        self.cell = type("Cell", (), {"request": type("Request", (), {"seed": 0})})
        scale = Scale((0.0,), (1.0,), None, None)
        self.splits = Splits(coins.chosen, coins.chosen[:0], coins.others, scale, ("a",))
        self.release = type("Release", (), {"secrets": {"weights": weights, "sources": sources}})


def test_a_coin_s_two_images_are_found_among_the_candidates_that_an_attack_was_shown():
    coins = toss(splits(40), 12, seed=1)
    run = Standing(coins)
    shown = candidates(run.splits, secret_stream(0, b"key")).images
    places = _places(run, coins)
    assert torch.equal(shown[places.flatten()], coins.pairs.images)


def test_scores_of_rows_count_for_the_coins_whose_images_are_in_them():
    """Three coins; row 1 holds images 0 and 2, of row 0 the second has no weight, 9 is public."""
    sources = torch.tensor([[[1, 0], [0, 2], [2, 9]]])
    weights = torch.tensor([[[1.0, 0.0], [0.5, 0.5], [0.7, 0.3]]])
    coins = toss(splits(40), 3, seed=1)
    places = torch.tensor([[0, 1], [2, 3], [4, 5]])
    scores = torch.tensor([[0, 7, 0, 1, 0, 7], [0, 2, 0, 9, 0, -4], [1, 1, 1, 1, 0, 0.5]])
    rows = Reconstruction(claims={"candidate_scores": scores}, rows=torch.arange(3))
    run = Standing(coins, weights, sources)
    assert _compared(rows, places, run, 3).tolist() == [2, 1, -3.5]
    targets = Reconstruction(claims={"candidate_scores": scores}, targets=torch.tensor([2, 0, 1]))
    assert _compared(targets, places, run, 3).tolist() == [2, 0, 7]


def test_confidence_is_the_log_of_the_odds_of_the_true_class():
    logits, labels = random(20, 5), torch.arange(20) % 5
    p = logits.double().softmax(1)[torch.arange(20), labels]
    torch.testing.assert_close(confidence(logits, labels), (p / (1 - p)).log())
    assert confidence(torch.tensor([[900.0, 0.0]]), torch.tensor([0])).tolist() == [900]


def shadows(shift, inside, outside, count=32, asked=40, reserved=400):
    """Confidence about each image's own level; being in adds `shift`."""
    levels = 3 * random(asked + reserved, seed=1)
    for i in range(count):
        held = torch.zeros(reserved, dtype=torch.bool)
        held[
            torch.randperm(reserved, generator=torch.Generator().manual_seed(i))[: reserved // 2]
        ] = 1
        mine = torch.cat([torch.zeros(asked, dtype=torch.bool), held])
        noise = random(asked + reserved, seed=100 + i)
        yield Shadow(levels + torch.where(mine, shift + inside * noise, outside * noise), held)


def test_lira_fits_what_being_in_adds_and_compares_each_image_with_itself():
    fit = fitted(list(shadows(2.0, 0.5, 1.0)), 40)
    assert fit.shift == pytest.approx(2.0, abs=0.05)
    # each image's own level is known from some sixteen shadows without it, or all 32
    assert fit.spread_in == pytest.approx(math.sqrt(0.25 + 1 / 16), abs=0.03)
    assert fit.spread_out == pytest.approx(math.sqrt(1 + 1 / 32), abs=0.03)
    levels = 3 * random(440, seed=1)[:40]
    torch.testing.assert_close(fit.centre, levels.double(), atol=0.8, rtol=0)
    own = fit.centre + torch.tensor([0.0, 2.0] * 20)
    odds = fit.odds(own)
    off = torch.tensor([0.0, 2.0], dtype=torch.float64)
    inside = torch.distributions.Normal(fit.shift, fit.spread_in).log_prob(off)
    outside = torch.distributions.Normal(0.0, fit.spread_out).log_prob(off)
    wanted = (inside - outside)[1] - (inside - outside)[0]
    torch.testing.assert_close(odds, wanted.expand(20), rtol=1e-5, atol=1e-5)


def test_an_attack_guesses_coins_from_a_process_that_holds_the_pairs_shuffled(cache):
    found = audited("mixup[k=2]", coins=60, guesser="innerproduct")
    assert found.right == found.coins
    assert found.guesser == "scores of innerproduct, candidates and sources told"
    assert found.uncertified == "no certificate without noise"


def test_shadows_of_public_images_say_more_than_the_loss_alone(cache):
    loss, lira = (audited("none", guesser=name, public_size=900) for name in ("loss", "lira"))
    assert loss.right > 115
    assert lira.right > loss.right
    assert lira.epsilon_at_least > 0.5


def test_a_budget_of_other_neighbours_is_no_upper_end(cache):
    found = audited("dpmix[epsilon=4]", coins=60, guesser="loss")
    assert found.epsilon_at_most is None
    assert found.epsilon_at_least_gaussian is None
    assert found.apart.epsilon == pytest.approx(4, rel=0.02)
    assert found.apart.adjacency == "add or remove one image"


def test_a_training_s_weights_are_audited_by_membership(cache):
    found = audited("gradprune[p=0.1]", coins=60, guesser="loss", victim="mlp[epochs=30]")
    assert found.right > 40
    assert found.guesser == "loss of mlp[epochs=30]'s weights"


def test_the_command_says_first_what_was_fixed_beforehand(cache):
    asked = ["--defense", "mixup[k=2]", "--dataset", "fashion-mini", "--public-size", "100"]
    asked += ["--coins", "50", "--guesses", "40", "--threads", "1", "-q"]
    told = CliRunner().invoke(command, asked)
    assert told.output.startswith("fixed beforehand: 50 coins, 40 guesses, delta 1e-05, level 0.05")
    found = json.loads(CliRunner().invoke(command, [*asked, "--json"]).stdout)
    assert found["right"] == found["guesses"] == 40
