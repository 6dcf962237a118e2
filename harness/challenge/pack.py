"""The public part of a challenge: a package, what it says besides, and whether it is that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from harness.api import IntegrityError, UsageError
from harness.challenge import DESCRIPTION, PACKAGE, README
from harness.packages.attacked import Received
from harness.packages.ledger import Digest
from harness.packages.package import Package, fault_of
from harness.packages.statement import MOST_HEADER, Part, Statement, Written
from harness.store.files import sha256_of_file
from harness.store.paths import disk_errors
from harness.store.provenance import sha256_of

OWN: Final = "the owner's own"
"""A dataset that nobody else has: where it lies on its owner's machine is nobody's business."""
Data = Written | Literal["the owner's own"]


class Pool(Part):
    """Which images are surely not private, for whoever has the datasets.

    Drawn by the harness with `seed` from what is left of the dataset's training images, half of
    which are set aside for private ones to be among; or from another `dataset`, if one is named.
    `sha256` is over the images' bytes, uint8 or float32 [images, c, h, w].
    """

    dataset: Data | None
    images: int = Field(ge=0, strict=True)
    seed: int = Field(ge=0, strict=True)
    sha256: Digest


class Checks(Part):
    """What holds of the encodings and their truth and can be recomputed from it.

    `labels`: they are the private images' labels times their weights. `encodings`: they are the
    mixture of the private images, or its absolute values; no augmentation, noise or public image.
    """

    labels: bool = False
    encodings: Literal["values", "absolute values", "no"] = "no"


class Description(Part):
    """`challenge.json`. `release` is the package's seal, `readme` the SHA-256 of the text."""

    format: Literal["encoding challenge"] = "encoding challenge"
    version: Literal[1] = 1
    release: Digest
    readme: Digest
    dataset: Data
    public: Pool
    checks: Checks
    commitment: Digest
    """SHA-256 of the file with the truth."""
    id: Digest
    """SHA-256 of all the rest as canonical JSON."""

    @property
    def digest(self) -> str:
        """SHA-256 of what was there before the commitment: an opening says what it opens."""
        return sha256_of(self.model_dump(mode="json", exclude={"commitment", "id"}))

    @property
    def own_id(self) -> str:
        """What `id` must be."""
        return sha256_of(self.model_dump(mode="json", exclude={"id"}))

    def committed(self, commitment: str) -> Description:
        """With the commitment to its truth, and its id."""
        whole = self.model_copy(update={"commitment": commitment})
        return whole.model_copy(update={"id": whole.own_id})


@dataclass(frozen=True)
class Pack:
    """A pack that was read and is intact; `said` is what its package says.

    `encodings` [rounds, n, *encoded shape] and `labels` [rounds, n, classes], float32.
    """

    described: Description
    said: Statement
    encodings: Tensor
    labels: Tensor


def read_pack(folder: Path) -> Pack:
    """A pack, every byte of it checked.

    UsageError where a file is missing or is not what it should be, IntegrityError where one is
    not what the description says.
    """
    described = _described(folder)
    if sha256_of_file(folder / README, "file of the pack") != described.readme:
        raise _changed(folder / README)
    with Package.open(folder / PACKAGE) as package:
        if package.said.seal != described.release:
            raise _changed(folder / PACKAGE)
        package.check()
        held = Received(package).held()
    return Pack(described, package.said, held.images, held.labels)


def _changed(path: Path) -> IntegrityError:
    return IntegrityError(
        f"{path} is not the one that {DESCRIPTION} names: it was changed, or did not come whole. "
        "Get the pack again from its owner."
    )


def _described(folder: Path) -> Description:
    path = folder / DESCRIPTION
    with disk_errors(path):
        if not path.is_file() or path.stat().st_size > MOST_HEADER:
            raise UsageError(f"{folder} is not a challenge pack: there is no {DESCRIPTION} in it.")
        text = path.read_bytes()
    try:
        described = Description.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(f"{path} does not describe a challenge: {fault_of(error)}.") from None
    if described.own_id != described.id:
        raise IntegrityError(
            f"{path} does not have the id that it gives: it was edited. Get the pack again from "
            "its owner."
        )
    return described


def flaw(name: str, tensor: Tensor, shape: tuple[int, ...]) -> str | None:
    """Why an array is not finite float32 of this shape, or None."""
    if tuple(tensor.shape) != shape or tensor.dtype != torch.float32:
        kind = str(tensor.dtype).removeprefix("torch.")
        return f"`{name}` {list(tensor.shape)} {kind}, and not {list(shape)} float32"
    return None if bool(tensor.isfinite().all()) else f"`{name}` with values that are not finite"
