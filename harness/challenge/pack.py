"""The public part of a challenge: what it says, and whether it is what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from harness.api import IntegrityError, Scale, UsageError
from harness.challenge import DESCRIPTION, ENCODINGS, HASHED
from harness.store.files import read_tensors, sha256_of_file
from harness.store.paths import disk_errors
from harness.store.provenance import sha256_of

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=1, le=2**31)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Deviation = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Part(BaseModel):
    # Infinity stays what it is, so that it has no canonical text: else it would pass for null.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Named(_Part):
    """A plugin as it was used. `config` is None where it is nobody's business but the owner's."""

    name: str
    version: str
    config: dict[str, Any] | None


class Pool(_Part):
    """Which images are surely not private, for whoever has the datasets.

    Drawn by the harness with `seed` from what is left of the dataset's training images, half of
    which are set aside for private ones to be among; or from another `dataset`, if one is named.
    `sha256` is over the images' bytes, uint8 or float32 [images, c, h, w].
    """

    dataset: Named | None
    images: int = Field(ge=0)
    seed: int = Field(ge=0)
    sha256: Digest


class Checks(_Part):
    """What holds of the encodings and their truth and can be recomputed from it.

    `labels`: they are the private images' labels times their weights. `encodings`: they are the
    mixture of the private images, or its absolute values; no augmentation, noise or public image.
    """

    labels: bool
    encodings: Literal["values", "absolute values", "no"]


class Statement(_Part):
    """All that a pack says, but for what commits its owner."""

    format: Literal["encoding challenge"] = "encoding challenge"
    version: Literal[1] = 1
    defense: Named
    dataset: Named
    public: Pool
    private: Count
    rounds: Count
    shape: tuple[Count, Count, Count]
    encoded_shape: tuple[Count, ...]
    classes: tuple[str, ...] = Field(min_length=1)
    mean: tuple[Finite, ...]
    std: tuple[Deviation, ...]
    checks: Checks
    files: dict[str, Digest]

    @property
    def scale(self) -> Scale:
        """How images were standardised."""
        return Scale(self.mean, self.std)

    @property
    def digest(self) -> str:
        """SHA-256 of the statement as canonical JSON: what an opening says it opens."""
        return sha256_of(self.model_dump(mode="json", include={*Statement.model_fields}))


class Description(Statement):
    """`challenge.json`. `id` is the SHA-256 of all the rest as canonical JSON."""

    commitment: Digest
    id: Digest

    @property
    def own_id(self) -> str:
        """What `id` must be."""
        return sha256_of(self.model_dump(mode="json", exclude={"id"}))


@dataclass(frozen=True)
class Pack:
    """A pack that was read and is intact.

    `encodings` [rounds, n, *encoded shape] and `labels` [rounds, n, classes], float32.
    """

    described: Description
    encodings: Tensor
    labels: Tensor


def describe(statement: Statement, commitment: str) -> Description:
    """A statement with the commitment to its truth."""
    values = {name: getattr(statement, name) for name in Statement.model_fields}
    unsealed = Description(**values, commitment=commitment, id="0" * 64)
    return unsealed.model_copy(update={"id": unsealed.own_id})


def read_pack(folder: Path) -> Pack:
    """A pack, every byte of it checked.

    UsageError where a file is missing or is not what it should be, IntegrityError where one is
    not what the description says.
    """
    described = _described(folder)
    for name in HASHED:
        if sha256_of_file(folder / name, "file of the pack") != described.files.get(name):
            raise IntegrityError(
                f"{folder / name} does not have the hash that {DESCRIPTION} gives: it was changed, "
                "or did not come whole. Get the pack again from its owner."
            )
    tensors = read_tensors(folder / ENCODINGS, "file of the pack")
    problem = _problem(tensors, described)
    if problem:
        raise IntegrityError(f"{folder / ENCODINGS} has {problem}: the pack was not made so.")
    return Pack(described, tensors["encodings"], tensors["labels"])


def _described(folder: Path) -> Description:
    path = folder / DESCRIPTION
    with disk_errors(path):
        if not path.is_file():
            raise UsageError(f"{folder} is not a challenge pack: there is no {DESCRIPTION} in it.")
        text = path.read_bytes()
    try:
        described = Description.model_validate_json(text)
        edited = described.own_id != described.id
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        reason = ": ".join(filter(None, (".".join(map(str, fault["loc"])), fault["msg"])))
        raise UsageError(f"{path} does not describe a challenge: {reason}.") from None
    except ValueError as error:  # a number or a character that JSON has no canonical text for
        raise UsageError(f"{path} does not describe a challenge: {error}.") from None
    if edited:
        raise IntegrityError(
            f"{path} does not have the id that it gives: it was edited. Get the pack again from "
            "its owner."
        )
    return described


def _problem(tensors: Mapping[str, Tensor], described: Description) -> str | None:
    """How the arrays differ from what is said of them."""
    rows = (described.rounds, described.private)
    wanted = {
        "encodings": (*rows, *described.encoded_shape),
        "labels": (*rows, len(described.classes)),
    }
    if len(described.mean) != described.shape[0] or len(described.std) != described.shape[0]:
        return f"images of {described.shape[0]} channels, but not as many means and deviations"
    if set(tensors) != set(wanted):
        return f"arrays named {', '.join(sorted(tensors)) or 'nothing'}"
    return next(filter(None, (flaw(n, tensors[n], shape) for n, shape in wanted.items())), None)


def flaw(name: str, tensor: Tensor, shape: tuple[int, ...]) -> str | None:
    """Why an array is not finite float32 of this shape, or None."""
    if tuple(tensor.shape) != shape or tensor.dtype != torch.float32:
        kind = str(tensor.dtype).removeprefix("torch.")
        return f"`{name}` {list(tensor.shape)} {kind}, and not {list(shape)} float32"
    return None if bool(tensor.isfinite().all()) else f"`{name}` with values that are not finite"
