"""Judging again what an attack returned: the attack does not run, nor a defense that is not here.

The truth is loaded as it was, the metrics are those that are installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from harness.api.errors import UsageError
from harness.api.knowledge import Channel, ReleaseKind
from harness.api.plugins import Config
from harness.api.release import Release
from harness.api.specs import AttackSpec, DefenseSpec, Stage
from harness.asking.plan import AttackPlan, Cell, plan_as_ran
from harness.asking.registry import Registry, registry
from harness.asking.request import Resolved, make_request, parse_stack, resolve
from harness.running.attack import AttackStage
from harness.running.encoding import piece_rows
from harness.running.judge import JudgeStage, judge_of, lists, scores_by_image
from harness.running.leakage import Leakage, leakage
from harness.running.learning import Learning, learning
from harness.running.release import ReleaseStage
from harness.running.rounds import Rounds
from harness.running.run import Observer, Run, equip
from harness.scoring.findings import Finding
from harness.scoring.identification import Identification
from harness.scoring.summary import ByImage, MetricScore
from harness.store.answers import Answer
from harness.store.artifacts import Artifact, Store
from harness.store.files import read_tensors, sha256_of_file
from harness.store.provenance import canonical_json
from harness.store.record import RunRecord, Used

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.scoring.judgement import NullScores


@dataclass(frozen=True)
class Rejudged:
    """What a reconstruction scores when it is judged again, as a record would say it."""

    privacy: Mapping[str, MetricScore]
    by_image: Mapping[str, ByImage]
    findings: Mapping[str, Finding]
    identification: Identification | None


def rejudge(
    record: RunRecord, reconstruction: Path, release: Path | None, store: Store, observer: Observer
) -> Rejudged:
    """Judge what the attack of a record returned.

    Where what left the owner is kept in the file `release`, no defense runs; else it is made
    again by the defenses that are installed. Nothing is believed that was judged before `store`
    was opened. UsageError, AssetUnavailable or CellFailed where the judge cannot do it.
    """
    known = registry()
    files = (reconstruction, "reconstruction"), *([(release, "release")] if release else [])
    content = " ".join(sha256_of_file(path, what) for path, what in files)
    cell = equip(_cell(record, release is not None, known, content), store.root)
    plan = cell.main
    assert plan
    with Run(cell, store, known, observer=observer, force="judge") as run:
        if release:
            run.give(ReleaseStage.of(cell), kept_release(record, release))
        attack = AttackStage(cell, plan)
        run.give(attack, attack.read(Artifact(read_tensors(reconstruction, "reconstruction"))))
        judged = run(JudgeStage(cell, plan))
        by_image = scores_by_image(run, plan)
    return Rejudged(judged.privacy, by_image, judged.findings, judged.identification)


@dataclass(frozen=True)
class Rescored:
    """What an answer that a board keeps scores, by metric and target.

    `rounding` is what the image itself scores where each value is off by as much as rounding may
    have moved it, `misplaced` [draws · k] what the answer scores where others are true. Of guesses
    without help from matching, and of all targets, are `nulls`, and how much `easier` to guess
    these are than the others [draws · targets].
    """

    scores: Mapping[str, list[float]]
    rounding: Mapping[str, list[float]]
    misplaced: Mapping[str, list[float]]
    easier: Mapping[str, list[float]]
    nulls: Mapping[str, Mapping[str, list[float]]]


def rescore(record: RunRecord, answer: Answer, store: Store, observer: Observer) -> Rescored:
    """Score what a board keeps of a record's answer, and guesses, against the truth.

    Neither attack nor defense has to be installed, but for a defense whose resolution was judged
    at: it encodes again. Nothing is believed that was judged before `store` was opened.
    UsageError, AssetUnavailable or CellFailed where the judge cannot do it.
    """
    known, content = registry(), hashlib.sha256(answer.to_bytes()).hexdigest()
    own = record.request.judge_at == "image"
    cell = equip(_cell(record, own, known, content), store.root)
    with Run(cell, store, known, observer=observer, force="judge") as run:
        judge, nulls = judge_of(run, "kept", content), run.nulls
        truth = run.truth.splits.private[: judge.targets].unit().images
        if len(truth) < len(answer) or truth.shape[1:] != answer.images.shape[1:]:
            raise UsageError(
                f"{len(answer)} answers of shape {answer.images.shape[1:]} are kept, and what they "
                f"should be of is {len(truth)} of {tuple(truth.shape[1:])}"
            )
        kept = partial(_whole, truth=truth, nulls=nulls)
        images, folded = kept(answer.values), answer.values_abs
        absolute = None if folded is None else kept(folded)
        off = torch.from_numpy(answer.half_step)
        near = truth[: len(answer)]
        shifted = near + off.where(near < near.mean((1, 2, 3), keepdim=True), -off)
        count, shifting = len(answer), judge_of(run, "shifted", content)
        return Rescored(
            scores=_first(judge.score_images(images, absolute), count),
            rounding=_first(shifting.score_images(kept(shifted.numpy())), count),
            misplaced=_first(judge.score_elsewhere(images, absolute), count),
            easier=_first(nulls.easier, judge.targets),
            nulls={name: lists(each) for name, each in nulls.per_image.items()},
        )


def _whole(images: NDArray[np.float32], truth: Tensor, nulls: NullScores) -> Tensor:
    """Of all targets, the mean public image for the rest: metrics may compare with all of them."""
    whole = nulls.mean.expand_as(truth).clone()
    whole[: len(images)] = torch.from_numpy(images)
    return whole


def _first(columns: Mapping[str, Tensor], count: int) -> dict[str, list[float]]:
    """The scores of the first targets, [targets] or [draws, targets], flat."""
    return lists({name: each[..., :count].flatten() for name, each in columns.items()})


def _cell(record: RunRecord, kept: bool, known: Registry, content: str) -> Cell:
    """The cell as it ran; stand-ins take the places of an attack, and of defenses not needed.

    The attack's stand-in is of the version `content`, so that keys name what came back truly.
    """
    asked = {**record.request.model_dump(), "threads": record.threads, "device": "auto"}
    request = make_request(**asked)
    try:
        kind = ReleaseKind(record.release_kind)
        channels = frozenset(map(Channel, record.channels_used))
    except ValueError as error:
        raise UsageError(f"the record is of no cell that there could be: {error}") from None
    returned = record.attack.model_copy(update={"version": content})
    main = AttackPlan(_absent_attack(returned, channels), kind, channels)
    if kept:
        defenses = tuple(_absent_defense(used, record) for used in record.defense)
    else:
        defenses = tuple(_installed(record, known))
    return plan_as_ran(request, known, defenses, main)


def _installed(record: RunRecord, known: Registry) -> list[Resolved]:
    """The defenses as they are installed; UsageError where they are not those of the record."""
    found = []
    selections = parse_stack(record.request.defense)
    for selection, used in zip(selections, record.defense, strict=True):
        spec = known.spec("defenses", selection.name)
        if spec.version != used.version:
            raise UsageError(
                f"'{spec.name}' is installed in version {spec.version}; version {used.version} ran"
            )
        found.append(resolve(spec, selection, record.request.preset))
    return found


def _absent_attack(used: Used, channels: frozenset[Channel]) -> Resolved:
    return Resolved(AttackSpec(**_declared(used), needs=(channels,)), Config())


def _absent_defense(used: Used, record: RunRecord) -> Resolved:
    """Whether it hid signs is seen by what was scored; at which stage it worked does not matter.

    Its version holds its options, so that keys tell what two options released apart.
    """
    hid = any(name.endswith("_abs") for name in record.privacy)
    used = used.model_copy(update={"version": f"{used.version} {canonical_json(used.config)}"})
    return Resolved(DefenseSpec(**_declared(used), stage=Stage.ENCODING, hides_signs=hid), Config())


def _declared(used: Used) -> dict[str, Any]:
    unsaid = dict.fromkeys(("summary", "reference", "factory"), "")
    return {"name": used.name, "version": used.version, **unsaid}


@dataclass(frozen=True)
class KeptRounds:
    """The rounds of a release that somebody kept, in place of a `Source` that makes them."""

    release: Release

    @property
    def rounds(self) -> int:
        """How many."""
        return len(self.release.tensors["encodings"])

    @property
    def rows(self) -> int:
        """Of one round."""
        return self.release.tensors["encodings"].shape[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one encoding."""
        return tuple(self.release.tensors["encodings"].shape[2:])

    @property
    def resolved(self) -> Mapping[str, Mapping[str, float | int | str]]:
        """The parameters as they turned out, by the defense's name."""
        return self.release.resolved

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        """What left of a round: encodings with their soft labels, in pieces."""
        images, labels = (self.release.tensors[name][round_] for name in ("encodings", "labels"))
        size = piece_rows(self.shape)
        for start in range(0, self.rows, size):
            yield images[start : start + size], labels[start : start + size]


def on_release(
    record: RunRecord, path: Path, cell: Cell, store: Store, observer: Observer
) -> RunRecord:
    """The record with what its attack and learners make of encodings that somebody kept.

    The defense encodes nothing of it. UsageError or CellFailed where they cannot.
    """
    named = replace(cell, owner=f"kept release {sha256_of_file(path, 'release')}")
    kept, only = kept_release(record, path), record.request.only
    with Run(named, store, registry(), observer=observer) as run:
        rounds: Any = KeptRounds(kept)
        run.give(Rounds.of(named), rounds)
        run.give(ReleaseStage.of(named), kept)
        learned = learning(run) if only != "privacy" else Learning()
        leaked = leakage(run) if only != "utility" and named.main else Leakage()
    made = {"privacy": dict(leaked.privacy), "findings": dict(leaked.findings)}
    return record.model_copy(update={**made, "utility": learned.utility})


def kept_release(record: RunRecord, path: Path) -> Release:
    """What left the owner, and what the owner kept of it, from a file."""
    facts = {
        "kind": record.release_kind,
        "resolved": {used.name: dict(used.resolved) for used in record.defense},
        "facts": {},
    }
    return ReleaseStage.read(Artifact(read_tensors(path, "release"), facts))
