"""What somebody hands in for a challenge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.api import CellFailed, Reconstruction, Scale, UsageError
from harness.challenge.files import read_tensors, sha256_of_file
from harness.challenge.pack import Description
from harness.scoring.matching import Matched, match

if TYPE_CHECKING:
    from torch import Tensor

    from harness.challenge.opening import Truth

IMAGES, DECRYPTIONS, ROWS, TARGETS = "images", "decryptions", "rows", "targets"
SLACK = 1e-3
"""How far beyond 0 and 1 values may lie, to be clamped."""


@dataclass(frozen=True)
class Submission:
    """Images in [0,1], float32.

    Either `images` [m, c, h, w] of private images, m at least 1, perhaps named by `rows` or
    `targets` [m]; or `decryptions` [rounds·n, c, h, w].
    """

    sha256: str
    images: Tensor | None
    decryptions: Tensor | None
    rows: Tensor | None = None
    targets: Tensor | None = None

    @property
    def named(self) -> bool:
        """Whether images say which private image they are meant to be."""
        return self.rows is not None or self.targets is not None


def read_submission(path: Path, described: Description) -> Submission:
    """A submission to this pack; UsageError says what it should have been."""
    digest = sha256_of_file(path, "submission")
    tensors = read_tensors(path, "submission")
    _check_names(tensors)
    if DECRYPTIONS in tensors:
        shape = (described.rounds, described.private, *described.shape)
        images = _unit(DECRYPTIONS, tensors[DECRYPTIONS], shape)
        return Submission(digest, None, images.flatten(0, 1))
    images = _unit(IMAGES, tensors[IMAGES], (None, *described.shape))
    if not 0 < len(images) <= described.private:
        raise UsageError(
            f"The submission holds {len(images)} images; there are {described.private} private "
            "ones, and each may be submitted once."
        )
    return Submission(digest, images, None, tensors.get(ROWS), tensors.get(TARGETS))


def _check_names(tensors: Mapping[str, Tensor]) -> None:
    kinds = {IMAGES, DECRYPTIONS} & set(tensors)
    allowed = {IMAGES, ROWS, TARGETS} if kinds == {IMAGES} else {DECRYPTIONS}
    if len(kinds) != 1 or not set(tensors) <= allowed or {ROWS, TARGETS} <= set(tensors):
        raise UsageError(
            f"The submission holds {', '.join(sorted(tensors)) or 'nothing'}; wanted `images`, "
            "perhaps with `rows` or `targets`, or `decryptions` alone."
        )


def _unit(name: str, values: Tensor, shape: tuple[int | None, ...]) -> Tensor:
    """Values in [0,1] as float32, if they have this shape; None stands for any length."""
    import torch

    pairs = zip(shape, values.shape, strict=False)
    wanted = tuple(got if want is None else want for want, got in pairs)
    if len(shape) != values.ndim or wanted != tuple(values.shape):
        text = ", ".join("m" if size is None else str(size) for size in shape)
        raise UsageError(f"The submission's `{name}` are {list(values.shape)}; wanted [{text}].")
    if values.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        kind = str(values.dtype).removeprefix("torch.")
        raise UsageError(f"The submission's `{name}` are {kind}; wanted floats between 0 and 1.")
    bad = int((~values.isfinite()).flatten(1).any(1).sum()) if values.numel() else 0
    if bad:
        raise UsageError(f"The submission's `{name}` have NaN or infinite values in {bad} places.")
    low, high = (float(values.min()), float(values.max())) if values.numel() else (0.0, 1.0)
    if low < -SLACK or high > 1 + SLACK:
        raise UsageError(
            f"The submission's `{name}` go from {low:.4g} to {high:.4g}; wanted 0 to 1: restore "
            "standardised images, image * std + mean."
        )
    return values.float().clamp(0, 1)


def placed(submission: Submission, truth: Truth) -> Matched:
    """A submission's images with the private images they belong to."""
    assert submission.images is not None
    channels = truth.images.shape[1]
    found = Reconstruction(submission.images, submission.targets, submission.rows)
    first = truth.sources[..., 0].flatten()
    try:
        return match(found, truth.images, Scale((0.0,) * channels, (1.0,) * channels), first)
    except CellFailed as error:
        reason = str(error).removeprefix("the attack returned ")
        raise UsageError(f"The submission holds {reason}.") from None
