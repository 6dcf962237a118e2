"""Images and labels as they move between stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Scale:
    """Per-channel mean and deviation, and the range of valid values.

    Images are held in [0,1]; features of a space, and synthetic vectors, have no bounds (None).
    Where a docstring says "in [0,1]", values of this range are meant.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    low: float | None = 0.0
    high: float | None = 1.0

    @property
    def of_images(self) -> bool:
        """Whether the values are brightnesses, which image metrics and pictures are made for."""
        return (self.low, self.high) == (0.0, 1.0)

    def _pair(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation, on the channel axis of samples [..., c, h, w]."""
        mean, std = (images.new_tensor(values).view(-1, 1, 1) for values in self._apart)
        return mean, std

    @cached_property
    def _apart(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """One mean and one deviation where channels do not differ: features have thousands."""
        alike = len(set(self.mean)) == len(set(self.std)) == 1
        return (self.mean[:1], self.std[:1]) if alike else (self.mean, self.std)

    def standardise(self, images: Tensor) -> Tensor:
        """Float images [..., c, h, w] in [0,1] to zero mean and unit deviation."""
        mean, std = self._pair(images)
        return (images - mean).div_(std)

    def restore(self, images: Tensor) -> Tensor:
        """Standardised images back to [0,1], without clamping."""
        mean, std = self._pair(images)
        return images * std + mean

    def within(self, images: Tensor) -> Tensor:
        """Images held to the valid range, [0,1]; as they are where there is none."""
        if self.low is None and self.high is None:
            return images
        return images.clamp(self.low, self.high)

    def clamp(self, images: Tensor) -> Tensor:
        """Standardised images held to what the valid range becomes."""
        mean, std = self._pair(images)
        low = None if self.low is None else (self.low - mean) / std
        high = None if self.high is None else (self.high - mean) / std
        return images if low is None and high is None else images.clamp(low, high)


class SamplesOnDemand(Protocol):
    """Samples that are made where they are asked for: all of them may not fit in memory.

    `Samples` are such too, ready made. `samples[:]` makes all.
    """

    @property
    def labels(self) -> Tensor:
        """[n] int64: the hard label of each."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: slice | Tensor) -> Samples:
        """Some of them, in the order asked for; not to be changed in place."""
        ...


@dataclass(frozen=True)
class Samples:
    """Images [n, c, h, w] with hard labels [n] int64.

    From a dataset, images are uint8, or float32 in [0,1]; features of a space may be float16.
    Defenses and attacks receive them standardised, float32.
    """

    images: Tensor
    labels: Tensor
    subjects: Tensor | None = None
    """[n] int64: whom each image shows, where a dataset knows. All of one stand in one split."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image."""
        return tuple(self.images.shape[1:])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: slice | Tensor) -> Samples:
        subjects = None if self.subjects is None else self.subjects[index]
        return Samples(self.images[index], self.labels[index], subjects)

    def map(self, change: Callable[[Tensor], Tensor]) -> Samples:
        """The same labels and subjects with changed images."""
        return Samples(change(self.images), self.labels, self.subjects)

    def unit(self) -> Samples:
        """Images as float32 in [0,1]."""
        return self.map(lambda x: x.float() / 255 if not x.is_floating_point() else x.float())

    def standardised(self, scale: Scale) -> Samples:
        """Images as float32, standardised."""
        return self.unit().map(scale.standardise)


@dataclass(frozen=True)
class Collection:
    """All that a dataset holds: `train` gives private and public images, `test` the rest."""

    train: Samples
    test: Samples
    scale: Scale
    classes: tuple[str, ...]
    """Names of the classes; label i is `classes[i]`."""
    reserved: Tensor | None = None
    """[n] bool: training images that are never private, and public before all others are."""

    @property
    def may_be_private(self) -> int:
        """How many training images may be private."""
        return len(self.train) - (0 if self.reserved is None else int(self.reserved.sum()))


@dataclass(frozen=True)
class Splits:
    """What one evaluation works on; disjoint by content."""

    private: Samples
    public: Samples
    test: Samples
    scale: Scale
    classes: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        _, c, h, w = self.private.images.shape
        return c, h, w
