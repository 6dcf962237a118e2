"""Whether rows are what their owner's secrets and the stated law say that they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api.law import Law

EXACT, SURE = 1e-3, 6.0
"""What rounding leaves of a mixture, and standard errors within which noise is as stated."""
SHARE, FEW = 0.01, 0.1
"""A row that is a public image but for this share of its energy is that image; and the share of
rows of which that may be said by chance: private images have twins."""
CHUNK = 1024
"""Rows that are compared with all public images at a time."""


def unlike_law(law: Law, rows: Tensor, weights: Tensor, sources: Tensor, images: Tensor) -> str:
    """What of rows [n, d] is not the mixture and the noise that are stated; "" if all is.

    `weights` and `sources` [n, k] are those of `images` [m, d], private ones first. Nothing is said
    of a law of altered images, nor of noise under random signs.
    """
    if law.altered or (law.signs and law.noise != "none"):
        return ""
    mixed = (weights.double().unsqueeze(2) * images[sources].double()).sum(1)
    if law.signs:
        rows, mixed = rows.abs(), mixed.abs()
    left, deviations = rows.double() - mixed, law.deviations(weights)
    bare = deviations == 0  # also of an image that is mixed with itself
    if bool((left[bare].abs() > EXACT).any()):
        return "rows are not the mixture that it states, and it states no noise of them"
    return "" if bool(bare.all()) else _unlike_noise(left[~bare] / deviations[~bare].view(-1, 1))


def _unlike_noise(noise: Tensor) -> str:
    """What of noise [n, d] is not independent and of deviation one."""
    power, next_to = noise.square().mean(), (noise[:, 1:] * noise[:, :-1]).mean()
    error = SURE / noise.numel() ** 0.5  # Laplace values have squares of deviation √5
    if not abs(float(power) - 1) <= error * 5**0.5:
        return f"the noise has {float(power):.3g} times the energy that it states"
    if not abs(float(next_to)) <= error:
        return (
            f"neighbouring values of the noise are correlated ({float(next_to):.2f}): what is "
            "stated is of independent ones"
        )
    return ""


def like_public(rows: Tensor, public: Tensor) -> str:
    """That many of the rows [n, d] are public images [m, d], up to their sign; "" if few are."""
    from torch import cdist

    if not len(public) or rows.shape[1:] != public.shape[1:]:
        return ""
    same = 0
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        nearest = cdist(part.abs(), public.abs()).amin(1).square()
        same += int((nearest < SHARE * part.square().sum(1)).sum())
    return f"{same} of {len(rows)} rows are public images" if same > FEW * len(rows) else ""
