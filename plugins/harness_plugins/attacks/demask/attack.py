"""Sign recovery, and the recovered mixture read as an image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Channel, Progress, Reconstruction, View
from harness_plugins.attacks.demask import DemaskConfig
from harness_plugins.resizing import fit_images
from harness_plugins.signs.demasker import Demasker
from harness_plugins.signs.exercise import encode
from harness_plugins.signs.reading import Reading

if TYPE_CHECKING:
    from torch import Tensor

_EXAM = 1000


class Demask(Attack[DemaskConfig]):
    """Undoes each encoding's mask on its own."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """Signs and images of the rows of round 0; other rounds have masks of their own."""
        demasker = Demasker.of(view)
        encodings, weights = _first_round(view)
        signs = _sure(demasker.odds(encodings, weights))
        progress(1, 2, "signs")
        reading, exam = self._taught(view, demasker)
        mixtures, _ = demasker.apply(encodings, weights)
        return Reconstruction(
            images=view.scale.clamp(reading.of(mixtures)),
            rows=torch.arange(len(mixtures)),
            claims={"signs": signs},
            diagnostics={"share": reading.share, "public_sign_accuracy": exam},
        )

    def _taught(self, view: View, demasker: Demasker) -> tuple[Reading, float]:
        """How to read a mixture, and the share of right signs, on public images."""
        work = encode(view, view.public[:_EXAM], view.rng.stream(use="exam"))
        weights = work.weights if view.has(Channel.WEIGHTS) else None
        mixtures, _ = demasker.apply(work.encodings, weights)
        right = (_sure(demasker.odds(work.encodings, weights)) * work.mixtures > 0).float().mean()
        return Reading.learn(mixtures, work.primary), float(right)


def _first_round(view: View) -> tuple[Tensor, Tensor | None]:
    """Encodings at the targets' resolution, and their weights where granted."""
    weights = view.weights[0] if view.has(Channel.WEIGHTS) else None
    return fit_images(view.encodings[0], view.shape), weights


def _sure(odds: Tensor) -> Tensor:
    """±1; where nothing is known, plus."""
    return torch.where(odds < 0, -1, 1).to(torch.int8)
