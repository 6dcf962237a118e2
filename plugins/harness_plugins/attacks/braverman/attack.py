"""Covariances of squared values, as one matrix product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch.nn.functional import normalize

from harness.api import Attack, Budget, Progress, Reconstruction, View
from harness_plugins.attacks.braverman import BravermanConfig
from harness_plugins.candidates import at_shape, claim_rows, released_rows

if TYPE_CHECKING:
    from torch import Tensor


class Braverman(Attack[BravermanConfig]):
    """Scores all candidates for the rows of all rounds."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """`candidate_scores` of rows.

        <x~², s²> - ‖x~‖²‖s‖²/d is <x~², s² - mean(s²)>: no difference of large numbers is left.
        """
        squares = view.candidates.flatten(1).square()
        squares = squares - squares.mean(1, keepdim=True)
        if self.config.normalise:
            squares = normalize(squares)
        rows = at_shape(released_rows(view), view.shape).flatten(1).square()
        return claim_rows(view, rows @ squares.T)
