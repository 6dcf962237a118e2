"""What leaves the owner, and what stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.api.data import Samples
from harness.api.knowledge import ReleaseKind
from harness.api.randomness import Stream

if TYPE_CHECKING:
    from pydantic import BaseModel
    from torch import Tensor, nn


@dataclass(frozen=True)
class Secrets:
    """What the owner keeps of one round of encoding.

    `weights` [n, k] float32 and `sources` [n, k] int64 describe the mixture of each encoding,
    its primary image first; sources count private images from 0, and public ones from
    n_private on. `extra` is whatever else the defense would have to hide (noise, say), a row
    each; a defense that hides signs keeps its `masks` there, [n, ceil(d/8)] uint8: value j of an
    encoding is flipped where `numpy.unpackbits(masks[i])[j]` is 1.
    """

    weights: Tensor
    sources: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Encoded:
    """One round: `images` [n, *shape] and soft `labels` [n, classes] are released.

    `resolved` holds config fields as they turned out on the data (a calibrated noise radius,
    say): the defense rebuilt with them encodes by the same law. They are public.
    """

    images: Tensor
    labels: Tensor
    secrets: Secrets
    resolved: Mapping[str, float | int | str] = field(default_factory=dict)

    def __getitem__(self, index: slice | Tensor) -> Encoded:
        """Some of the rows, in the order asked for."""
        kept = self.secrets
        extra = {name: values[index] for name, values in kept.extra.items()}
        secrets = Secrets(kept.weights[index], kept.sources[index], extra)
        return Encoded(self.images[index], self.labels[index], secrets, self.resolved)


@dataclass(frozen=True)
class Round:
    """A round of encoding under way: what its rows have in common is drawn already.

    `rows` makes the rows [b] int64 that it is asked for, each of them once in a round, and may
    read on in the round's stream as it goes: the same rows in the same order are the same bytes,
    in whatever pieces they are asked for. `resolved` is the round's, that of its pieces is empty.
    """

    shape: tuple[int, ...]
    """Of one encoding."""
    rows: Callable[[Tensor], Encoded]
    resolved: Mapping[str, float | int | str] = field(default_factory=dict)


GUARANTEE = "guarantee."
"""Prefix, among resolved parameters, of what a defense proves of its release."""
Guarantee = Mapping[str, float | int | str]
"""What is proven of a release, in plain values: `epsilon`, `delta`, the `adjacency` in words, the
`mechanism` with its `sensitivity` and `noise`, and the `assumptions` that it rests on."""


@dataclass(frozen=True)
class Measured:
    """What a defense makes of many images at once, on the owner's side. All of it leaves.

    `sums` [classes, q] of what `StatisticsDefense.embed` makes of each class's images, with normal
    noise of deviation `noise` on every number, and `counts` [classes] of images, with noise of
    `count_noise`, 0 where class sizes are public. `basis` are tensors that `embed` needs, made from
    public images alone.
    """

    sums: Tensor
    counts: Tensor
    noise: float
    count_noise: float
    basis: Mapping[str, Tensor]
    guarantee: Guarantee


@dataclass(frozen=True)
class Statistics:
    """The same in the hands of whoever it was released to: a learner or an attack.

    `through` is the defense's `embed`.
    """

    sums: Tensor
    counts: Tensor
    noise: float
    count_noise: float
    basis: Mapping[str, Tensor]
    through: Callable[[Tensor, Mapping[str, Tensor]], Tensor]

    def embed(self, images: Tensor) -> Tensor:
        """[b, q] that would be summed of standardised images [b, *shape]."""
        return self.through(images, self.basis)


@dataclass(frozen=True)
class Release:
    """What leaves (`tensors`, by channel name) and what the owner keeps (`secrets`).

    - encodings: tensors `encodings` [T,n,*shape], `labels` [T,n,classes];
      secrets `weights`, `sources` [T,n,k] and what the defense keeps
    - features: tensors `features` [n,...] and the encoder's state as `feature_encoder.*`
    - gradients: tensors `gradients.*` [batches,*shape], the model's state as `model.*`;
      secrets `batch_labels` [batches,b,classes], `batch_inputs`, `bn_statistics.*`, and
      `weights`, `sources` [batches,b,k] of mixed batches
    - updates: tensors `updates.*` [parties,*shape], the state of the model that was sent as
      `model.*`; secrets `batch_labels`, `batch_inputs`, `weights`, `sources` as of gradients, a
      batch being all images that a party trained on
    - statistics: tensors `statistics.*` as `Measured` names them; secret `batch_labels`
      [1,n,classes], in the order of the images

    `resolved` is public: the parameters as they turned out, by defense name.
    """

    kind: ReleaseKind
    tensors: Mapping[str, Tensor]
    secrets: Mapping[str, Tensor]
    resolved: Mapping[str, Mapping[str, float | int | str]]
    facts: Mapping[str, float | int | str] = field(default_factory=dict)


Infer = Callable[["nn.Module", "Tensor", Samples, Samples, Stream], "Tensor"]


class Encoder:
    """A stack's encoding defense in the attacker's hands: the law is known, the secrets are not."""

    def __init__(
        self,
        name: str,
        config: BaseModel,
        encode: Callable[[Samples, Samples, Stream], Encoded],
        infer: Infer | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.infer = infer
        """The defense's own inference, which encodes what is asked about; None where it asks
        plainly. Called as `infer(model, images, partners, public, rng)`: whoever has no private
        images mixes in others."""
        self._encode = encode

    def encode(self, samples: Samples, public: Samples, rng: Stream) -> Encoded:
        """Encode the attacker's own standardised images by the owner's law.

        Labels end with the last class that occurs, and so may be fewer than `View.classes`.
        """
        return self._encode(samples, public, rng)
