"""Gradient pruning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.api import GradientDefense, Recipe, Stream
from harness_plugins.defenses.gradprune import GradpruneConfig

if TYPE_CHECKING:
    from torch import Tensor

_MOSTLY_PRUNED, _USUAL_RATE, _LOWER_RATE = 0.99, 0.1, 0.02


class Gradprune(GradientDefense[GradpruneConfig]):
    """Keeps the largest entries of each tensor, zeroes the others."""

    def adapt(self, recipe: Recipe) -> Recipe:
        """Rate .02 where p ≥ .99 and the recipe is sgd at .1, exactly as in the paper.

        Any other optimiser or rate is left as it is: it was chosen for another training.
        """
        usual = recipe.optimizer == "sgd" and recipe.lr == _USUAL_RATE
        if self.config.p < _MOSTLY_PRUNED or not usual:
            return recipe
        return recipe.model_copy(update={"lr": _LOWER_RATE})

    def protect(self, gradients: Mapping[str, Tensor], rng: Stream) -> Mapping[str, Tensor]:
        """Each tensor on its own. Nothing is drawn."""
        return {name: prune(gradient, self.config.p) for name, gradient in gradients.items()}


def survivors(entries: int, p: float) -> int:
    """How many of a tensor's entries stay: the nearest whole number to (1−p)·entries, or one."""
    return min(entries, max(1, round((1 - p) * entries)))


def prune(gradient: Tensor, p: float) -> Tensor:
    """A gradient with exactly `survivors` entries left; of equal magnitudes the first stay.

    In the layout that it came in: fused optimisers walk it side by side with its weights.
    """
    keep = survivors(gradient.numel(), p)
    if keep == gradient.numel():
        return gradient
    sizes = gradient.abs().flatten()
    least = sizes.topk(keep, sorted=False).values.amin()
    above, at_least = sizes > least, sizes == least
    stays = above | (at_least & (at_least.cumsum(0) <= keep - above.sum()))
    return gradient.clone().masked_fill_(~stays.view(gradient.shape), 0)
