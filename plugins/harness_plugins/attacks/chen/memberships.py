"""From who shares an image to who holds which, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.api import CellFailed, NotApplicable
from harness_plugins.attacks.chen.factors import leading, membership_scores, sparse
from harness_plugins.attacks.chen.floral import floral_factor
from harness_plugins.attacks.chen.linegraph import line_graph_root
from harness_plugins.clusters.assignment import flow
from harness_plugins.clusters.membership import Membership, classes_of

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Stream
    from harness_plugins.clusters.published import Published

_TURNS = 3
_TWINS = 0.8
"""Cosine of the weights of two encodings that hold the same two images, at the least: no weight
is above .65. With one image in common it is .78 at the most."""


@dataclass(frozen=True)
class Factored:
    """`scores` [m, q] of encodings and images; `places` [m, e] have the dot products W W'."""

    scores: Tensor
    places: Tensor


def factored(gram: Tensor, published: Published, way: str, rng: Stream) -> Factored:
    """W W' [m, m] factored as `way` says.

    NotApplicable where that way has no use, CellFailed where it finds no image.
    """
    n, k = published.n, published.privates
    basis, values = leading(gram, n, rng.stream(use="eigenvectors"))
    places = basis * values.sqrt()
    if way == "line-graph":
        _only(k == 2, way, "two private images", k)
        cosines = _cosines(gram)
        columns = line_graph_root(cosines > 0, cosines > _TWINS, n)
    elif way == "floral":
        _only(k > 2, way, "more than two private images", k)
        columns = floral_factor((_cosines(gram) * k).round().long(), k, n)
    else:
        return Factored(sparse(basis, rng.stream(use="rotation")), places)
    if not columns.shape[1]:
        raise CellFailed(f"factor={way} finds no image in these encodings.")
    return Factored(columns.to(gram), places)


def _only(right: bool, way: str, what: str, k: int) -> None:
    if not right:
        raise NotApplicable(f"factor={way} is for {what} in an encoding, and here it is {k}.")


def _cosines(gram: Tensor) -> Tensor:
    scale = gram.diagonal().clamp(min=1e-12).rsqrt()
    return gram * scale * scale.view(-1, 1)


def settled(found: Factored, gram: Tensor, published: Published) -> tuple[Membership, Tensor]:
    """Memberships and the class [q] of each image, from the scores on.

    All encodings of a round are shared out together, in line with their labels; then the Gram
    matrix says anew who is like which image.
    """
    member, classes = _shared_out(found.scores, published)
    for _ in range(_TURNS):
        member, classes = _shared_out(membership_scores(gram, member.dense()), published)
    return weighed_by_gram(gram, member, published.labels), classes


def _shared_out(scores: Tensor, published: Published) -> tuple[Membership, Tensor]:
    """By a flow; classes [q] are those of each row's highest scores, weights the label's shares."""
    q = scores.shape[1]
    strongest = scores.topk(min(published.privates, q), dim=1).indices
    classes = classes_of(strongest, published.labels, q)
    likeness = scores / scores.abs().max().clamp(min=1e-12)
    clusters = flow(likeness, published.rules(classes), published.rounds_of)
    return Membership.by_labels(clusters, published.labels, classes), classes


def weighed_by_gram(gram: Tensor, found: Membership, labels: Tensor) -> Membership:
    """Weights that labels leave open, by least squares of the Gram matrix on the columns of W.

    They sum to what the label says of private images.
    """
    units = found.dense()
    pull = gram @ units
    normal = units.T @ units
    return open_weights(found, pull, normal, labels)


def open_weights(found: Membership, pull: Tensor, normal: Tensor, labels: Tensor) -> Membership:
    """W with w_i = argmin w' N w - 2 w' pull_i over the members of each encoding i.

    `pull` [m, q], `normal` N [q, q]. Sure weights stay; the others are scaled to have their sum.
    """
    ends = found.clusters.clamp(min=0)
    there = found.clusters >= 0
    square = normal[ends.unsqueeze(2), ends.unsqueeze(1)]
    both = there.unsqueeze(2) & there.unsqueeze(1)
    square = torch.where(both, square, torch.zeros_like(square))
    level = square.diagonal(dim1=1, dim2=2).amax(1).clamp(min=1e-12)
    square = square + torch.diag_embed(level.view(-1, 1) * (~there + 1e-4))
    solved = torch.linalg.solve(square, (pull.gather(1, ends) * there).unsqueeze(2)).squeeze(2)
    free = there & ~found.sure
    guess = torch.where(free, solved.clamp(min=0) + 1e-6, torch.zeros_like(solved))
    left = (labels.sum(1) - (found.weights * (there & found.sure)).sum(1)).clamp(min=0)
    guess *= (left / guess.sum(1).clamp(min=1e-12)).view(-1, 1)
    weights = torch.where(free, guess, found.weights)
    return Membership(found.clusters, weights, found.sure, found.n)
