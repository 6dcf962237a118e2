"""Principal components of public images: what whitens, and where signal is to be looked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_IMAGES = 5000
_EXACT = 1600
"""Dimensions up to which the covariance is diagonalised; beyond, its leading part is found."""
_HELD_OUT = 5
"""One in so many public images tells variances, of directions that others gave."""


@dataclass(frozen=True)
class Components:
    """Rows of d values: about `mean` [d], of `variances` [q] along the columns of `basis` [d, q].

    Without a basis the columns are the values themselves: q is d.
    """

    mean: Tensor
    variances: Tensor
    basis: Tensor | None

    def coordinates(self, rows: Tensor) -> Tensor:
        """[n, q] of rows [n, d], about the mean."""
        return self.directions(rows - self.mean)

    def directions(self, rows: Tensor) -> Tensor:
        """[n, q] of differences of rows [n, d]."""
        return rows if self.basis is None else rows @ self.basis


IMAGES = _IMAGES


def plain(mean: Tensor, variance: Tensor) -> Components:
    """Values that all vary alike, where nothing public tells more."""
    return Components(mean, variance.expand(len(mean)).clone(), None)


def components_of(rows: Tensor, most: int) -> Components:
    """At most `most` components of public rows [n, d], n >= 2.

    Variances are measured on rows that did not choose the directions: along those of the sample
    itself they would be too large first and too small last.
    """
    held = len(rows) // _HELD_OUT
    seen, apart = rows[held:], rows[: held or None]
    mean = seen.mean(0)
    basis = _directions(seen - mean, most)
    found = torch.cat([(part - mean) @ basis for part in apart.split(1024)])
    return Components(mean, _falling(found.square().mean(0)), basis)


def _directions(centred: Tensor, most: int) -> Tensor:
    """[d, q] orthonormal, the largest variance first."""
    n, d = centred.shape
    q = max(1, min(most, n - 1, d))
    if d <= _EXACT:
        _, basis = torch.linalg.eigh(centred.T @ centred / n)
        return basis.flip(1)[:, :q].contiguous()
    _, _, found = torch.svd_lowrank(centred, q=q)
    kept: Tensor = found.contiguous()
    return kept


def _falling(variances: Tensor) -> Tensor:
    """The nearest sequence that does not rise, and stays above rounding."""
    from scipy.optimize import isotonic_regression

    fitted = isotonic_regression(variances.double().cpu().numpy(), increasing=False).x
    floor = torch.finfo(variances.dtype).eps * max(float(fitted[0]), 1e-30)
    return torch.from_numpy(fitted.copy()).to(variances).clamp(min=floor)
