"""Audits: coins decide which images are released, and whoever sees the release guesses them.

Each of many fair coins chooses which of two images of one class is in. All are released at once, in
one run of the defense, and a guesser names the coins that it is surest of, as many as were said
beforehand. `harness.scoring.audit` turns the number of right ones into a lower bound on epsilon, of
the adjacency that a coin has: one image is replaced by another of its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from harness.api.errors import UsageError
from harness.api.specs import Stage
from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.rng import public_stream, secret_stream
from harness.running.run import Observer, Run, check_machine, equip
from harness.scoring.audit import LEVEL, Guessed, epsilon_of, least_epsilon, least_mu
from harness.store import Store, cache_root

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Samples, Splits
    from harness.asking.request import Resolved

ADJACENCY = "replace one image by another of its class"
SPARE = 100
"""Images drawn beside two for each coin: of each class one may be left over."""


@dataclass(frozen=True)
class Design:
    """What is fixed before anything is released: so many coins, guesses, δ, and the level."""

    coins: int
    guesses: int
    delta: float
    level: float = LEVEL

    def __post_init__(self) -> None:
        if not 0 < self.guesses <= self.coins:
            raise UsageError(
                f"{self.guesses} guesses on {self.coins} coins: at least one, and no more than "
                "there are coins."
            )
        if not 0 < self.delta < 1:
            raise UsageError(f"delta is {self.delta:g}; an epsilon needs one between 0 and 1.")


class AuditReport(BaseModel):
    """What one audit found."""

    model_config = ConfigDict(frozen=True)

    defense: str
    dataset: str
    space: str
    rounds: int
    seed: int
    adjacency: str = ADJACENCY
    guesser: str
    coins: int
    guesses: int
    right: int
    delta: float
    level: float
    epsilon_at_least: float
    """By theorem 5.2 of Steinke et al., for any mechanism."""
    largest: float
    """What it would be if all guesses were right: no audit of this design finds more."""
    epsilon_at_least_gaussian: float | None = None
    """By trade-off functions, of a mechanism that is Gaussian; None where it is not."""
    epsilon_at_most: float | None = None
    uncertified: str = ""
    """Why there is no upper end."""


@dataclass(frozen=True)
class Evidence:
    """Log-odds [coins] of each coin's second image, and what is certain of the mechanism."""

    odds: Tensor
    guesser: str
    gaussian: bool
    mu: float | None
    uncertified: str


def audit(design: Design, observer: Observer, **options: Any) -> AuditReport:
    """One audit of the cell of these options; UsageError where its coins cannot be guessed."""
    run, defense = _run(design, observer, options)
    request = run.cell.request
    with run:
        splits, stream = run.splits, public_stream(request.seed).stream(stage="audit")
        pairs, labels = _pairs(splits, design.coins, stream)
        fell = stream.stream(what="coins").integers(2, design.coins)
        with run.watched("release and guess"):
            seen = _evidence(run, defense, splits, pairs, labels, fell)
    right = _right(seen.odds, fell, design.guesses)
    guessed = Guessed(design.coins, design.guesses, right)
    return AuditReport(
        defense=request.defense,
        dataset=request.dataset,
        space=request.space,
        rounds=request.rounds,
        seed=request.seed,
        guesser=seen.guesser,
        right=right,
        coins=design.coins,
        guesses=design.guesses,
        delta=design.delta,
        level=design.level,
        uncertified=seen.uncertified,
        **_bounds(guessed, design, seen),
    )


def _bounds(guessed: Guessed, design: Design, seen: Evidence) -> dict[str, float | None]:
    level, delta = design.level, design.delta
    best = Guessed(design.coins, design.guesses, design.guesses)
    mu = least_mu(guessed, level) if seen.gaussian else None
    return {
        "epsilon_at_least": least_epsilon(guessed, delta, level),
        "largest": least_epsilon(best, delta, level),
        "epsilon_at_least_gaussian": None if mu is None else epsilon_of(mu, delta),
        "epsilon_at_most": None if seen.mu is None else epsilon_of(seen.mu, delta),
    }


def _run(design: Design, observer: Observer, options: Mapping[str, Any]) -> tuple[Run, Resolved]:
    """The cell whose private images the coins choose from, and its one defense."""
    size = 2 * design.coins + SPARE
    fixed = {"preset": "standard", "only": "utility", "device": "cpu", "private_size": size}
    root = cache_root()
    cell = equip(plan(make_request(**fixed, **options), registry()), root)
    if cell.reason:
        raise UsageError(cell.reason)
    if cell.request.parties > 1:
        raise UsageError("An audit is of one owner; leave --parties at 1.")
    (defense, *others) = cell.defenses
    late = [d for d in cell.defenses if d.spec.stage not in (Stage.ENCODING, Stage.STATISTICS)]
    if others or late:
        raise UsageError(
            f"An audit is of one defense that encodes or sums, and not of '{cell.request.defense}'."
        )
    check_machine("cpu")
    return Run(cell, Store(root), registry(), observer=observer), defense


def _pairs(splits: Splits, coins: int, stream: Any) -> tuple[Tensor, Tensor]:
    """[coins, 2, *shape] standardised images, two of one class each, and the classes [coins]."""
    import torch

    labels, found = splits.private.labels, []
    for c in range(len(splits.classes)):
        of = (labels == c).nonzero()[:, 0]
        of = of[stream.stream(what="pairs", of=c).permutation(len(of))]
        found.append(of[: len(of) // 2 * 2].view(-1, 2))
    every = torch.cat(found)
    if len(every) < coins:
        raise UsageError(f"There are {len(every)} pairs of one class for {coins} coins; ask fewer.")
    chosen = every[stream.stream(what="order").permutation(len(every))[:coins]]
    images = splits.private[chosen.flatten()].standardised(splits.scale).images
    return images.view(coins, 2, *images.shape[1:]), labels[chosen[:, 0]]


def _right(odds: Tensor, fell: Tensor, guesses: int) -> int:
    """How many of the surest guesses are right; of equals the first count."""
    surest = odds.abs().argsort(descending=True, stable=True)[:guesses]
    return int(((odds > 0).long() == fell)[surest].sum())


def _evidence(
    run: Run, defense: Resolved, splits: Splits, pairs: Tensor, labels: Tensor, fell: Tensor
) -> Evidence:
    """What the release of the chosen images tells of the coins."""
    import torch

    from harness.api import Samples
    from harness.running.samples import standardised
    from harness.running.stage import plugin_boundary

    private = Samples(pairs[torch.arange(len(pairs)), fell], labels)
    public = standardised(splits.public, splits.scale)
    built = run.build("defenses", defense.spec, defense.config)
    with plugin_boundary(defense.name):
        if defense.spec.stage is Stage.STATISTICS:
            return _of_sums(run, built, private, public, pairs)
        return _of_rows(run, defense.name, built, private, public, pairs)


def _of_sums(run: Run, built: Any, private: Samples, public: Samples, pairs: Tensor) -> Evidence:
    from harness.auditing.likelihood import log_odds_of_sums, of_guarantee

    owner = secret_stream(run.cell.request.seed, None).stream(stage="audit")
    classes = len(run.splits.classes)
    made = built.measure(private, public, classes, owner)
    rows = built.embed(pairs.flatten(0, 1), made.basis).view(len(pairs), 2, -1)
    odds = log_odds_of_sums(made, rows, private.labels)
    mu = of_guarantee(made.guarantee)
    why = "" if mu is not None else "the defense states no mu"
    return Evidence(odds, "likelihood of class sums", mu is not None, mu, why)


def _of_rows(
    run: Run, name: str, built: Any, private: Samples, public: Samples, pairs: Tensor
) -> Evidence:
    from harness.auditing.likelihood import (
        Seen,
        certified,
        check,
        farthest,
        log_odds,
        with_noise,
    )
    from harness.running.encoding import Source

    request = run.cell.request
    owner = secret_stream(request.seed, None).stream(stage="audit")
    held = Source(
        private, public, (name, built), owner, request.rounds, len(run.splits.classes)
    ).held()
    rows = held.images.flatten(0, 1).flatten(1)
    weights, sources = (held.secrets[key].flatten(0, 1) for key in ("weights", "sources"))
    law = built.law(rows.shape[1], held.resolved[name])
    law = check(law, name, columns=weights.shape[1])
    odds = log_odds(Seen(rows, weights, sources, pairs.flatten(2)), law)
    mu, why = certified(law, farthest(pairs), request.rounds)
    guesser = f"likelihood of rows {with_noise(law)}, weights and partners told"
    return Evidence(odds, guesser, law.noise == "gaussian", mu, why)
