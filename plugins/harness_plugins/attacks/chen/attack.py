"""Chen et al.'s attack, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, CellFailed, Progress, Reconstruction, View
from harness_plugins.attacks.chen import ChenConfig
from harness_plugins.attacks.chen.dependence import values_depend
from harness_plugins.attacks.chen.gram import chance, correlations, gram_of
from harness_plugins.attacks.chen.memberships import factored, settled
from harness_plugins.attacks.chen.pixel_signs import pixel_signs, share_right
from harness_plugins.attacks.chen.public_coordinates import Publics, public_coordinates
from harness_plugins.attacks.chen.rereading import Solution, begun, retried, solved_again
from harness_plugins.clusters.membership import Membership, classes_of
from harness_plugins.clusters.published import Published, unmasked
from harness_plugins.clusters.whitening import learn_whitening, whitened

if TYPE_CHECKING:
    from torch import Tensor

_TURNS = 5  # of signs and images in a sweep
_MATRICES = 4  # of all pairs in memory at a time


@dataclass(frozen=True)
class Members:
    """Who is in which encoding, the class [n] of each image, and what there is to say of it.

    `publics` are the public images in the encodings, where those can be found.
    """

    found: Membership
    classes: Tensor
    publics: Publics | None
    claims: Mapping[str, Tensor] = field(default_factory=dict)
    told: Mapping[str, float] = field(default_factory=dict)


class Chen(Attack[ChenConfig]):
    """Public images, Gram matrix, factors, images, signs."""

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
        if self.config.knows("signs"):
            published = unmasked(view, published)
        members = self._members(view, published, prepared, budget, progress)
        solution = self._solution(view, published, members, progress)
        images, signs = with_signs(view, published, solution)
        return Reconstruction(
            images=view.scale.clamp(images.view(-1, *view.shape)),
            claims={**members.claims, **solution.claims()},
            diagnostics={
                **members.told,
                **signs,
                "clusters": float(solution.found.n),
                "clusters_wanted": float(published.n),
                "public_images_in_encoding": float(published.images - published.privates),
                "unexplained": solution.unexplained(published),
            },
        )

    def _members(
        self,
        view: View,
        published: Published,
        prepared: Mapping[str, Tensor],
        budget: Budget,
        progress: Progress,
    ) -> Members:
        """Found, or told by an oracle."""
        publics = public_images(view, published)
        if not self.config.knows("clusters"):
            _require_memory(len(published), budget)
            return self._found(view, published, publics, prepared, progress)
        told = Membership.told(view, published, self.config.knows("weights"))
        classes = classes_of(told.clusters, published.labels, published.n)
        return Members(told, classes, publics)

    def _found(
        self,
        view: View,
        published: Published,
        publics: Publics | None,
        prepared: Mapping[str, Tensor],
        progress: Progress,
    ) -> Members:
        """From the Gram matrix of private weights, of all where whitened; `places` factor it."""
        progress(0, 3, "correlations of all pairs")
        gram, noise = gram_matrix(published, prepared)
        if publics and not prepared:
            gram = gram.sub_(publics.gram()).clamp_(min=0)
        progress(1, 3, "factors of the Gram matrix")
        way = "rotation" if self.config.factor == "auto" else self.config.factor
        factors = factored(gram, published, way, view.rng.stream(use="factors"))
        progress(2, 3, "memberships")
        found, classes = settled(factors, gram, published)
        told = {"whitened": float(bool(prepared)), "correlation_by_chance": noise}
        return Members(found, classes, publics, {"places": factors.places}, told)

    def _solution(
        self, view: View, published: Published, members: Members, progress: Progress
    ) -> Solution:
        """Images, and memberships and public images read again in turn with them."""
        known = self.config.knows
        rng = view.rng.stream(use="starts")
        solution = begun(published, members.found, members.publics, self.config.starts, rng)
        sweeps = 0 if known("weights") and not members.publics else self.config.sweeps
        for sweep in range(sweeps):
            progress(sweep, sweeps, "memberships and images in turn")
            solution = solved_again(
                published,
                solution,
                members.classes,
                _TURNS,
                members=not known("clusters"),
                weights=not known("weights"),
            )
        if not sweeps:
            return solution
        return retried(published, solution, self.config.starts, rng.stream(use="last"))


def public_images(view: View, published: Published) -> Publics | None:
    """Those in each encoding, where they are mixed whole and their values are independent.

    What labels leave of an encoding's weight is theirs.
    """
    if not published.whole or values_depend(view):
        return None
    total = (1 - published.labels.sum(1, keepdim=True)).clamp(min=0)
    pool, count = view.public.images.flatten(1), published.images - published.privates
    return public_coordinates(published.seen.flatten(1), pool, count, total)


def with_signs(
    view: View, published: Published, solution: Solution
) -> tuple[Tensor, Mapping[str, float]]:
    """Images [n, d] with the signs of their values, where those were not known all along.

    And how many of such signs are right for public images.
    """
    images = solution.images
    if not published.hidden or solution.publics:
        return images, {}
    exam = share_right(view.public, len(images), view.rng.stream(use="sign exam"))
    public = view.public.images.flatten(1)
    if published.privates == 1:
        signed = torch.where(public.mean(0) < 0, -images.abs(), images.abs())
    else:
        signed = images * pixel_signs(images, public)
    return signed, {"public_signs": exam}


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
