"""What a package says of itself, and where its numbers lie in the file.

A package is a safetensors file. Its header follows from the statement byte for byte, so that
whatever says something else is no package: there is nothing in a header to be believed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, prod
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from harness.api import Scale
from harness.packages.ledger import Digest
from harness.scoring.ceilings import Proof
from harness.store.provenance import canonical_json

SCHEMA = 1
SAID = "harness.release"
"""Under which the statement stands in the header's metadata."""
FLOAT = 4
MOST_HEADER = 1 << 23
"""Bytes of a header, at most."""
MOST_VALUES = 1 << 24
"""Of one image, or of its features."""
MOST_CLASSES = 10_000
MOST_ROUNDS = 10_000
MOST_TEXT = 1000
"""Characters of one sentence of a proof."""
LEAST_STD, MOST_STD = 1e-6, 1e6
"""Deviations that images or features of them may have."""
GRAMMAR = frozenset("[],+=|")
"""Characters that a selection of plugins is written with."""
UNSEALED = "0" * 64


def _printable(text: str) -> str:
    """A name from a stranger goes to a terminal: it must not move the cursor there."""
    if not text.isprintable():
        raise ValueError("has characters that cannot be printed")
    return text


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("is an empty name")
    return text


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("has a name twice")
    return names


def _word(text: str) -> str:
    """What a stranger says is written on a command line: it must not say more than one thing."""
    if not GRAMMAR.isdisjoint(text) or text != text.strip():
        raise ValueError("has characters that separate options")
    return text


Text = Annotated[str, StringConstraints(max_length=300), AfterValidator(_printable)]
Name = Annotated[Text, AfterValidator(_name)]
Word = Annotated[Name, AfterValidator(_word)]
Names = Annotated[
    tuple[Name, ...], Field(min_length=1, max_length=MOST_CLASSES), AfterValidator(_unique)
]
"""Of classes, each another."""
Rounds = Annotated[int, Field(ge=1, le=MOST_ROUNDS, strict=True)]
Count = Annotated[int, Field(ge=1, le=2**40, strict=True)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Mean = Annotated[float, Field(ge=-MOST_STD, le=MOST_STD, allow_inf_nan=False)]
Deviation = Annotated[float, Field(ge=LEAST_STD, le=MOST_STD, allow_inf_nan=False)]
Side = Annotated[int, Field(ge=1, le=2**14, strict=True)]
Shape = Annotated[tuple[Count, ...], Field(min_length=1, max_length=8)]
Whole = Annotated[int, Field(ge=-(2**63), le=2**63)]
Scalar = bool | Whole | Finite | Text | None


def _leaves(value: Any) -> Iterator[Any]:
    parts = value.items() if isinstance(value, dict) else ((0, each) for each in value)
    for name, each in parts:
        yield name
        if isinstance(each, dict | list | tuple):
            yield from _leaves(each)
        else:
            yield each


class Part(BaseModel):
    """A part of what is said: nothing that is not known, and no number that is none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Used(Part):
    """A plugin as it was used."""

    name: Text
    version: Text
    config: dict[Text, Scalar]


class Written(Used):
    """A plugin that is named on a command line again: by whoever releases alike, or learns."""

    name: Word
    config: dict[Word, bool | Whole | Finite | Annotated[Text, AfterValidator(_word)] | None]


class Preprocessing(Part):
    """What an image goes through before it is encoded, or asked about.

    It is brought to `image` (channels, height, width), taken to the space, and standardised there
    with `mean` and `std`, a number each or one for every channel of `shape`.
    """

    image: tuple[Side, Side, Side]
    shape: tuple[Side, Side, Side]
    space: Written
    mean: tuple[Mean, ...] = Field(min_length=1, max_length=2**20)
    std: tuple[Deviation, ...] = Field(min_length=1, max_length=2**20)
    low: Finite | None
    high: Finite | None

    @model_validator(mode="after")
    def _fits(self) -> Preprocessing:
        """Nothing checks these against the size of a file, and images are made in these shapes."""
        if max(prod(self.image), prod(self.shape)) > MOST_VALUES:
            raise ValueError("images are larger than any that are known")
        if not {len(self.mean), len(self.std)} <= {1, self.shape[0]}:
            raise ValueError("there is not one mean and deviation for each channel")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError("the least value is no less than the largest")
        return self

    @property
    def scale(self) -> Scale:
        """As samples are standardised: one number for each channel."""
        channels = self.shape[0]
        mean, std = (v * channels if len(v) == 1 else v for v in (self.mean, self.std))
        return Scale(mean, std, self.low, self.high)


class Randomness(Part):
    """Where noise comes from, and what the proofs of it assume of arithmetic."""

    generator: Text = "AES-256 in counter mode, keyed by SHAKE-256; normals by Box and Muller"
    arithmetic: Text = (
        "float32 normals, none beyond 6.8 deviations; proofs take noise and sums for real numbers"
    )


class Promise(Part):
    """What each ceiling says of the images after this release and `rounds` rounds in all."""

    rounds: int = Field(ge=1, le=2**40)
    """Of any one image, those of earlier releases included."""
    ceilings: dict[Text, Proof]

    @field_validator("ceilings")
    @classmethod
    def _shown(cls, ceilings: dict[str, Proof]) -> dict[str, Proof]:
        """They go to a terminal too, and numbers that are none have no JSON."""
        for proof in ceilings.values():
            values = [*_leaves(proof.model_dump())]
            if not all(isfinite(each) for each in values if isinstance(each, float)):
                raise ValueError("holds a number that is not finite")
            for each in (text for text in values if isinstance(text, str)):
                _printable(each)
                if len(each) > MOST_TEXT:
                    raise ValueError(f"holds a sentence of more than {MOST_TEXT} characters")
        return ceilings

    @property
    def proven(self) -> bool:
        """Whether anything is."""
        return any(not proof.reason for proof in self.ceilings.values())


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: `begin` counts from the end of the header."""

    name: str
    shape: tuple[int, ...]
    begin: int

    @property
    def bytes(self) -> int:
        """How long it is."""
        return prod(self.shape) * FLOAT


class Statement(Part):
    """All that a package says. `hashes` are SHA-256 of the tensors' bytes, by name."""

    format: Literal["encodings"] = "encodings"
    schema_: Literal[1] = Field(1, alias="schema")
    version: Text
    made: Text
    release: Digest
    party: Name
    law: Written
    preprocessing: Preprocessing
    rounds: Rounds
    rows: Count
    shape: Shape
    """Of one encoding."""
    classes: Names
    randomness: Randomness
    promise: Promise
    hashes: dict[Text, Digest]
    seal: Digest

    def places(self) -> Iterator[Place]:
        """Every tensor in the order of the file: each round's encodings, then its labels."""
        begin = 0
        for round_ in range(self.rounds):
            for place in self.round(round_, begin):
                yield place
                begin += place.bytes

    def round(self, round_: int, begin: int | None = None) -> tuple[Place, Place]:
        """A round's encodings [rows, *shape] and soft labels [rows, classes], float32."""
        width, classes = prod(self.shape), len(self.classes)
        at = round_ * self.rows * (width + classes) * FLOAT if begin is None else begin
        encodings = Place(f"encodings.{round_}", (self.rows, *self.shape), at)
        labels = Place(f"labels.{round_}", (self.rows, classes), at + encodings.bytes)
        return encodings, labels

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return self.rounds * self.rows * (prod(self.shape) + len(self.classes)) * FLOAT

    def text(self) -> str:
        """The one text that stands for it."""
        return canonical_json(self.model_dump(mode="json", by_alias=True))

    def header(self) -> bytes:
        """The file up to its first tensor: eight bytes of length, then JSON, padded to eights."""
        named = {
            place.name: {
                "dtype": "F32",
                "shape": list(place.shape),
                "data_offsets": [place.begin, place.begin + place.bytes],
            }
            for place in self.places()
        }
        text = json.dumps({"__metadata__": {SAID: self.text()}, **named}, separators=(",", ":"))
        body = text.encode("ascii")
        body += b" " * (-len(body) % 8)
        return len(body).to_bytes(8, "little") + body

    def own_seal(self) -> str:
        """What `seal` must be: SHA-256 of the header that has zeros in its place."""
        return hashlib.sha256(self.model_copy(update={"seal": UNSEALED}).header()).hexdigest()

    def sealed(self, hashes: dict[str, str]) -> Statement:
        """With its tensors' hashes, and the seal over all of it."""
        whole = self.model_copy(update={"hashes": hashes})
        return whole.model_copy(update={"seal": whole.own_seal()})
