"""Learning the map on public images, and applying it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple
from typing import TYPE_CHECKING

import torch

from harness.api import (
    Attack,
    Budget,
    CellFailed,
    Channel,
    Progress,
    Reconstruction,
    Samples,
    View,
)
from harness_plugins.attacks.regression import RegressionConfig
from harness_plugins.attacks.regression.inputs import Inputs, Lens, exercised, released
from harness_plugins.attacks.regression.ridge import Map, Sums, best_of
from harness_plugins.mixtures.law import NoiseLaw, exercise, law_of
from harness_plugins.mixtures.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Stream

_LARGEST = 4096
"""Values up to which the map takes them all; the eigenvectors of more would take longer than all
the rest."""
_COMPONENTS, _LOOKED_AT = 1024, 8192
_HELD_OUT = 2000
_FEWEST = 2000
_PART = 2048
"""Images that are encoded at a time."""


class Regression(Attack[RegressionConfig]):
    """Linear in encodings; in their absolute values where signs are hidden."""

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """The map, its error on held-out images, and how rows are looked at."""
        if len(view.public) < 4:
            raise CellFailed("fewer than four public images: no map can be learned from them.")
        samples, encoded = exercise(view)
        space = Subspace.between(view.shape, encoded.images, "auto")
        lens = _lens(view, space.project(encoded.images.to(view.device)), encoded, samples, space)
        rounds = int(view.protocol.get("rounds", 1))
        held = min(_HELD_OUT, max(2, len(view.public) // 10))
        most = max(_FEWEST, self.config.encodings // rounds)
        pool, apart = view.public[held:][:most], view.public[:held]
        turns = max(1, self.config.encodings // (rounds * len(pool)))
        sums = Sums()
        for turn in range(turns):
            rng = view.rng.stream(use="learn", turn=turn)
            for inputs, images in _lessons(view, space, lens, pool, rounds, rng):
                sums.add(inputs, images)
            progress(turn + 1, turns + 1, f"{rounds * len(pool)} encodings")
        asked = list(_lessons(view, space, lens, apart, rounds, view.rng.stream(use="held out")))
        found, error = best_of(sums, lambda tried: _error(view, tried, asked))
        progress(turns + 1, turns + 1, f"held-out error {error:.3f}")
        return {
            "seen": found.seen,
            "told": found.told,
            "numbers": torch.tensor([found.penalty, error, lens.typical], dtype=torch.float32),
            "law": torch.tensor(astuple(lens.law), dtype=torch.float32),
            "basis": lens.basis,
        }

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """All private images by name where sources are granted, else the rows of round 0."""
        penalty, error, typical = prepared["numbers"].tolist()
        lens = Lens(NoiseLaw(*prepared["law"].tolist()), typical, prepared["basis"])
        space = Subspace.between(view.shape, view.encodings[0], "auto")
        known = view.has(Channel.SOURCES)
        n = view.n_private if known else view.encodings.shape[1]
        inputs = lens.inputs(released(view, space), n)
        found = Map(prepared["seen"], prepared["told"], penalty).of(inputs)
        names = torch.arange(n)
        return Reconstruction(
            view.scale.clamp(found.view(-1, *view.shape)),
            targets=names if known else None,
            rows=None if known else names,
            diagnostics={"predicted_error": error, "ridge_penalty": penalty},
        )


def _lens(view: View, rows: Tensor, encoded: Encoded, samples: Samples, space: Subspace) -> Lens:
    law = law_of(rows, space.embed(samples.images), encoded)
    images = space.embed(view.public.images[:_LOOKED_AT])
    typical = float((images - images.mean(0)).square().mean())
    if images.shape[1] <= _LARGEST:
        return Lens(law, typical, images.new_empty(0, 0))
    seen = images.abs() if law.hidden else images
    basis = torch.svd_lowrank(seen - seen.mean(0), q=min(_COMPONENTS, len(seen)))[2]
    return Lens(law, typical, basis.contiguous())


def _lessons(
    view: View, space: Subspace, lens: Lens, pool: Samples, rounds: int, rng: Stream
) -> Iterator[tuple[Inputs, Tensor]]:
    """Inputs and images [n, d], some at a time, encoded in as many rounds as the release."""
    order = rng.permutation(len(pool)).to(pool.labels.device)
    for number, part in enumerate(order.chunk(-(-len(pool) // _PART))):
        own = rng.stream(part=number)
        samples = pool[part]
        turns = (
            exercised(view, space, view.encoder.encode(samples, view.public, own.stream(round=t)))
            for t in range(rounds)
        )
        inputs = lens.inputs(turns, len(samples))
        yield inputs, samples.images.flatten(1)


def _error(view: View, tried: Map, asked: list[tuple[Inputs, Tensor]]) -> float:
    """Squared error a value of held-out images, pooled."""
    total = count = 0.0
    for inputs, images in asked:
        found = view.scale.clamp(tried.of(inputs).view(-1, *view.shape)).flatten(1)
        total += float((found - images).square().sum())
        count += images.numel()
    return total / count


if TYPE_CHECKING:
    from harness.api import Encoded
