"""Images and labels as they move between stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Scale:
    """A dataset's per-channel mean and deviation, on images in [0,1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def _pair(self, images: Tensor) -> tuple[Tensor, Tensor]:
        shape = (-1, 1, 1)
        mean, std = images.new_tensor(self.mean), images.new_tensor(self.std)
        return mean.view(shape), std.view(shape)

    def standardise(self, images: Tensor) -> Tensor:
        """Float images [..., c, h, w] in [0,1] to zero mean and unit deviation."""
        mean, std = self._pair(images)
        return (images - mean) / std

    def restore(self, images: Tensor) -> Tensor:
        """Standardised images back to [0,1], without clamping."""
        mean, std = self._pair(images)
        return images * std + mean

    def clamp(self, images: Tensor) -> Tensor:
        """Standardised images held to the range that [0,1] becomes."""
        mean, std = self._pair(images)
        return images.clamp(min=-mean / std, max=(1 - mean) / std)


@dataclass(frozen=True)
class Samples:
    """Images [n, c, h, w] with hard labels [n] int64.

    From a dataset, images are uint8, or float32 in [0,1]. Defenses and attacks receive them
    standardised, float32.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: slice | Tensor) -> Samples:
        return Samples(self.images[index], self.labels[index])

    def map(self, change: Callable[[Tensor], Tensor]) -> Samples:
        """The same labels with changed images."""
        return Samples(change(self.images), self.labels)

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
