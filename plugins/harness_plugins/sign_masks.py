"""One-time signs: a bit for every value of every encoding."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from harness_plugins.random_rows import RandomRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from harness.api import Stream

# Values whose signs are unpacked at a time: they and their images fit a core's second-level cache.
_BLOCK = 1 << 17
_SIGN = np.uint32(31)  # place of the sign in a float32
# Values whose masks are drawn at a time: 256 KB.
_DRAWN = 1 << 21
_WORD = 4  # bytes that a Mersenne twister gives at once: blocks of whole words join without a gap

Prng = Literal["shake256", "mt19937"]


def draw_masks(n: int, values: int, rng: Stream, prng: Prng) -> Tensor:
    """[n, ceil(values/8)] uint8 of fair bits, a row for each encoding; a set bit flips a sign.

    `numpy.unpackbits(row, count=values)` gives them in the order of the values. shake256: bytes
    of the stream itself. mt19937: bytes of NumPy's `RandomState(seed)`, its 32-bit seed the
    next four bytes of the stream, little-endian.
    """
    return _packed(_source(rng, prng), n, values)


def masks_in_turn(n: int, values: int, rng: Stream, prng: Prng) -> RandomRows:
    """The masks of a round of n encodings: `draw_masks`, a block of them at a time.

    One seed of mt19937 serves them all, block after block.
    """
    source = _source(rng, prng)
    block = max(1, min(n, _DRAWN // max(1, values) // _WORD * _WORD))

    def draw(_number: int) -> Callable[[], Tensor]:
        drawn = _packed(source, block, values)
        return lambda: drawn

    return RandomRows(block, draw)


def _source(rng: Stream, prng: Prng) -> Callable[[int], bytes]:
    if prng == "shake256":
        return rng.bytes
    return np.random.RandomState(int.from_bytes(rng.bytes(4), "little")).bytes


def _packed(source: Callable[[int], bytes], n: int, values: int) -> Tensor:
    width = -(-values // 8)
    return torch.from_numpy(np.frombuffer(bytearray(source(n * width)), np.uint8)).view(n, width)


def flip_signs(images: Tensor, masks: Tensor) -> None:
    """Flip in place the signs of contiguous float32 images [n, *shape] whose bits are set."""
    rows = images.view(len(images), -1)
    if images.device.type == "cpu":
        _flip_in_cache(rows.numpy().view(np.uint32), masks.numpy())
    else:
        _flip_on_device(rows, masks)


def _flip_in_cache(rows: NDArray[np.uint32], masks: NDArray[np.uint8]) -> None:
    """Blocks of rows over as many threads as torch has; NumPy lets them run side by side."""
    values = rows.shape[1]
    step = max(1, _BLOCK // max(1, values))

    def flip(start: int) -> None:
        block = slice(start, start + step)
        signs = np.unpackbits(masks[block], axis=1, count=values).astype(np.uint32)
        signs <<= _SIGN
        rows[block] ^= signs

    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        list(threads.map(flip, range(0, len(rows), step)))


def _flip_on_device(rows: Tensor, masks: Tensor) -> None:
    """The same by torch alone, in blocks that stay small beside the images."""
    places = torch.arange(7, -1, -1, dtype=torch.uint8, device=rows.device)
    step = max(1, (1 << 24) // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        bits = masks[block].to(rows.device)[:, :, None].bitwise_right_shift(places) & 1
        rows[block] *= 1 - 2 * bits.flatten(1)[:, : rows.shape[1]].float()
