"""The two penalties of the MixCon paper, and the cut they act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.api import Recipe, TrainingDefense
from harness_plugins.defenses.mixcon import MixconConfig, UniconConfig
from harness_plugins.defenses.mixcon.representations import classes_of, rows_of

if TYPE_CHECKING:
    from torch import Tensor


class Mixcon(TrainingDefense[MixconConfig]):
    """Draws the i-th images of different classes together, up to a distance (equation 1)."""

    def adapt(self, recipe: Recipe) -> Recipe:
        """The recipe, cut where the config says."""
        return _cut(recipe, self.config.layer)

    def penalty(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """λ·L_mixcon of one batch, a scalar."""
        config = self.config
        terms = _terms(rows_of(hidden, unit=config.unit), labels, config.beta, config.epsilon)
        # The sum is over c1 != c2, which meets each pair twice.
        weight = 2.0 if config.reduction == "sum" else 1 / max(1, len(terms))
        return config.strength * weight * terms.sum()


class Unicon(TrainingDefense[UniconConfig]):
    """Draws the images of each class together (appendix D.1)."""

    def adapt(self, recipe: Recipe) -> Recipe:
        """The recipe, cut where the config says."""
        return _cut(recipe, self.config.layer)

    def penalty(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """λ·L_unicon of one batch, a scalar."""
        rows = rows_of(hidden, unit=self.config.unit)
        return self.config.strength * _unicon(rows, labels)


def _cut(recipe: Recipe, layer: str | None) -> Recipe:
    return recipe if layer is None else recipe.model_copy(update={"cut": layer})


def _terms(rows: Tensor, labels: Tensor, beta: float, epsilon: float) -> Tensor:
    """[pairs]: dist + β/dist of equation 1 over rows [b, d], each pair of classes once per i.

    None where only one class is present.
    """
    numbers, sizes = classes_of(labels)
    peers = rows[_peers(numbers, sizes)]
    # Not by matrix products: they lose the small distances that β/dist lives on.
    exact = "donot_use_mm_for_euclid_dist"
    distances = torch.cdist(peers, peers, compute_mode=exact).square().clamp(epsilon, 1 / epsilon)
    first, second = torch.triu_indices(len(sizes), len(sizes), offset=1, device=rows.device)
    return (distances + beta / distances)[:, first, second].flatten()


def _peers(numbers: Tensor, sizes: Tensor) -> Tensor:
    """[p, C] rows: the i-th row of each class, in the batch's order; p is the smallest size."""
    order = numbers.argsort(stable=True)
    starts = sizes.cumsum(0) - sizes
    first = torch.arange(int(sizes.min()), device=sizes.device)
    return order[starts + first.view(-1, 1)]


def _unicon(rows: Tensor, labels: Tensor) -> Tensor:
    """Appendix D.1 over rows [b, d], in O(b·d).

    Σ_ij ‖h_i − h_j‖² = 2|c| Σ_i ‖h_i − mean‖²: each class adds twice its unbiased variance.
    """
    numbers, sizes = classes_of(labels)
    sums = rows.new_zeros(len(sizes), rows.shape[1]).index_add(0, numbers, rows)
    spread = (rows - (sums / sizes.view(-1, 1))[numbers]).square().sum(1)
    return (2 * spread / (sizes[numbers] - 1).clamp(min=1)).sum() / len(sizes)
