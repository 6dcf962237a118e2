"""Checks of spaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harness.api import AssetFolder
from harness.assets import folder
from harness.store import cache_root
from harness.testing.kit import CASES
from harness.testing.result import Unanswered, Violation
from harness.testing.watch import forgetful, same, unmoved, untouched

if TYPE_CHECKING:
    from harness.testing.subject import Subject

BATCH = 4
SHAPE = (3, 32, 32)


def assets_of(subject: Subject) -> AssetFolder:
    """Its assets, verified; AssetUnavailable where they are not here."""
    return folder(subject.spec.assets, cache_root())


def images_of(shape: tuple[int, ...] = SHAPE, *, flat: bool = False) -> Tensor:
    """Images [b, c, h, w] in [0,1]."""
    if flat:
        return torch.full((BATCH, *shape), 0.5)
    return torch.rand(BATCH, *shape, generator=torch.Generator().manual_seed(11))


def _embedded(subject: Subject, images: Tensor) -> Tensor:
    if not subject.spec.extracts:
        raise Unanswered("encodings live in the images themselves")
    features: Tensor = subject.build().embed(images, assets_of(subject))
    if features.dtype != torch.float32 or features.ndim != 4 or len(features) != len(images):
        raise Violation(
            f"embed returned {list(features.shape)} {features.dtype}; "
            f"wanted [{len(images)}, c, h, w] float32"
        )
    if not bool(features.isfinite().all()):
        raise Violation("embed returned features that are not all finite")
    return features


def embeds(subject: Subject) -> str:
    """Feature maps of images, which stay as they were."""
    images = images_of()
    with untouched(images=images):
        features = _embedded(subject, images)
    return f"{list(images.shape)} to {list(features.shape)}"


def deterministic(subject: Subject) -> str:
    """The same images have the same features."""
    if not same(_embedded(subject, images_of()), _embedded(subject, images_of())):
        raise Violation("the same images have other features the second time")
    return "the same images have the same features"


def leaves_the_world_alone(subject: Subject) -> str:
    """No global state is moved."""
    with unmoved():
        _embedded(subject, images_of())
    return "no global state was moved"


def copes_with(subject: Subject, case: str) -> str:
    """Images of any size have features."""
    shape = CASES[case].shape
    features = _embedded(subject, images_of(shape, flat=case == "constant"))
    return f"{list(shape)} to {list(features.shape[1:])}"


def forgets(subject: Subject) -> str:
    """Batches leave nothing behind, but for the network."""
    _embedded(subject, images_of())
    space, assets = subject.build(), assets_of(subject)
    return forgetful(lambda _: space.embed(images_of(), assets))
