"""Chen et al.'s attack, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, CellFailed, Progress, Reconstruction, View
from harness_plugins.attacks.chen import ChenConfig
from harness_plugins.attacks.chen.dependence import values_depend
from harness_plugins.attacks.chen.gram import chance, correlations, gram_of
from harness_plugins.attacks.chen.memberships import factored, settled
from harness_plugins.attacks.chen.pixel_signs import pixel_signs, share_right
from harness_plugins.attacks.chen.regression import Regression
from harness_plugins.attacks.chen.rereading import read_again, solve_again
from harness_plugins.clusters.images import mixtures_solved
from harness_plugins.clusters.membership import Membership, classes_of
from harness_plugins.clusters.published import Published
from harness_plugins.clusters.whitening import learn_whitening, whitened

if TYPE_CHECKING:
    from torch import Tensor

_TURNS = 5  # of signs and images in a sweep
_MATRICES = 4  # of all pairs in memory at a time


class Chen(Attack[ChenConfig]):
    """Gram matrix, factors, images, signs."""

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """What public encodings are whitened by; nothing where whitening has no use."""
        wanted = self.config.whiten
        if self.config.knows("clusters") or not (
            values_depend(view) if wanted == "auto" else wanted
        ):
            return {}
        progress(0, 1, "covariance of public encodings")
        return learn_whitening(view, self.config.encodings, budget)

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """As many images as were found; NotApplicable with a single round."""
        published = Published.of(view)
        if self.config.knows("clusters"):
            found = Membership.told(view, published, self.config.knows("weights"))
            classes = classes_of(found.clusters, published)
            claims: dict[str, Tensor] = {}
            told: dict[str, float] = {}
        else:
            found, classes, claims, told = self._found(view, published, prepared, budget, progress)
        images, found, errors = self._images(view, published, found, classes, progress)
        images = self._with_signs(view, published, images, told)
        return Reconstruction(
            images=view.scale.clamp(images.view(-1, *view.shape)),
            claims={**claims, "clusters": found.clusters, "shares": found.weights},
            diagnostics={
                **told,
                "clusters": float(found.n),
                "clusters_wanted": float(published.n),
                "public_images_in_encoding": float(published.images - published.privates),
                **errors,
            },
        )

    def _found(
        self,
        view: View,
        published: Published,
        prepared: Mapping[str, Tensor],
        budget: Budget,
        progress: Progress,
    ) -> tuple[Membership, Tensor, dict[str, Tensor], dict[str, float]]:
        """Memberships, the class of each image, `places`, and what there is to say of them."""
        _require_memory(len(published), budget)
        progress(0, 3, "correlations of all pairs")
        gram, noise = gram_matrix(published, prepared)
        progress(1, 3, "factors of the Gram matrix")
        way = "rotation" if self.config.factor == "auto" else self.config.factor
        factors = factored(gram, published, way, view.rng.stream(use="factors"))
        progress(2, 3, "memberships")
        found, classes = settled(factors, gram, published)
        told = {"whitened": float(bool(prepared)), "correlation_by_chance": noise}
        return found, classes, {"places": factors.places}, told

    def _images(
        self,
        view: View,
        published: Published,
        found: Membership,
        classes: Tensor,
        progress: Progress,
    ) -> tuple[Tensor, Membership, dict[str, float]]:
        """[n, d], up to signs of values where signs are hidden; and what they leave unexplained."""
        seen, hidden = published.seen.flatten(1), published.hidden
        if hidden and self.config.knows("signs"):
            return mixtures_solved(view, published, found).flatten(1), found, {}
        regression = Regression.of(found)
        images = (
            regression.solved(seen, self.config.starts, view.rng.stream(use="starts"))
            if hidden
            else regression.signed(seen)
        )
        sweeps = 0 if self.config.knows("weights") else self.config.sweeps
        for sweep in range(sweeps):
            progress(sweep, sweeps, "memberships and images in turn")
            told = not self.config.knows("clusters")
            found = read_again(published, images, classes, found, members=told)
            images = solve_again(seen, images, found, hidden, _TURNS)
        errors = Regression.of(found).errors(seen, images) if hidden else seen.new_zeros(1)
        return images, found, {"unexplained": float(errors.square().mean().sqrt())}

    def _with_signs(
        self, view: View, published: Published, images: Tensor, told: dict[str, float]
    ) -> Tensor:
        """Images [n, d] with the signs of their values, where those were not known all along."""
        if not published.hidden or self.config.knows("signs"):
            return images
        told["public_signs"] = share_right(
            view.public, len(images), view.rng.stream(use="sign exam")
        )
        public = view.public.images.flatten(1)
        if published.privates == 1:
            return torch.where(public.mean(0) < 0, -images.abs(), images.abs())
        return images * pixel_signs(images, public)


def gram_matrix(published: Published, prepared: Mapping[str, Tensor]) -> tuple[Tensor, float]:
    """W W' [m, m] of all encodings, and by how much correlations vary by chance.

    Whitened rows are of one size: then W W' is that of rows of W at unit length.
    """
    rows = published.seen.flatten(1)
    if prepared:
        rows = whitened(rows, prepared)
        scales = torch.ones_like(rows[:, 0])
    else:
        scales = rows.square().mean(1).sqrt()
    found = correlations(rows)
    noise = chance(found)
    return gram_of(found, scales, published.hidden), noise


def _require_memory(rows: int, budget: Budget) -> None:
    """CellFailed where matrices of all pairs do not fit into half of the budget."""
    needed = _MATRICES * 4 * rows**2 // 2**20
    if needed > budget.megabytes // 2:
        raise CellFailed(
            f"the Gram matrix of {rows} encodings takes {needed} MB to work on, more than half of "
            f"the {budget.megabytes} MB allowed; raise --megabytes, or publish fewer with --rounds."
        )
