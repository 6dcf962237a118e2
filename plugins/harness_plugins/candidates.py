"""Scores of candidates for encodings: what the identification attacks share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.api import CellFailed, Reconstruction
from harness_plugins.resizing import fit_images

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View

MOST_SCORES = 2**27
"""Scores of one claim: half a gigabyte of float32."""


def released_rows(view: View, most: int = MOST_SCORES) -> Tensor:
    """Encodings [rounds·n, ...], of as many rows as `most` scores of all candidates allow."""
    rows = view.encodings.flatten(0, 1)
    return rows[: max(1, most // max(1, len(view.candidates)))]


def at_shape(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Encodings [r, ...] as [r, *shape].

    CellFailed where they are neither of that shape nor images of another resolution.
    """
    return rows if tuple(rows.shape[1:]) == tuple(shape) else fit_images(rows, shape)


def claim_rows(view: View, scores: Tensor, **diagnostics: float) -> Reconstruction:
    """Scores [r, candidates] of the first r rows of the release."""
    _require_finite(scores)
    return Reconstruction(
        claims={"candidate_scores": scores},
        rows=torch.arange(len(scores)),
        diagnostics={**_counted(scores, view.encodings.shape[:2].numel()), **diagnostics},
    )


def claim_targets(scores: Tensor, **diagnostics: float) -> Reconstruction:
    """Scores [n, candidates] of all private images."""
    _require_finite(scores)
    return Reconstruction(
        claims={"candidate_scores": scores},
        targets=torch.arange(len(scores)),
        diagnostics={**_counted(scores, len(scores)), **diagnostics},
    )


def _counted(scores: Tensor, all_rows: int) -> dict[str, float]:
    return {
        "candidates": float(scores.shape[1]),
        "scored": float(len(scores)),
        "left_out": float(all_rows - len(scores)),
    }


def _require_finite(scores: Tensor) -> None:
    if not scores.isfinite().all():
        raise CellFailed("candidate scores overflowed: encodings are too large for float32")
