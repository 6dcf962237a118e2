"""Audits: coins decide which images are released, and whoever sees the release guesses them.

Each of many fair coins chooses which of two images of one class is in. All are released at once, in
one run of the defense, and a guesser names the coins that it is surest of, as many as were said
beforehand. `harness.scoring.audit` turns the number of right ones into a lower bound on epsilon, of
the adjacency that a coin has: one image is replaced by another of its class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from harness.api.errors import UsageError
from harness.api.gaussian import epsilon_of
from harness.asking.registry import registry
from harness.running.run import Observer, Run, check_machine, equip
from harness.scoring.audit import LEVEL, Guessed, least_epsilon, least_mu, named
from harness.store import Store, cache_root

if TYPE_CHECKING:
    from harness.auditing.proofs import Proven

LIKELIHOOD = "likelihood"
"""The guesser where none is asked for."""


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


class Account(BaseModel):
    """A budget that is proven, and of which neighbours."""

    model_config = ConfigDict(frozen=True)

    epsilon: float
    delta: float
    adjacency: str


class AuditReport(BaseModel):
    """What one audit found."""

    model_config = ConfigDict(frozen=True)

    defense: str
    dataset: str
    space: str
    rounds: int
    seed: int
    adjacency: str
    """Of both ends: at least, and at most."""
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
    """Proven of the coins' own pairs: of encodings by how far these are apart, which is less than
    the `dp` ceiling has for any two images."""
    uncertified: str = ""
    """Why there is no upper end."""
    apart: Account | None = None
    """What is proven of other neighbours: no upper end of this audit."""


def audit(
    design: Design,
    observer: Observer,
    *,
    guesser: str = LIKELIHOOD,
    learner: str | None = None,
    **options: Any,
) -> AuditReport:
    """One audit of the cell of these options; UsageError where its coins cannot be guessed."""
    check_machine("cpu")
    from harness.auditing.coins import SPARE, toss
    from harness.auditing.guessers import guess, planned
    from harness.auditing.proofs import ADJACENCY, proven

    root, size = cache_root(), 2 * design.coins + SPARE
    fixed = {"preset": "standard", "device": "cpu", "private_size": size}
    cell = equip(planned(guesser, learner, {**fixed, **options}, registry()), root)
    request = cell.request
    with Run(cell, Store(root), registry(), observer=observer) as base:
        coins = toss(base.splits, design.coins, request.seed)
        found = guess(base, coins, guesser)
        proof = proven(found.run, coins)
    guessed = named(found.odds.numpy(), coins.fell.numpy(), design.guesses)
    return AuditReport(
        defense=request.defense,
        dataset=request.dataset,
        space=request.space,
        rounds=request.rounds,
        seed=request.seed,
        adjacency=ADJACENCY,
        guesser=found.told,
        right=guessed.right,
        coins=design.coins,
        guesses=design.guesses,
        delta=design.delta,
        level=design.level,
        uncertified=proof.uncertified,
        apart=proof.apart,
        **_bounds(guessed, design, proof),
    )


def _bounds(guessed: Guessed, design: Design, proof: Proven) -> dict[str, float | None]:
    level, delta = design.level, design.delta
    best = Guessed(design.coins, design.guesses, design.guesses)
    mu = least_mu(guessed, level) if proof.gaussian else None
    return {
        "epsilon_at_least": least_epsilon(guessed, delta, level),
        "largest": least_epsilon(best, delta, level),
        "epsilon_at_least_gaussian": None if mu is None else epsilon_of(mu, delta),
        "epsilon_at_most": None if proof.mu is None else epsilon_of(proof.mu, delta),
    }
