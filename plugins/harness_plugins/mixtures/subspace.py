"""Where the images lie among encodings of another resolution.

An encoder that resizes images before it adds noise leaves them in a small subspace, R x, and
most of the noise outside. With R = Q T (Q orthonormal), Qᵀ x~ is all that the encoding tells of
the image, and white noise stays white in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.resizing import fit_images, resize

if TYPE_CHECKING:
    from typing import Literal

    from torch import Tensor

    Way = Literal["auto", "none"]


@dataclass(frozen=True)
class Subspace:
    """Images of `shape` and their encodings, both as vectors of the same few coordinates.

    `rows` and `columns` are (Q, T) for each side of a picture; None where encodings have the
    shape of the images, or are brought to it by plain resizing.
    """

    shape: tuple[int, ...]
    rows: tuple[Tensor, Tensor] | None = None
    columns: tuple[Tensor, Tensor] | None = None

    @classmethod
    def between(cls, shape: tuple[int, ...], encoded: Tensor, way: Way) -> Subspace:
        """For images of `shape` and encodings [n, ...] that were made of them.

        CellFailed where encodings are of a shape that is not the images', resized.
        """
        if tuple(encoded.shape[1:]) == shape:
            return cls(shape)
        fit_images(encoded[:1], shape)  # raises where encodings are no images
        sides = list(zip(shape[1:], encoded.shape[2:], strict=True))
        if way == "none" or any(large < small for small, large in sides):
            return cls(shape)
        (rows, columns) = (_side(small, large, encoded) for small, large in sides)
        return cls(shape, rows, columns)

    @property
    def trivial(self) -> bool:
        """Whether coordinates are the images' own values."""
        return self.rows is None

    def project(self, encodings: Tensor) -> Tensor:
        """[n, d] of encodings [n, ...]: Qᵀ x~."""
        if self.rows is None or self.columns is None:
            if tuple(encodings.shape[1:]) == self.shape:
                return encodings.flatten(1)
            return fit_images(encodings, self.shape).flatten(1)
        return (self.rows[0].T @ encodings @ self.columns[0]).flatten(1)

    def embed(self, images: Tensor) -> Tensor:
        """[n, d] of images [n, *shape]: T x."""
        if self.rows is None or self.columns is None:
            return images.flatten(1)
        return (self.rows[1] @ images @ self.columns[1].T).flatten(1)

    def recover(self, coordinates: Tensor) -> Tensor:
        """[n, *shape] of coordinates [n, d]: the inverse of `embed`."""
        planes = coordinates.view(-1, *self.shape)
        if self.rows is None or self.columns is None:
            return planes
        left = torch.linalg.solve_triangular(self.rows[1], planes, upper=True)
        down = left.transpose(-1, -2)
        solved = torch.linalg.solve_triangular(self.columns[1], down, upper=True)
        return solved.transpose(-1, -2)


def _side(small: int, large: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """(Q [large, small], T [small, small]) of resizing one side of a picture."""
    each = torch.eye(small, dtype=torch.float64).view(1, 1, small, small)
    q, t = torch.linalg.qr(resize(each, large, small).view(large, small))
    return q.to(like), t.to(like)
