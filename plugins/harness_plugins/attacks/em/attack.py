"""The attack: rows as labels tell them, the search for pairs, and images of the pairs found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, NotApplicable, Progress, Reconstruction, View
from harness_plugins.attacks.em import EmConfig
from harness_plugins.attacks.em.pairs import Search
from harness_plugins.attacks.em.rows import read_rows
from harness_plugins.clusters.labels import PRESENT, images_of_classes
from harness_plugins.clusters.membership import Membership
from harness_plugins.clusters.published import Published
from harness_plugins.mixtures.released import Released, fitting_prior
from harness_plugins.mixtures.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor


class Em(Attack[EmConfig]):
    """Rows in one pile: which of them are of one round is not used."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """As many images as there are private ones, and the two of each row.

        NotApplicable where rows are not of two private images with their signs.
        """
        published = Published.of(view)
        _require_pairs(published)
        space = Subspace.between(view.shape, view.encodings[0], "auto")
        prior = fitting_prior(view, space, "class", budget)
        components = min(self.config.components, prior.basis.shape[1])
        rows = read_rows(view, space, prior, components)
        counts = _counts(published)
        classes = torch.arange(len(counts), device=view.device).repeat_interleave(counts)
        search = Search(rows, classes, prior.variances[:components], self.config.steps)
        found = search.run(
            self.config.restarts, self.config.redraws, view.rng.stream(use="starts"), progress
        )
        weights = torch.stack([found.weights, 1 - found.weights], 1)
        sure = rows.sure.view(-1, 1).expand_as(weights)
        told = Membership(found.pairs, weights, sure, len(classes)).shown(view, published)
        released = Released.of(told, "class", "auto", budget)
        images = released.subspace.recover(released.model.estimate(released.rows))
        return Reconstruction(
            view.scale.clamp(images),
            claims={"clusters": found.pairs, "shares": weights},
            diagnostics={
                "log_likelihood": found.likelihood,
                "images_in_no_row": float(len(classes) - len(found.pairs.unique())),
                "weight_doubt": rows.doubt**0.5,
            },
        )


def _require_pairs(published: Published) -> None:
    if (published.images, published.privates) != (2, 2):
        raise NotApplicable(
            f"an encoding mixes {published.images} images, {published.privates} of them private: "
            "em compares pairs of private images; carlini finds more."
        )
    if published.hidden:
        raise NotApplicable(
            "signs are hidden, and absolute values of a mixture are no sum of images; carlini "
            "finds out which encodings hold an image all the same."
        )


def _counts(published: Published) -> Tensor:
    """[classes] how many images each class has; at least one of each that a label names."""
    counts = images_of_classes(published.labels, published.n, published.privates)
    counts = counts.to(published.labels.device)
    counts = counts.maximum((published.labels > PRESENT).any(0).long())
    while int(counts.sum()) > published.n:  # a count by shares may have missed a rare class
        counts[counts.argmax()] -= 1
    return counts
