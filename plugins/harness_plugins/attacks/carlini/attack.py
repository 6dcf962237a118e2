"""Carlini et al.'s attack, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torch.nn.functional import normalize

from harness.api import Attack, Budget, Progress, Reconstruction, View
from harness_plugins.attacks.carlini import CarliniConfig
from harness_plugins.attacks.carlini.images import mixtures_solved, read_off
from harness_plugins.attacks.carlini.prototypes import ASSIGN, settled, starts
from harness_plugins.clusters.embedding import Embedder
from harness_plugins.clusters.membership import Membership, classes_of
from harness_plugins.clusters.published import Published
from harness_plugins.clusters.whitening import learn_whitening, whitened
from harness_plugins.unfolding.attack import Unfold

if TYPE_CHECKING:
    from torch import Tensor

_WHITENED_BY = 20_000  # public encodings


class Carlini(Attack[CarliniConfig]):
    """Likeness, cliques, memberships, weights, images."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """As many images as clusters were found; NotApplicable with a single round."""
        published = Published.of(view)
        places = self._places(view, published, budget)
        found, classes = self._memberships(view, published, places, progress)
        told = {"clusters": float(found.n), "clusters_wanted": float(published.n)}
        claims = {} if places is None else {"places": places}
        if not self.config.knows("weights") and published.still:
            alone = published.images == published.privates
            found, changed = read_off(
                view,
                published,
                found,
                classes,
                self.config.rereads,
                progress,
                members=alone and not self.config.knows("clusters"),
            )
            told["reread"] = changed
        solved = self._solved(view, published, found, budget, progress)
        return replace(
            solved,
            targets=None,
            claims={**claims, "clusters": found.clusters, "shares": found.weights},
            diagnostics={**told, **solved.diagnostics},
        )

    def _places(self, view: View, published: Published, budget: Budget) -> Tensor | None:
        """Where likeness puts each encoding; nothing where clusters are told."""
        if self.config.knows("clusters"):
            return None
        if self.config.likeness == "whitened":
            learned = learn_whitening(view, _WHITENED_BY, budget)
            return normalize(whitened(published.seen.flatten(1), learned))
        return Embedder.of(view).places(published.seen)

    def _memberships(
        self, view: View, published: Published, places: Tensor | None, progress: Progress
    ) -> tuple[Membership, Tensor]:
        """Who is in which encoding, and the class of each cluster."""
        if places is None:
            told = Membership.told(view, published, self.config.knows("weights"))
            return told, classes_of(told.clusters, published.labels, published.n)
        told = self.config.count == "told"
        begun = starts(places, published, view.rng.stream(use="seeds"), told=told)

        def stepped(turn: int) -> None:
            progress(turn, self.config.settles, f"{len(begun[1])} clusters")

        assign = ASSIGN[self.config.assign]
        return settled(places, published, begun, assign, self.config.settles, stepped)

    def _solved(
        self,
        view: View,
        published: Published,
        found: Membership,
        budget: Budget,
        progress: Progress,
    ) -> Reconstruction:
        """Images of the clusters."""
        if self.config.knows("signs") and published.hidden:
            images = mixtures_solved(view, published, found)
            return Reconstruction(images=view.scale.clamp(images))
        unfold = Unfold(self.config)
        return unfold.reconstruct(found.shown(view, published), {}, budget, progress)
