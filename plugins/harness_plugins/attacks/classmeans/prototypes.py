"""The attack: sums over the release, the prior, and an image for each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Channel, Progress, Reconstruction, View
from harness_plugins.attacks.classmeans import ClassMeansConfig
from harness_plugins.attacks.classmeans.exercise import Law, measure_law
from harness_plugins.attacks.classmeans.membership import own_class
from harness_plugins.attacks.classmeans.posterior import Belief, least_squares, posterior
from harness_plugins.attacks.classmeans.sums import Sums
from harness_plugins.mixtures.prior import GaussianPrior
from harness_plugins.mixtures.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor

_PROBES = 64
_LOUDEST = 120.0


class ClassMeans(Attack[ClassMeansConfig]):
    """Soft labels say how much of each class a row holds: class means are a regression away."""

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """How much of a mixture the owner's encodings hold, where the law is known."""
        if view.has(Channel.ENCODER) and view.has(Channel.PUBLIC) and len(view.public) > 1:
            return measure_law(view).stored()
        return {}

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """A mean for each class, and for each row of the first round that of its own class."""
        law = Law.of(prepared)
        means, diagnostics = self._means(view, law, _sums(view, law, progress))
        images = means.view(-1, *view.shape)
        shares = own_class(view.labels[0], view.weights[0] if view.has(Channel.WEIGHTS) else None)
        return Reconstruction(
            (shares @ means).view(-1, *view.shape),
            rows=torch.arange(len(shares)),
            claims={"class_means": images},
            diagnostics={"mixture_gain": law.gain, **diagnostics},
        )

    def _means(self, view: View, law: Law, sums: Sums) -> tuple[Tensor, dict[str, float]]:
        """[classes, d], and numbers for the record."""
        space = Subspace.between(view.shape, sums.pull, "auto")
        pull = law.gain * space.recover(space.project(sums.pull)).flatten(1)
        gram = law.gain**2 * sums.gram
        if self.config.prior == "none" or not view.has(Channel.PUBLIC):
            return least_squares(gram, pull), {}
        counts = sums.masses / sums.masses.sum().clamp(min=1) * view.encodings.shape[1]
        spread = self.config.prior == "spread"
        belief = Belief.of(GaussianPrior.of(view), view.public, counts, spread=spread)
        pull = pull - law.gain * sums.share.view(-1, 1) * belief.origin
        noise = _noise(view, law, sums, belief, space)
        means, errors = posterior(gram, pull, noise, belief)
        return means, {"predicted_class_mean_snr_db": _decibels(means, errors)}


def _sums(view: View, law: Law, progress: Progress) -> Sums:
    """Over all rounds. Where weights are granted they tell how much of a mixture a row holds."""
    sums = Sums.none(view.classes, view.encodings)
    rounds = len(view.encodings)
    for turn in range(rounds):
        weights = view.weights[turn] if view.has(Channel.WEIGHTS) else None
        sums.add(view.encodings[turn], view.labels[turn], weights, law)
        progress(turn + 1, rounds, "summing encodings by label")
    return sums


def _noise(view: View, law: Law, sums: Sums, belief: Belief, space: Subspace) -> Tensor:
    """[q] variance along each component of what labels do not explain, in a row of N = 1.

    White noise is what remains of the residual once the spread of images about their class
    means is taken off. Of that spread, only what images add to the means of other classes
    counts: about its own class's mean, which is sought, a private image is no error.
    """
    values = sums.pull[0].numel()
    told = (least_squares(sums.gram, sums.pull.flatten(1)) * sums.pull.flatten(1)).sum() / values
    left = (sums.energy - told) / max(1, sums.count - len(sums.gram))
    typical = law.gain**2 * belief.total / belief.basis.shape[0]
    white = (left - typical * sums.own / sums.count).clamp(min=0)
    strays = law.gain**2 * sums.foreign / sums.own.clamp(min=torch.finfo(left.dtype).tiny)
    return white * _loudness(view, space, belief) + strays * belief.within


def _loudness(view: View, space: Subspace, belief: Belief) -> Tensor:
    """[q] variance along each component that white noise of variance 1 in encodings becomes."""
    shape = tuple(view.encodings.shape[2:])
    if shape == view.shape:
        return torch.ones_like(belief.within)
    probes = view.rng.stream(use="probes").normal(_PROBES, *shape).to(view.device)
    return (space.recover(space.project(probes)).flatten(1) @ belief.basis).square().mean(0)


def _decibels(means: Tensor, errors: Tensor) -> float:
    """Mean over classes of the signal-to-noise ratio that the posterior expects."""
    ratio = means.square().sum(1) / errors.clamp(min=torch.finfo(errors.dtype).tiny)
    return float((10 * ratio.log10()).clamp(-_LOUDEST, _LOUDEST).mean())
