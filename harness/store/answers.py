"""Answers that a board keeps: what an attack brought back of few targets, in eight bits a value.

They are small enough to lie in a repository, and enough to judge them again. Torch is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.api.errors import IntegrityError
from harness.store.reading import read_plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TARGETS = 32
"""Judged targets of a cell that are kept, at most."""
BOARD, CELL = 6_000_000, 200_000
"""Bytes of all answers of a board, and of one, at most: one more row rewrites no other."""
LEVELS = 255
"""Steps from the lowest value to the highest."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What was judged of a record's first k targets.

    `images` [k, c, h, w] uint8 stand for values from `low` to `high` [k] float32: from 0 to 1 for
    images, as far as its values reach for features. `found` [k] uint8 is 0 where there was nothing,
    and the best guess was scored. `images_abs` are those that metrics on absolute values looked at,
    where these were others.
    """

    images: NDArray[np.uint8]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    found: NDArray[np.uint8]
    images_abs: NDArray[np.uint8] | None = None

    @classmethod
    def of(
        cls,
        images: NDArray[np.float32],
        found: NDArray[Any],
        images_abs: NDArray[np.float32] | None = None,
    ) -> Answer:
        """Rounded."""
        import numpy as np

        both = [images, *([] if images_abs is None else [images_abs])]
        flat = np.concatenate([each.reshape(len(images), -1) for each in both], axis=1)
        low, high = flat.min(1), flat.max(1)
        if low.min() >= 0 and high.max() <= 1:
            low, high = np.zeros_like(low), np.ones_like(high)
        high = np.where(high > low, high, low + 1)
        span = _down(low, images), _down(high, images)
        rounded = [np.rint((x - span[0]) / (span[1] - span[0]) * LEVELS) for x in both]
        whole = [each.astype(np.uint8) for each in rounded]
        return cls(
            images=whole[0],
            low=low.astype(np.float32),
            high=high.astype(np.float32),
            found=found.astype(np.uint8),
            images_abs=whole[1] if images_abs is not None else None,
        )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def values(self) -> NDArray[np.float32]:
        """[k, c, h, w]: what the images stand for."""
        return self._values(self.images)

    @property
    def values_abs(self) -> NDArray[np.float32] | None:
        """Likewise of absolute values, where they are others."""
        return None if self.images_abs is None else self._values(self.images_abs)

    @property
    def half_step(self) -> NDArray[np.float32]:
        """[k, 1, 1, 1]: the most that rounding moved a value by."""
        return _down((self.high - self.low) / (2 * LEVELS), self.images)

    def _values(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        import numpy as np

        low, high = _down(self.low, images), _down(self.high, images)
        found: NDArray[np.float32] = (low + images / LEVELS * (high - low)).astype(np.float32)
        return found

    def first(self, count: int) -> Answer:
        """Of fewer targets."""
        return Answer(
            images=self.images[:count],
            low=self.low[:count],
            high=self.high[:count],
            found=self.found[:count],
            images_abs=None if self.images_abs is None else self.images_abs[:count],
        )

    def to_bytes(self) -> bytes:
        """As a safetensors file."""
        from safetensors.numpy import save

        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        return save({name: part for name, part in parts.items() if part is not None})


def bytes_of(images: NDArray[Any], images_abs: NDArray[Any] | None) -> int:
    """What one target takes."""
    return int(images[0].size) * (1 if images_abs is None else 2)


def read_answer(path: Path) -> Answer:
    """IntegrityError where a file is no such answer."""
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import load

    data = read_plain(path, BOARD)
    try:
        found = Answer(**load(data))
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise IntegrityError(f"{path} is no answer that is kept: {error}.") from None
    count, images = len(found.images), (found.images, found.images_abs)
    ranges, whole = (found.low, found.high), found.images.ndim == 4 and count > 0
    if not (
        whole
        and all(
            x is None or (x.dtype == np.uint8 and x.shape == found.images.shape) for x in images
        )
        and all(x.dtype == np.float32 and x.shape == (count,) for x in ranges)
        and found.found.dtype == np.uint8
        and found.found.shape == (count,)
        and np.isfinite(ranges).all()
        and (found.high > found.low).all()
    ):
        raise IntegrityError(f"{path} is no answer that is kept: its tensors are of other shapes.")
    return found


def _down(column: NDArray[Any], images: NDArray[Any]) -> NDArray[Any]:
    """[k] as [k, 1, 1, 1], for each of `images`."""
    return column.reshape(-1, *[1] * (images.ndim - 1))
