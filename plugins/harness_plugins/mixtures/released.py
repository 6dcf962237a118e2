"""A release of known mixtures as the linear attacks see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from harness.api import Channel
from harness_plugins.mixtures.law import NoiseLaw, learn_law
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.mixtures.posterior import Mixed
from harness_plugins.mixtures.prior import GaussianPrior, prior_of
from harness_plugins.mixtures.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Budget, View
    from harness_plugins.mixtures.prior import Mean
    from harness_plugins.mixtures.subspace import Way


@dataclass(frozen=True)
class Released:
    """Rows of all rounds in the coordinates of `subspace`, with the prior and the law there."""

    view: View
    subspace: Subspace
    prior: GaussianPrior
    law: NoiseLaw

    @classmethod
    def of(cls, view: View, mean: Mean, way: Way, budget: Budget) -> Released:
        """The prior is the shared one, or one of its own where that is not of these coordinates."""
        subspace = Subspace.between(view.shape, view.encodings[0], way)
        prior = fitting_prior(view, subspace, mean, budget)
        return cls(view, subspace, prior, learn_law(view, subspace))

    @property
    def labels(self) -> Tensor | None:
        """[rows, classes], where they are granted."""
        return self.view.labels.flatten(0, 1) if self.view.has(Channel.LABELS) else None

    @cached_property
    def rows(self) -> Tensor:
        """[rounds·n, d]."""
        return self.subspace.project(self.view.encodings.flatten(0, 1))

    @cached_property
    def mixture(self) -> Mixture:
        """W of all rounds."""
        return Mixture.of(self.view.weights, self.view.sources, self.view.n_private)

    @cached_property
    def model(self) -> Mixed:
        """The release as a Gaussian model."""
        return Mixed.of(self.prior, self.law, self.mixture, self.labels)

    @property
    def recovered(self) -> Callable[[Tensor], Tensor] | None:
        """From coordinates to images, where those differ."""
        return None if self.subspace.trivial else self.subspace.recover

    def centres(self) -> Tensor:
        """[n, *shape]: what is known of each image but for its encodings."""
        return self.subspace.recover(self.model.centres)


def fitting_prior(view: View, subspace: Subspace, mean: Mean, budget: Budget) -> GaussianPrior:
    """The prepared prior where it fits: of the images' own values, about means that labels tell."""
    known = mean == "public" or view.has(Channel.LABELS)
    if subspace.trivial and known:
        return GaussianPrior.of(view)
    public = view.public.map(subspace.embed)
    return prior_of(public, view.classes, mean if known else "public", budget.megabytes)
