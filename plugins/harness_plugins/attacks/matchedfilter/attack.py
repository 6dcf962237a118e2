"""The matched filter: prior, law of the noise, and whose scores they give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.api import Attack, Budget, Channel, Progress, Reconstruction, View
from harness_plugins.attacks.matchedfilter import MatchedFilterConfig
from harness_plugins.attacks.matchedfilter.likelihood import Axes, Filter
from harness_plugins.candidates import claim_rows, claim_targets, released_rows
from harness_plugins.mixtures.law import learn_law
from harness_plugins.mixtures.released import fitting_prior
from harness_plugins.mixtures.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor


class MatchedFilter(Attack[MatchedFilterConfig]):
    """Scores private images where sources say which rows hold them, else rows."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """`candidate_scores` of all targets, or of the rows of all rounds."""
        subspace = Subspace.between(view.shape, view.encodings[0], self.config.subspace)
        axes = Axes(fitting_prior(view, subspace, "public", budget))
        law = learn_law(view, subspace)
        progress(1, 2, "measured the noise")
        candidates = axes.of(subspace.embed(view.candidates) - axes.prior.mean)
        weights = view.weights.flatten(0, 1)
        told = {"gain": law.gain, "noise_power": float(law.power(weights).mean())}
        if view.has(Channel.SOURCES) and view.has(Channel.N_PRIVATE):
            rows = subspace.project(view.encodings.flatten(0, 1))
            sources = view.sources.flatten(0, 1)
            known = Filter(axes, law, weights, rows)
            found = known.of_images(candidates, sources, view.n_private, self.config.sweeps)
            return claim_targets(found, **told)
        rows = subspace.project(released_rows(view))
        found = Filter(axes, law, weights[: len(rows)], rows).of_places(candidates)
        return claim_rows(view, found, **told)
