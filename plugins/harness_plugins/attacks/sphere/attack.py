"""The sphere test over the rows of a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Channel, NotApplicable, Progress, Reconstruction, View
from harness_plugins.attacks.sphere import SphereConfig
from harness_plugins.attacks.sphere.consistency import row_beliefs
from harness_plugins.attacks.sphere.shell import Pairs, Shell
from harness_plugins.candidates import at_shape, claim_rows, released_rows

if TYPE_CHECKING:
    from torch import Tensor

_PAIR_SCORES = 2**26
_TOGETHER = 2**18
_EXERCISED = 500


class Sphere(Attack[SphereConfig]):
    """Scores pairs, and single candidates by the best pair they are in."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """`candidate_scores` [r, m] and, of the first p of these rows, `pair_scores` [p, m, m].

        NotApplicable for mixtures that are not of two images.
        """
        if view.weights.shape[2] != 2:
            raise NotApplicable(
                f"encodings mix {view.weights.shape[2]} images; this attack tests pairs (k=2)."
            )
        shell, pairs = measured(view), self._pairs(view)
        tests = Tests(pairs, shell, progress)
        images = self._images(view, len(pairs.products))
        scores = row_beliefs(tests.blocks, images, self.config.sweeps).amax(1)
        told = {
            "radius": shell.radius,
            "deviation": shell.deviation,
            "pairs_of": float(len(tests.first)),
        }
        found = claim_rows(view, scores, **told)
        if not len(tests.first):
            return found
        return replace(found, claims={**found.claims, "pair_scores": tests.first})

    def _pairs(self, view: View) -> Pairs:
        rows = released_rows(view)[: self.config.rows]
        candidates = at_shape(view.candidates, rows.shape[1:])
        weights = view.weights.flatten(0, 1)[: len(rows)]
        return Pairs.of(rows.flatten(1), candidates.flatten(1), weights)

    def _images(self, view: View, rows: int) -> Tensor | None:
        return view.sources.flatten(0, 1)[:rows] if view.has(Channel.SOURCES) else None


def measured(view: View) -> Shell:
    """The noise that the encoder puts on public images."""
    samples = view.public[:_EXERCISED]
    encoded = view.encoder.encode(samples, view.public, view.rng.stream(use="exercise"))
    weights, sources = (
        part.to(view.device) for part in (encoded.secrets.weights, encoded.secrets.sources)
    )
    rows = encoded.images.to(view.device)
    images = at_shape(samples.images, rows.shape[1:]).flatten(1)
    first, second = sources.clamp(max=len(images) - 1).T
    return Shell.measured(rows.flatten(1), images[first], images[second], weights)


class Tests:
    """All rows against all pairs; the scores of the first rows are kept."""

    def __init__(self, pairs: Pairs, shell: Shell, progress: Progress) -> None:
        self.pairs, self.shell, self.progress = pairs, shell, progress
        size = pairs.gram.shape
        kept = min(len(pairs.products), _PAIR_SCORES // size.numel())
        self.first = pairs.gram.new_empty(kept, *size, dtype=torch.float32)
        """[p, m, m]: of as many rows as the claim may hold; of none where not even one fits."""
        for block in self._parts(slice(0, kept)):
            self.first[block] = pairs.scores(block, shell)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Rows, and their scores [b, m, m]."""
        everything, kept = len(self.pairs.products), len(self.first)
        for block in self._parts(slice(0, kept)):
            yield block, self.first[block]
        for block in self._parts(slice(kept, everything)):
            yield block, self.pairs.scores(block, self.shell)
            self.progress(block.stop, everything, "rows against all pairs")

    def _parts(self, rows: slice) -> Iterator[slice]:
        """Rows whose pairs fit the memory together."""
        step = max(1, _TOGETHER // self.pairs.gram.numel())
        starts = range(rows.start, rows.stop, step)
        return (slice(start, min(rows.stop, start + step)) for start in starts)
