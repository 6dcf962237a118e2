"""W from W W', by turning its eigenvectors until they are sparse.

W W' has as many eigenvectors as there are images, and they are W but for an invertible matrix,
nearly a rotation: every image is in as many encodings. Sparse positive columns are those with the
largest sum of cubes, which a few fixed-point steps find (as independent components are found).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Stream

_POWERS = 12
_SPARE = 10  # directions beyond those wanted, while they are looked for
_STARTS = 4
_TURNS = 200
_STILL = 1e-4


def leading(gram: Tensor, count: int, rng: Stream) -> tuple[Tensor, Tensor]:
    """The eigenvectors [m, count] of the largest eigenvalues [count], by block power iteration."""
    m = len(gram)
    width = min(m, count + _SPARE)
    basis = torch.linalg.qr(rng.normal(m, width).to(gram)).Q
    for _ in range(_POWERS):
        basis = torch.linalg.qr(gram @ basis).Q
    values, turn = torch.linalg.eigh(basis.T @ (gram @ basis))
    count = min(count, width)
    return (basis @ turn)[:, -count:], values[-count:].clamp(min=0)


def sparse(basis: Tensor, rng: Stream) -> Tensor:
    """[m, n]: orthonormal columns [m, n], turned to be sparse and positive; the best of starts."""
    best, found = -torch.inf, basis
    for start in range(_STARTS):
        turned = basis @ _rotation(basis, rng.stream(start=start))
        score = float(turned.clamp(min=0).pow(4).sum())
        if score > best:
            best, found = score, turned
    return found


def _rotation(basis: Tensor, rng: Stream) -> Tensor:
    """[n, n] from one random start: R <- polar(U' (U R)_+^3)."""
    n = basis.shape[1]
    turn: Tensor = torch.linalg.qr(rng.normal(n, n).to(basis)).Q
    for _ in range(_TURNS):
        left, _, right = torch.linalg.svd(basis.T @ (basis @ turn).clamp(min=0).pow(3))
        before, turn = turn, left @ right
        if float((turn - before).norm()) < _STILL:
            break
    return turn


def membership_scores(gram: Tensor, weights: Tensor) -> Tensor:
    """[m, n] least squares of the rows of W W' by the columns of W [m, n], of unit rows.

    All 0 where W is.
    """
    units = torch.nn.functional.normalize(weights)
    normal = units.T @ units
    level = normal.diagonal().mean().clamp(min=1e-12)
    normal += torch.diag((level * 1e-3).expand(len(normal)))
    scores: Tensor = torch.linalg.solve(normal, units.T @ gram).T
    return scores
