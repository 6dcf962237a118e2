"""What no attack exceeds: the base class of ceilings, and all that they are given and give back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.api.data import Samples, SamplesOnDemand, Scale
from harness.api.law import Law
from harness.api.plugins import C, Plugin, Progress, Table
from harness.api.randomness import Stream

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class OwnersView:
    """All that a ceiling may look at. It never leaves the owner.

    Images are standardised, float32.
    """

    defense: str
    """As written."""
    law: Law | None
    """None where the defense states none."""
    weights: Tensor
    """[rounds, n, k] of all rows."""
    sources: Tensor
    """[rounds, n, k] int64: private images from 0, public ones from n on."""
    private: SamplesOnDemand
    targets: int
    """The first of the private images: those that attacks are judged on."""
    public: Samples
    subjects: Tensor | None
    """[n + public] int64: whom each image shows, -1 nobody; None where the dataset has none."""
    public_alike: bool
    """Whether public images are drawn at random from where the private ones are."""
    scale: Scale
    scale_measured: bool
    """Whether the scale was measured on images that private ones are among."""
    shape: tuple[int, ...]
    """Of one encoding."""
    device: torch.device
    rng: Stream

    @property
    def rounds(self) -> int:
        """How often each image was encoded."""
        return len(self.weights)


@dataclass(frozen=True)
class Quantity:
    """A number that is proven, with its 95% interval where it is estimated."""

    value: float
    interval: tuple[float, float] | None = None
    detail: str = ""
    """Of what: how many candidates, which δ."""


@dataclass(frozen=True)
class Bound:
    """What no attack exceeds, by name, under assumptions that are stated in words.

    `errors` are, by the name of a pooled signal-to-noise ratio, the squared errors of each target
    [targets], NaN where it was left out: no single attack that names its targets has a lower mean.
    """

    quantities: Mapping[str, Quantity]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...] = ()
    vacuous: tuple[str, ...] = ()
    """Quantities that hold and say nothing here; `notes` say why."""
    tables: tuple[Table, ...] = ()
    errors: Mapping[str, Tensor] = field(default_factory=dict)


class Ceiling(Plugin[C]):
    """Says what a defense's law allows at most, on the owner's side."""

    @abstractmethod
    def bound(self, view: OwnersView, progress: Progress) -> Bound | str:
        """The bound; or why there is none, and what to give instead where something would do."""
