"""Stage outputs as artifacts, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from harness.api import Reconstruction, Release, ReleaseKind, Samples, Scale, Splits
from harness.running.judge import NO_HELP, Judgement, NullScores
from harness.sandbox.jobs import pack, unpack
from harness.store import Artifact

SPLITS = ("private", "public", "test")
SCORE = "score."
"""What the scores of a metric, image by image, are stored under."""
GUESS = "guess."
"""Likewise the best of the nulls, image by image."""


def pack_splits(splits: Splits) -> Artifact:
    """Splits as stored."""
    tensors: dict[str, Tensor] = {}
    for name in SPLITS:
        samples: Samples = getattr(splits, name)
        tensors |= {f"{name}.images": samples.images, f"{name}.labels": samples.labels}
    facts = {
        "mean": splits.scale.mean,
        "std": splits.scale.std,
        "range": (splits.scale.low, splits.scale.high),
        "classes": splits.classes,
    }
    return Artifact(tensors, facts)


def unpack_splits(artifact: Artifact) -> Splits:
    """Splits as used."""
    tensors, facts = artifact.tensors, artifact.facts
    parts = {n: Samples(tensors[f"{n}.images"], tensors[f"{n}.labels"]) for n in SPLITS}
    scale = Scale(tuple(facts["mean"]), tuple(facts["std"]), *facts["range"])
    return Splits(scale=scale, classes=tuple(facts["classes"]), **parts)


def pack_release(release: Release) -> Artifact:
    """A release as stored, with what the owner keeps of it."""
    out = {f"out.{name}": tensor for name, tensor in release.tensors.items()}
    kept = {f"kept.{name}": tensor for name, tensor in release.secrets.items()}
    facts = {
        "kind": release.kind,
        "resolved": {name: dict(values) for name, values in release.resolved.items()},
        "facts": dict(release.facts),
    }
    return Artifact({**out, **kept}, facts)


def unpack_release(artifact: Artifact) -> Release:
    """A release as used."""
    facts = artifact.facts
    return Release(
        kind=ReleaseKind(facts["kind"]),
        tensors=_below("out.", artifact.tensors),
        secrets=_below("kept.", artifact.tensors),
        resolved=facts["resolved"],
        facts=facts["facts"],
    )


def pack_nulls(nulls: NullScores) -> Artifact:
    """The scores of nulls that were told nothing, as stored."""
    scores = {
        f"{SCORE}{metric}/{null}": values
        for metric, named in nulls.per_image.items()
        for null, values in named.items()
    }
    order = {metric: list(named) for metric, named in nulls.per_image.items()}
    facts = {"notes": list(nulls.notes), "order": order}
    return Artifact({**scores, "mean": nulls.mean}, facts)


def unpack_nulls(artifact: Artifact) -> NullScores:
    """The scores of nulls as used: the first of equals is the best, so their order counts."""
    tensors, facts = artifact.tensors, artifact.facts
    per_image = {
        metric: {null: tensors[f"{SCORE}{metric}/{null}"] for null in named}
        for metric, named in facts["order"].items()
    }
    return NullScores(NO_HELP, per_image, tensors["mean"], tuple(facts["notes"]))


def scores_of(judged: Artifact) -> dict[str, Tensor]:
    """A judgement's scores [targets] by metric."""
    return _below(SCORE, judged.tensors)


def guesses_of(judged: Artifact) -> dict[str, Tensor]:
    """The best of the nulls [targets] by metric."""
    return _below(GUESS, judged.tensors)


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def pack_attacked(found: Reconstruction, peak: Mapping[str, float], seconds: float) -> Artifact:
    """A reconstruction as stored."""
    facts = {
        "diagnostics": dict(found.diagnostics),
        "peak_memory": dict(peak),
        "own_seconds": seconds,
    }
    return Artifact(pack(found), facts)


def unpack_attacked(artifact: Artifact) -> Reconstruction:
    """A reconstruction as used."""
    return unpack(dict(artifact.tensors), artifact.facts["diagnostics"])


def pack_judgement(judgement: Judgement, errors: Tensor, facts: Mapping[str, Any]) -> Artifact:
    """A judgement as stored: its images, errors and scores by image, and its summary as JSON."""
    scores = {f"{SCORE}{name}": values for name, values in judgement.per_image.items()}
    guesses = {f"{GUESS}{name}": values for name, values in judgement.guesses.items()}
    images = {"images": judgement.images, "found": judgement.found, "errors": errors}
    if judgement.images_abs is not None:
        images["images_abs"] = judgement.images_abs
    return Artifact({**images, **scores, **guesses}, facts)
