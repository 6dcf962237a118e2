"""The truth that claims are compared with, from the owner's side."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from harness.api import CellFailed, Reconstruction, Release, ReleaseKind, Samples, Scale
from harness.api.knowledge import OF_BATCHES
from harness.rng import KeyedStream
from harness.running.attack import MASKS, true_places
from harness.running.samples import CHUNK, JudgedSplits
from harness.scoring.findings import (
    BatchFacts,
    Facts,
    Finding,
    batch_findings,
    findings,
    mean_finding,
)
from harness.scoring.identification import Identification, identification
from harness.scoring.judgement import Judgement

if TYPE_CHECKING:
    from harness.scoring.clusters import ClusterFacts

OF_ROWS = frozenset({"weights", "signs", "pair_scores"})
"""Claims that are about rows, one for each."""
OF_CLASSES = frozenset({"class_means"})
"""Claims that need no encodings to be about."""
NO_ROWS = torch.empty(0, dtype=torch.int64)
NONE = torch.empty(1, 0, 1)
"""Weights and sources where nothing was mixed."""


class Evidence:
    """What the owner knows of a cell's release and private images.

    `secret` is the owner's stream, `stream` the judge's.
    """

    def __init__(
        self, truth: JudgedSplits, release: Release, secret: KeyedStream, stream: KeyedStream
    ) -> None:
        self.splits = truth.splits
        self.targets = truth.targets
        self.release = release
        self.secret = secret
        self.stream = stream

    @cached_property
    def facts(self) -> Facts:
        """The truth about weights, signs, sources and classes."""
        splits, secrets = self.splits, self.release.secrets
        classes = len(splits.classes)
        public = splits.public.standardised(splits.scale)
        means, present = _prototypes(splits.private, splits.scale, classes)
        public_means, known = _prototypes(splits.public, splits.scale, classes)
        guess = public.images.flatten(1).mean(0)
        public_means[~known] = guess
        return Facts(
            weights=secrets.get("weights", NONE)[..., 0].flatten(),
            sources=secrets.get("sources", NONE.long()).flatten(0, 1),
            candidates=true_places(splits, self.secret),
            signs=self._signs if MASKS in secrets else None,
            prototypes=means,
            public_prototypes=public_means,
            present=present,
            guess=guess,
            stream=self.stream.stream(use="findings"),
        )

    def _signs(self, rows: Tensor) -> Tensor:
        """±1 [len(rows), *shape] of the mixtures, as they were before their masks."""
        release = self.release
        encodings = release.tensors["encodings"].flatten(0, 1)[rows]
        masks = release.secrets[MASKS].flatten(0, 1)[rows].numpy()
        values = encodings[0].numel()
        flipped = torch.from_numpy(np.unpackbits(masks, axis=1, count=values)).bool()
        signs = torch.where(encodings < 0, -1, 1).flatten(1)
        return torch.where(flipped, -signs, signs).view(encodings.shape)

    def claimed(self, found: Reconstruction) -> dict[str, Finding]:
        """Everything an attack claims of encodings, or of batches of gradients or updates."""
        if not found.claims or self.release.kind is ReleaseKind.FEATURES:
            return {}
        if self.release.kind in OF_BATCHES:
            return batch_findings(found.claims, self._batches)
        if self.release.kind is ReleaseKind.STATISTICS:
            told = {name: found.claims[name] for name in OF_CLASSES & found.claims.keys()}
            return findings(told, NO_ROWS, self.facts)
        rows = len(self.facts.weights)
        from harness.scoring.clusters import NAMES, cluster_findings

        merged: dict[str, Finding] = cluster_findings(found.claims, self._clusters)
        for name, claim in found.claims.items():
            if name in NAMES:
                continue
            of = rows_of(name, claim, found.rows, rows) if name in OF_ROWS else NO_ROWS
            merged |= findings({name: claim}, of, self.facts)
        return merged

    @property
    def _clusters(self) -> ClusterFacts:
        """The truth about who is in which encoding."""
        from harness.scoring.clusters import ClusterFacts

        secrets = self.release.secrets
        return ClusterFacts(
            sources=secrets.get("sources", NONE.long()).flatten(0, 1),
            weights=secrets.get("weights", NONE).flatten(0, 1),
            labels=self.release.tensors["labels"].flatten(0, 1),
            classes=self.splits.private.labels,
            n=len(self.splits.private),
            publics=len(self.splits.public),
            stream=self.stream.stream(use="findings"),
        )

    @property
    def _batches(self) -> BatchFacts:
        """The truth about what gradients or updates are of."""
        secrets, splits = self.release.secrets, self.splits
        labels, inputs = secrets["batch_labels"], secrets["batch_inputs"]
        alike = tuple(inputs.shape[2:]) == splits.shape
        return BatchFacts(
            inputs=inputs,
            guess=self.facts.guess.view(splits.shape) if alike else None,
            labels=labels.argmax(2),
            classes=labels.shape[2],
            stream=self.stream.stream(use="findings"),
        )

    def identified(self, found: Reconstruction, attack: str) -> Identification | None:
        """How well the attack's candidate scores pick the true images, if it gave any."""
        scores = found.claims.get("candidate_scores")
        if scores is None:
            return None
        stream = self.stream.stream(use="identification")
        if found.rows is None:
            targets = self.targets
            truth = self.facts.candidates[:targets]
            return identification(scores[:targets], truth, stream, attack)
        sources = self.facts.sources[_checked_rows(found.rows, len(self.facts.sources))]
        private = (sources < len(self.facts.candidates)).all(0)
        truth = self.facts.candidates[sources[:, private]]
        return identification(scores, truth, stream, attack, of=sources[:, 0])

    def errors(self, judgement: Judgement) -> Tensor:
        """[targets] squared error a standardised value of what was judged."""
        images, splits = judgement.images.cpu(), self.splits
        truth = splits.private[: len(images)].standardised(splits.scale).images
        return (splits.scale.standardise(images) - truth).flatten(1).square().mean(1)

    def shown(self, judgement: Judgement) -> dict[str, Finding]:
        """What reconstructed images say besides metrics: pooled error, and signs under masks."""
        if not bool(judgement.found.any()):
            return {}
        splits = self.splits
        mean = self.facts.guess.view(splits.shape)
        error = self.errors(judgement)
        guess = splits.scale.clamp(mean.expand(len(error), *splits.shape))
        truth = splits.private[: len(error)].standardised(splits.scale).images
        chance = float((guess - truth).square().mean())
        found = mean_finding("squared_error", error, chance, self.stream, "error")
        if self.facts.signs is None:
            return found
        told = splits.scale.standardise(judgement.images.cpu()).sign() == truth.sign()
        known = float((mean.sign() == truth.sign()).float().mean())
        share = told.flatten(1).float().mean(1)
        return found | mean_finding("image_sign_accuracy", share, known, self.stream, "signs")


def _checked_rows(rows: Tensor, count: int) -> Tensor:
    """`rows`, if they count encodings of this release."""
    rows = rows.cpu().long()
    if rows.numel() and not (int(rows.min()) >= 0 and int(rows.max()) < count):
        raise CellFailed(f"the attack names rows that are not between 0 and {count - 1}")
    return rows


def rows_of(name: str, claim: Tensor, named: Tensor | None, count: int) -> Tensor:
    """[m] the rows, of `count`, that a claim [m, ...] is about: those `named`, else the first.

    CellFailed unless they are as many, and there; scores of pairs take much room, and may be of
    the first of those named.
    """
    m = len(claim) if claim.ndim else 1
    if named is None:
        if m > count:
            raise CellFailed(f"the attack claims {name} of {m} rows, and there are {count}")
        return torch.arange(m)
    if name == "pair_scores":
        named = named[:m]
    if len(named) != m:
        raise CellFailed(f"the attack names {len(named)} rows and claims {name} of {m}")
    return _checked_rows(named, count)


def _prototypes(samples: Samples, scale: Scale, classes: int) -> tuple[Tensor, Tensor]:
    """[classes, d] mean of each class, standardised, and which classes there are.

    Piece by piece: all private images standardised would take twice their room or more.
    """
    counts = samples.labels.bincount(minlength=classes)
    sums = torch.zeros(classes, prod(samples.images.shape[1:]))
    for start in range(0, len(samples), CHUNK):
        part = samples[start : start + CHUNK].standardised(scale)
        sums.index_add_(0, part.labels, part.images.flatten(1))
    return sums / counts.clamp(min=1).view(-1, 1), counts > 0
