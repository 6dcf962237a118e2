"""Guessers: each looks at what leaves of the chosen images, and gives every coin a score.

A score is above 0 where the coin's second image looks like the private one; how far says how sure
that is. A guesser that is no good finds a small bound, and none that is false.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from harness.api import Channel, Reconstruction, UsageError
from harness.api.errors import nearest
from harness.api.specs import Stage
from harness.asking.plan import Cell, plan
from harness.asking.registry import Registry
from harness.asking.request import make_request, parse_one
from harness.auditing import LIKELIHOOD
from harness.auditing.coins import Coins, joined, released
from harness.auditing.likelihood import OTHERS, Seen, check, log_odds, log_odds_of_sums, with_noise
from harness.auditing.membership import SHADOWS, by_lira, by_loss
from harness.rng import secret_stream
from harness.running.attack import AttackStage, true_places
from harness.running.run import Run
from harness.running.samples import standardised
from harness.running.stage import plugin_boundary
from harness.running.workplace import law_of
from harness.sandbox.jobs import statistics
from harness.store.artifacts import below

MEMBERSHIP: dict[str, Callable[[Run, Coins], tuple[Run, Tensor]]] = {
    "loss": by_loss,
    "lira": by_lira,
}


@dataclass(frozen=True)
class Guess:
    """A score for each coin [coins], the run of what left, and in words how they came about."""

    odds: Tensor
    run: Run
    told: str


def planned(guesser: str, learner: str | None, options: dict[str, Any], known: Registry) -> Cell:
    """The cell that a guesser looks at; UsageError where it has nothing to look at."""
    asked = parse_one(guesser)
    name = asked.name
    if asked.options and name in (LIKELIHOOD, *MEMBERSHIP):
        raise UsageError(f"'{name}' has no options; learners have theirs: --learner.")
    if name not in MEMBERSHIP and learner is not None:
        raise UsageError(f"'{name}' trains no learner: --learner is for --guesser loss and lira.")
    if name == LIKELIHOOD:
        return _stated(_possible(make_request(only="utility", **options), known))
    if name in MEMBERSHIP:
        return _learning(learner, options, known)
    attacks = {spec.name: spec for spec in known.specs("attacks")}
    if name not in attacks:
        every = [LIKELIHOOD, *MEMBERSHIP, *attacks]
        raise UsageError(f"'{name}' is no guesser.{nearest(name, every)}")
    cell = _possible(
        make_request(only="privacy", attack=guesser, threat_model="candidates", **options), known
    )
    if cell.main is None or Channel.CANDIDATES not in cell.main.channels or cell.members:
        raise UsageError(f"'{name}' ranks no candidates, so it names no coins; {OTHERS}.")
    return cell


def _possible(request: Any, known: Registry) -> Cell:
    cell = plan(request, known)
    if cell.reason:
        raise UsageError(cell.reason)
    if request.parties > 1:
        raise UsageError("An audit is of one owner; leave --parties at 1.")
    if len(cell.defenses) > 1:
        raise UsageError(f"An audit is of one defense, and not of '{request.defense}'.")
    return cell


def _stated(cell: Cell) -> Cell:
    (defense,) = cell.defenses
    if defense.spec.stage not in LIKELIHOODS:
        raise UsageError(
            f"No likelihood is known of what is trained under '{defense.name}'; {OTHERS}."
        )
    return cell


def _learning(learner: str | None, options: dict[str, Any], known: Registry) -> Cell:
    """With the closed learner that fits images most closely, unless another is asked for."""
    cell = _possible(make_request(only="utility", learner=learner or "ridge", **options), known)
    if cell.sums and learner is None:
        return _learning("noisymeans", options, known)
    if cell.learns and len(cell.learners) > 1:
        raise UsageError(f"'{learner}' is many learners; name one of {', '.join(cell.learners)}.")
    (defense,) = cell.defenses
    if defense.spec.stage is Stage.TRAINING:
        built = known.build("defenses", defense.name, defense.config)
        if not built.releases_gradients:
            raise UsageError(
                f"Under '{defense.name}' features leave, and not the weights that are trained: "
                "their membership is no audit of it."
            )
    return cell


def guess(base: Run, coins: Coins, guesser: str) -> Guess:
    """What a guesser makes of the coins; UsageError where it can make nothing of them."""
    name = parse_one(guesser).name
    if name in MEMBERSHIP:
        run, odds = MEMBERSHIP[name](base, coins)
        return Guess(odds, run, _membership_told(name, base.cell))
    return _by_likelihood(base, coins) if name == LIKELIHOOD else _by_attack(base, coins)


def _membership_told(name: str, cell: Cell) -> str:
    model = next(iter(cell.learners)) if cell.learns else f"{cell.request.victim}'s weights"
    shadows = f", {SHADOWS} shadows of reserved public images" if name == "lira" else ""
    return f"{name} of {model}{shadows}"


def _by_attack(base: Run, coins: Coins) -> Guess:
    """By an attack's scores of candidates: the two images of every coin, shuffled."""
    run = released(base, coins.chosen, coins.others, "chosen among candidates")
    main = run.cell.main
    assert main is not None
    found = run(AttackStage(run.cell, main)).reconstruction
    if "candidate_scores" not in found.claims:
        raise UsageError(f"'{main.attack.name}' claims no candidate scores here; {OTHERS}.")
    odds = _compared(found, _places(run, coins), run, len(coins))
    return Guess(odds, run, f"scores of {main.attack.name}, candidates and sources told")


def _places(run: Run, coins: Coins) -> Tensor:
    """[coins, 2] where the first and the second image of each coin are among the candidates."""
    both = joined(coins.chosen, coins.others)
    # As many candidates as the attack was shown are shuffled alike, private ones or not.
    alone = replace(run.splits, private=both, test=both[:0])
    places = true_places(alone, secret_stream(run.cell.request.seed, run.secret))
    chosen, others = places.view(2, -1)
    second = coins.fell.bool()
    first_place = torch.where(second, others, chosen)
    return torch.stack([first_place, torch.where(second, chosen, others)], 1)


def _compared(found: Reconstruction, places: Tensor, run: Run, count: int) -> Tensor:
    """[coins] sums of second minus first score, over all that the attack scored of each coin."""
    scores = found.claims["candidate_scores"].cpu().double()
    odds = scores.new_zeros(count)
    for place in _images(found, run, len(scores), count).T:
        own = place < count  # other sources are public, or of no weight
        coin, row = place[own], own.nonzero()[:, 0]
        apart = scores[row, places[coin, 1]] - scores[row, places[coin, 0]]
        odds.index_add_(0, coin, apart)
    return odds


def _images(found: Reconstruction, run: Run, scored: int, count: int) -> Tensor:
    """[scored, k] which private images each row of scores is about; `count` in place of none."""
    if found.rows is None:
        named = torch.arange(scored) if found.targets is None else found.targets.cpu().long()
        return named.view(-1, 1)
    rows, secrets = found.rows.cpu().long(), run.release.secrets
    sources, weights = (secrets[key].flatten(0, 1)[rows] for key in ("sources", "weights"))
    return sources.masked_fill(weights == 0, count)


def _by_likelihood(base: Run, coins: Coins) -> Guess:
    """By the law that the defense states, or that of noisy sums."""
    (defense,) = base.cell.defenses
    run = released(base, coins.chosen, coins.pairs, f"{len(coins)} chosen")
    pairs = standardised(coins.pairs, run.splits.scale).images
    with plugin_boundary(defense.name):
        odds, told = LIKELIHOODS[defense.spec.stage](run, pairs, coins)
    return Guess(odds, run, told)


def _of_sums(run: Run, pairs: Tensor, coins: Coins) -> tuple[Tensor, str]:
    sums = run.cell.sums
    assert sums is not None
    made = statistics(law_of(sums, {}), below("statistics.", run.release.tensors))
    rows = made.embed(pairs).view(len(coins), 2, -1)
    labels = coins.chosen.labels
    return log_odds_of_sums(made.sums, made.noise, rows, labels), "likelihood of class sums"


def _of_rows(run: Run, pairs: Tensor, coins: Coins) -> tuple[Tensor, str]:
    (defense,) = run.cell.defenses
    release = run.release
    rows = release.tensors["encodings"].flatten(0, 1).flatten(1)
    weights, sources = (release.secrets[key].flatten(0, 1) for key in ("weights", "sources"))
    built = run.build("defenses", defense.spec, defense.config)
    law = built.law(rows.shape[1], release.resolved[defense.name])
    law = check(law, defense.name, columns=weights.shape[1])
    pairs = pairs.flatten(1)
    if pairs.shape[1] != rows.shape[1]:
        raise UsageError(
            f"'{defense.name}' changes the size of images, which the likelihood does not follow; "
            f"{OTHERS}."
        )
    odds = log_odds(Seen(rows, weights, sources, pairs.view(len(coins), 2, -1)), law)
    return odds, f"likelihood of rows {with_noise(law)}, weights and partners told"


LIKELIHOODS: dict[Stage, Callable[[Run, Tensor, Coins], tuple[Tensor, str]]] = {
    Stage.ENCODING: _of_rows,
    Stage.STATISTICS: _of_sums,
}
"""By the stage of the defense that states a law."""
