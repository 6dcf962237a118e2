"""Small boards and records made by hand, whose sums hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import Resolved, make_request, parse_stack
from harness.boards.protocol import Board
from harness.control import AnyReport, ControlReport, ControlResult, LearnerReport
from harness.results.material import Kept, Material, Reported
from harness.rng import KeyedStream, board_key
from harness.scoring.ceilings import Proof
from harness.scoring.flags import Flag
from harness.scoring.summary import OTHERS, Values, by_image, proportion_interval, summarise
from harness.scoring.utility import Accuracy, Utility
from harness.store.provenance import spec_source
from harness.store.record import RunRecord, Used

OPTIONS: dict[str, Any] = {
    "dataset": "fashion-mini",
    "preset": "standard",
    "private_size": 8,
    "test_size": 100,
    "threads": 1,
    "precision": "float32",
}
GUESS = (1.0, 2.0, 3.0, 4.0)
"""What guessing scores on each of four images."""


def board(
    defenses: Sequence[str] = ("none", "mixup[k=2]"),
    attacks: Sequence[str] = ("linear", "lmmse"),
    seeds: Sequence[int] = (0,),
    **more: Any,
) -> Board:
    """A board of one track."""
    values = {
        "name": "tiny",
        "title": "Tiny",
        "options": OPTIONS,
        "tracks": [
            {
                "name": "once",
                "title": "All of it",
                "defenses": defenses,
                "cells": [{"attacks": attacks, "seeds": seeds}],
            }
        ],
    }
    return Board.model_validate({**values, **more})


def tiny_board(*attacks: str) -> str:
    """The file of such a board: two defenses against these attacks."""
    options = "\n".join(f"{name} = {json.dumps(value)}" for name, value in OPTIONS.items())
    return f"""\
name = "tiny"
title = "Tiny"
[options]
{options}
[[tracks]]
name = "once"
title = "All of it"
defenses = ["none", "mixup[k=2]"]
[[tracks.cells]]
attacks = {json.dumps(attacks)}
"""


def used(text: str, kind: str = "defenses") -> Used:
    """A plugin of such a name with these options, as it is installed if one is."""
    (selection,) = parse_stack(text)
    entry = registry().entries[kind].get(selection.name)
    return Used(
        name=selection.name,
        version=entry.spec.version if entry else "1",
        distribution=entry.origin.distribution if entry else "d",
        source_sha256=spec_source(entry.spec) if entry else "0",
        config=dict(selection.options),
    )


def record(
    defense: str = "none",
    attack: str = "linear",
    gains: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    *,
    seed: int = 0,
    right: int = 80,
    guess: Sequence[float] = GUESS,
    misplaced: Sequence[float] | None = None,
    flags: Sequence[str] = (),
    asked: Mapping[str, Any] | None = None,
    metric: str = "snr_db",
    leaks_more: Literal["higher", "lower"] = "higher",
    **more: Any,
) -> RunRecord:
    """A record with a result: on each image the attack has so many decibels more than a guess.

    Of a metric of which lower leaks more, so many less, and without a unit. `right` of 100 test
    images are named rightly; 90 without protection.
    """
    request = make_request(
        **{**OPTIONS, **(asked or {}), "defense": defense, "attack": attack, "seed": seed}
    )
    sign, unit = (1, "dB") if leaks_more == "higher" else (-1, "")
    scores = {metric: np.array(guess) + sign * np.array(gains)}
    wrong = {metric: [float(g) for g in (guess if misplaced is None else misplaced)]}
    others = np.array(wrong[metric]).reshape(-1, len(guess)).mean(0)
    nulls = {metric: {"class_mean": np.array(guess), OTHERS: others}}
    values = {n: Values(s, nulls[n], leaks_more, unit) for n, s in scores.items()}
    stream = KeyedStream(board_key(seed)).stream(stage="judge").stream(use="bootstrap")
    privacy = summarise(values, stream)
    kept = by_image(privacy, _lists(scores), {n: list(map(float, guess)) for n in scores}, wrong)
    made: dict[str, Any] = {
        "status": "ok",
        "request": request,
        "defense": tuple(used(term) for term in defense.split("+")),
        "attack": used(attack, "attacks"),
        "dataset": used(request.dataset, "datasets"),
        "victim": used(request.victim, "victims"),
        "space": used(request.space, "spaces"),
        "threat_model": request.threat_model,
        "release_kind": "encodings",
        "channels_used": ("encodings", "public"),
        "splits": {"targets": len(guess)},
        "seeds": {"seed": seed, "owner_key": "derived from the seed"},
        "device": "cpu",
        "threads": 1,
        "utility": utility(right),
        "privacy": privacy,
        "by_image": kept,
        "flags": tuple(Flag(name=name, message=f"what {name} says") for name in flags),
        "created": "2026-01-01T00:00:00+00:00",
    }
    return RunRecord(**{**made, **more}).sealed()


def as_today(of: RunRecord) -> RunRecord:
    """A record with the versions and options that its request means today."""
    cell = plan(of.request, registry())
    made = {
        "defense": tuple(_told("defenses", each) for each in cell.defenses),
        "attack": _told("attacks", cell.attack),
        "dataset": _told("datasets", cell.dataset),
        "victim": _told("victims", cell.victim),
        "space": _told("spaces", cell.space),
        "learners": {name: _told("learners", each) for name, each in cell.learners.items()},
        "ceilings": {name: Proof(reason="none is stated") for name in cell.ceilings},
    }
    return of.model_copy(update=made).sealed()


def _told(kind: str, plugin: Resolved) -> Used:
    return Used.of(registry(), kind, plugin)


def raised(values: dict[str, Any], by: float = 0.5) -> None:
    """Raise every score of a record's JSON by hand, sums and intervals and all."""
    score, kept = values["privacy"]["snr_db"], values["by_image"]["snr_db"]
    for name in ("mean", "median", "worst", "gain"):
        score[name] += by
    for name in ("ci", "gain_ci"):
        score[name] = [bound + by for bound in score[name]]
    kept["attack"] = [value + by for value in kept["attack"]]


def _lists(scores: Mapping[str, Any]) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in scores.items()}


def utility(right: int, reference: int = 90, n: int = 100) -> Utility:
    """So many test images named rightly, of as many without protection."""
    own, plain = (
        Accuracy(mean=k / n, interval=proportion_interval(k, n), trainings=(k / n,))
        for k in (right, reference)
    )
    return Utility(
        accuracy=own.mean,
        interval=own.interval,
        accuracies={"plain": own},
        chance=0.1,
        n=n,
        reference_accuracy=plain.mean,
        reference_interval=plain.interval,
        reference_accuracies={"plain": plain},
    )


def ended(
    status: str, error: str, defense: str = "none", attack: str = "linear", seed: int = 0
) -> RunRecord:
    """A record without a result."""
    bare = {"utility": None, "privacy": {}, "by_image": {}, "channels_used": ()}
    return record(defense, attack, seed=seed, status=status, error=error, **bare)


def passed(attack: str, passes: bool = True) -> ControlReport:
    """A report on the controls of an attack."""
    return ControlReport(
        written=attack,
        attack=used(attack, "attacks"),
        preset="standard",
        seed=0,
        results=(),
        passed=passes,
    ).sealed()


def learned(learner: str, passes: bool = True) -> LearnerReport:
    """A report on the controls of a learner."""
    return LearnerReport(
        written=learner,
        learner=used(learner, "learners"),
        preset="standard",
        seed=0,
        results=(),
        passed=passes,
    ).sealed()


def reached(attack: str, value: float = 99.0) -> tuple[ControlResult, ...]:
    """What became of the controls that an attack declares, each of them so many decibels."""
    return tuple(
        ControlResult(
            control=control,
            reached=value,
            ci=(value - 1, value + 1),
            leaks_more="higher",
            unit="dB",
            passed=value >= control.at_least,
            status="ok",
        )
        for control in registry().spec("attacks", attack).controls
    )


def material(of: Board, *records: RunRecord, controls: Sequence[AnyReport] = ()) -> Material:
    """What a board's folder would hold."""
    return Material(of, tuple(map(Kept, records)), tuple(map(Reported, controls)))
