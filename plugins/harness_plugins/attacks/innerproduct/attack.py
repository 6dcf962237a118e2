"""Inner products of encodings with candidates, as one matrix product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch.nn.functional import normalize

from harness.api import Attack, Budget, Progress, Reconstruction, View
from harness_plugins.attacks.innerproduct import InnerProductConfig
from harness_plugins.candidates import at_shape, claim_rows, released_rows
from harness_plugins.mixtures.prior import GaussianPrior

if TYPE_CHECKING:
    from torch import Tensor


class InnerProduct(Attack[InnerProductConfig]):
    """Scores all candidates for the rows of all rounds."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """`candidate_scores` of rows."""
        rows, candidates = (
            at_shape(released_rows(view), view.shape).flatten(1),
            view.candidates.flatten(1),
        )
        if self.config.whiten:
            prior = GaussianPrior.of(view)
            directions = self._whitened(prior, candidates)
            # <x~ - m, v> without a centred copy of all rows
            return claim_rows(view, rows @ directions.T - directions @ prior.mean)
        return claim_rows(view, rows @ self._raw(candidates).T)

    def _whitened(self, prior: GaussianPrior, candidates: Tensor) -> Tensor:
        """S^-1 (s - m): all of S^-1 on the side of the candidates, of which there are fewer."""
        white = prior.whiten(candidates - prior.mean)
        if self.config.normalise:
            white = normalize(white)
        return prior.whiten(white)

    def _raw(self, candidates: Tensor) -> Tensor:
        if not self.config.normalise:
            return candidates
        return normalize(candidates - candidates.mean(1, keepdim=True))
