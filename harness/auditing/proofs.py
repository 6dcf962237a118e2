"""What is proven of an audited release, of which neighbouring data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.api.release import GUARANTEE
from harness.api.specs import Stage
from harness.auditing import Account
from harness.auditing.coins import Coins
from harness.auditing.likelihood import certified, farthest
from harness.running.rounds import Rounds
from harness.running.run import Run
from harness.running.samples import standardised
from harness.running.train import TrainStage
from harness.store.artifacts import below

ADJACENCY = "replace one image by another of its class"
COVERING = frozenset({ADJACENCY, "replace one image by any other, of any class"})
"""What a proof is of that also holds for the two images of a coin."""


@dataclass(frozen=True)
class Proven:
    """Of the coins' adjacency `mu`, or why there is none; of another one an account `apart`.

    `gaussian`: the release is known to be normal noise on a shift, so μ can be bounded.
    """

    gaussian: bool
    mu: float | None
    uncertified: str
    apart: Account | None = None


def proven(run: Run, coins: Coins) -> Proven:
    """What the defense of a run says of itself."""
    (defense,) = run.cell.defenses
    if defense.spec.stage is Stage.STATISTICS:
        return _of_sums(below(GUARANTEE, run.release.resolved[defense.name]))
    if defense.spec.stage is Stage.ENCODING:
        return _of_rows(run, coins)
    return _of_training(run, defense.name)


def _of_sums(told: Mapping[str, Any]) -> Proven:
    if "mu" in told and told.get("adjacency") in COVERING:
        return Proven(True, float(told["mu"]), "")
    return Proven("mu" in told, None, "the defense proves none", _account(told))


def _of_rows(run: Run, coins: Coins) -> Proven:
    (defense,), rounds = run.cell.defenses, run.cell.request.rounds
    source = run(Rounds.under(run.cell, run.cell.defenses))
    resolved = source.resolved[defense.name]
    built = run.build("defenses", defense.spec, defense.config)
    law = built.law(math.prod(source.shape), resolved)
    apart = _account(built.guarantee(len(coins), rounds, resolved))
    if law is None:
        return Proven(False, None, "the defense states no law", apart)
    pairs = standardised(coins.pairs, run.splits.scale).images
    mu, why = certified(law, farthest(pairs.view(len(coins), 2, *pairs.shape[1:])), rounds)
    return Proven(law.noise == "gaussian" and not law.altered, mu, why, apart)


def _of_training(run: Run, name: str) -> Proven:
    """Trainings are accounted for by plugins' measures, which hold no words."""
    measures = run(TrainStage.own(run.cell)[0]).measures
    spent = {key: measures.get(f"{name}.{key}") for key in ("epsilon", "delta")}
    why = "a training has no proof of this adjacency"
    if None in spent.values():
        return Proven(False, None, why)
    adjacency = f"as its accountant counts: see harness describe {name}"
    return Proven(False, None, why, _account({**spent, "adjacency": adjacency}))


def _account(told: Mapping[str, Any]) -> Account | None:
    return Account.model_validate({k: told[k] for k in Account.model_fields}) if told else None
