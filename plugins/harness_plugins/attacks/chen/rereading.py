"""Images of memberships, and memberships and weights once there are images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness_plugins.attacks.chen.memberships import open_weights
from harness_plugins.attacks.chen.regression import Regression
from harness_plugins.clusters.reading import reread

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Stream
    from harness_plugins.attacks.chen.public_coordinates import Publics
    from harness_plugins.clusters.membership import Membership
    from harness_plugins.clusters.published import Published

_LEAST = 0.02  # relative squared error below which encodings are trusted alike


@dataclass(frozen=True)
class Solution:
    """`images` [n, d], up to signs of values where those are hidden, and what they were solved of.

    `publics` are the public images in the encodings, None where they are noise.
    """

    images: Tensor
    found: Membership
    publics: Publics | None

    @property
    def known(self) -> Tensor | None:
        """[m, d] what is in the mixtures besides the images."""
        return self.publics.mixed if self.publics else None

    def mixtures(self) -> Tensor:
        """[m, d] under their masks."""
        mixed = self.found.mixture.apply(self.images)
        return mixed if self.known is None else mixed.add_(self.known)

    def claims(self) -> dict[str, Tensor]:
        """Who is in which encoding, and by how much."""
        told = {"clusters": self.found.clusters, "shares": self.found.weights}
        return told | ({"publics": self.publics.names} if self.publics else {})

    def unexplained(self, published: Published) -> float:
        """Root of the mean relative error that is left, value by value; 0 without masks."""
        if not published.hidden:
            return 0.0
        regression = Regression.of(self.found, self.known)
        errors = regression.errors(published.seen.flatten(1), self.images)
        return float(errors.square().mean().sqrt())


def begun(
    published: Published, found: Membership, publics: Publics | None, starts: int, rng: Stream
) -> Solution:
    """The first images of memberships."""
    seen = published.seen.flatten(1)
    regression = Regression.of(found, publics.mixed if publics else None)
    images = regression.solved(seen, starts, rng) if published.hidden else regression.signed(seen)
    return Solution(images, found, publics)


def solved_again(
    published: Published,
    before: Solution,
    classes: Tensor,
    turns: int,
    *,
    members: bool,
    weights: bool,
) -> Solution:
    """Public images, memberships and weights read off the images, and these solved again.

    Without `members` or `weights`, which are known then, those stay.
    """
    told, rows = before, published
    if before.publics:
        told = replace(before, publics=_publics_again(published, before, before.publics))
        rows = _without_publics(published, told)
    found = told.found
    if weights:
        found = read_again(rows, told.images, classes, found, members=members)
    return _solved(published, replace(told, found=found), turns)


def retried(published: Published, solution: Solution, starts: int, rng: Stream) -> Solution:
    """Values that the images leave unexplained begun anew, now that all else is known better."""
    if not published.hidden:
        return solution
    images = _trusting(published, solution).retried(
        published.seen.flatten(1), solution.images, starts, rng
    )
    return replace(solution, images=images)


def _publics_again(published: Published, solution: Solution, publics: Publics) -> Publics:
    signed = _signed(published, solution)
    return publics.read_again(signed.sub_(solution.found.mixture.apply(solution.images)))


def _without_publics(published: Published, solution: Solution) -> Published:
    """Encodings of private images alone, under the signs that the solution gives them."""
    signed = _signed(published, solution)
    if solution.known is not None:
        signed -= solution.known
    return replace(published, rows=signed.view_as(published.rows), hidden=False)


def _signed(published: Published, solution: Solution) -> Tensor:
    """[m, d] encodings without their masks, as the solution has them."""
    seen = published.seen.flatten(1)
    return seen * solution.mixtures().sign() if published.hidden else seen.clone()


def read_again(
    published: Published, images: Tensor, classes: Tensor, found: Membership, *, members: bool
) -> Membership:
    """Members by trial of all images [n, d] of their class; open weights by least squares.

    Without `members`, which are known then, weights alone.
    """
    seen, hidden = published.seen.flatten(1), published.hidden
    better = reread(published, images, classes, found, members=members)
    rows, labels = seen, published.labels
    if hidden:
        rows = seen * better.mixture.apply(images).sign()
    return open_weights(better, rows @ images.T, images @ images.T, labels)


def _solved(published: Published, solution: Solution, turns: int) -> Solution:
    """Images from these on."""
    seen, regression = published.seen.flatten(1), _trusting(published, solution)
    if published.hidden:
        return replace(solution, images=regression.improved(seen, solution.images, turns))
    return replace(solution, images=regression.signed(seen))


def _trusting(published: Published, solution: Solution) -> Regression:
    """Each encoding counted as far as the images explain it."""
    trust = _trust(published.seen.flatten(1), solution.mixtures(), published.hidden)
    return Regression.of(solution.found, solution.known, trust)


def _trust(seen: Tensor, mixed: Tensor, hidden: bool) -> Tensor:
    """[m, 1] less for encodings that the images do not explain."""
    left = ((mixed.abs_() if hidden else mixed) - seen).square_().mean(1, keepdim=True)
    return 1 / (left / seen.square().mean(1, keepdim=True).clamp(min=1e-12) + _LEAST)
