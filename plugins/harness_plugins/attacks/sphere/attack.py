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

    from harness_plugins.attacks.sphere.consistency import Block

_PAIR_SCORES = 2**26
_TOGETHER = 2**18
"""Pairs at a time: few enough to stay in a cache."""
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
        scores = row_beliefs(tests.blocks, pairs.products, images, self.config.sweeps).amax(1)
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
        for rows, firsts in self._parts(slice(0, kept)):
            self.first[rows, firsts] = pairs.scores(rows, firsts, shell)

    def blocks(self) -> Iterator[Block]:
        """The scores of all rows, block by block."""
        everything, kept = len(self.pairs.products), len(self.first)
        for rows, firsts in self._parts(slice(0, kept)):
            yield rows, firsts, self.first[rows, firsts]
        for rows, firsts in self._parts(slice(kept, everything)):
            yield rows, firsts, self.pairs.scores(rows, firsts, self.shell)
            self.progress(rows.stop, everything, "rows against all pairs")

    def _parts(self, rows: slice) -> Iterator[tuple[slice, slice]]:
        """Rows and first candidates: whole rows, or a part of one where its pairs are many."""
        m = len(self.pairs.gram)
        together, few = max(1, _TOGETHER // m**2), max(1, _TOGETHER // m)
        for start in range(rows.start, rows.stop, together):
            block = slice(start, min(rows.stop, start + together))
            for first in range(0, m, few):
                yield block, slice(first, min(m, first + few))
