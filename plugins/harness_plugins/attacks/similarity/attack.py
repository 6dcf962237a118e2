"""Search among candidates by similarity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, NotApplicable, Progress, Reconstruction, View
from harness_plugins.attacks.similarity import SimilarityConfig, training
from harness_plugins.attacks.similarity.network import Towers
from harness_plugins.candidates import at_shape, claim_rows, released_rows
from harness_plugins.mixtures.law import learn_law
from harness_plugins.mixtures.subspace import Subspace
from harness_plugins.structural_similarity import WINDOW, ssim_of_pairs

if TYPE_CHECKING:
    from torch import Tensor


class Similarity(Attack[SimilarityConfig]):
    """Scores all candidates for the first rows of the release."""

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """Trained networks; nothing for SSIM."""
        return training.learn(view, self.config, progress) if self.config.by == "learned" else {}

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """`candidate_scores` of rows."""
        rows = at_shape(released_rows(view)[: self.config.rows], view.shape)
        if self.config.by == "ssim":
            return claim_rows(view, self._structural(view, rows, progress))
        network = Towers(view.shape)
        network.load_state_dict({k: v for k, v in prepared.items() if k != "exam"})
        scores = network.to(view.device).scores(rows, view.candidates)
        return claim_rows(view, scores, exam_auc=float(prepared["exam"]))

    def _structural(self, view: View, rows: Tensor, progress: Progress) -> Tensor:
        """NotApplicable where samples are no images, or smaller than a window."""
        _check_that_windows_fit(view)
        rows = rows / rows.square().mean().sqrt().clamp(min=torch.finfo(rows.dtype).tiny)
        candidates = view.candidates
        if self._unsigned(view):
            rows, candidates = rows.abs(), candidates.abs()
        images, known = (view.scale.within(view.scale.restore(x)) for x in (rows, candidates))
        found: list[Tensor] = []
        for block in ssim_of_pairs(images, known, self.config.stride):
            found.append(block)
            progress(sum(map(len, found)), len(rows), "rows compared")
        return torch.cat(found)

    def _unsigned(self, view: View) -> bool:
        if self.config.values != "auto":
            return self.config.values == "absolute"
        return learn_law(view, Subspace(view.shape)).hidden


def _check_that_windows_fit(view: View) -> None:
    if not view.scale.of_images:
        raise NotApplicable("SSIM compares images, and these are none; use by=learned.")
    if min(view.shape[-2:]) < WINDOW:
        size = "×".join(map(str, view.shape[-2:]))
        raise NotApplicable(
            f"images of {size} px are smaller than SSIM's window of {WINDOW} px; use by=learned."
        )
