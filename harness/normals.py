"""Standard normal numbers from a key, in bulk: AES-256 in counter mode, then Box and Muller.

The cipher gives 32 random bits for the length of each pair of numbers and 32 for its angle. What
follows uses nothing but additions, products, square roots and conversions, one at a time and each
rounded as IEEE 754 says, so that a key gives the same bits on every machine. NumPy's own
logarithm, sine and cosine, or a ziggurat's tables in C, would give others where the processor or
the compiler is another.
"""

from __future__ import annotations

import math
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint32]
    Floats = NDArray[np.float32]

KEY_BYTES = 32
_PAIRS = 1 << 15
"""Pairs worked on at a time: a megabyte in all. Another number gives other bits to a key."""

_IN_TURN = Lock()
"""Threads that expand at once hand the interpreter's lock to and fro at every step, and together
take longer than one after the other does."""

# Least maximum error in float32's reach, found by reweighted least squares at Chebyshev's nodes:
# sin(πt/2)/t and cos(πt/2) by powers of t² for t in [-1, 1], within 4e-9 and 5e-8; and
# -2 ln(1 + x)/x by powers of x for 1 + x in [√½, √2], within 7e-8.
_SINE_AND_COSINE = np.array(
    [
        (1.57079630, 0.999999953),
        (-0.645963419, -1.23369821),
        (0.0796886667, 0.253650745),
        (-0.00467245491, -0.0208106275),
        (0.000150915316, 0.000858190604),
    ],
    np.float32,
)[:, :, None]
_LOGARITHM = np.array(
    [
        -1.99999964,
        1.00001298,
        -0.66672293,
        0.49919889,
        -0.39747545,
        0.3465647,
        -0.32829437,
        0.20221909,
    ],
    np.float32,
)[:, None]
_ROOT_HALF = np.float32(math.sqrt(0.5)).view(np.int32)
_EXPONENT = np.int32(23)


def standard_normal(key: bytes, count: int) -> Floats:
    """`count` float32 that the 32 bytes of `key` expand to; none is beyond ±6.8.

    Two keys give independent numbers for whoever holds neither: the bits are a cipher's.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    keystream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    values = np.empty(count, np.float32)
    with _IN_TURN:
        scratch = _Scratch(0)
        for start in range(0, count, 2 * _PAIRS):
            left = count - start
            if (size := min(_PAIRS, -(-left // 2))) != scratch.pairs:
                scratch = _Scratch(size)
            keystream.update_into(scratch.zeros, scratch.words.data.cast("B"))
            values[start : start + 2 * _PAIRS] = scratch.normal()[:left]
    return values


class _Scratch:
    """The memory in which a piece of so many pairs is worked out."""

    def __init__(self, pairs: int) -> None:
        self.pairs = pairs
        self.zeros, self.words = bytes(8 * pairs), np.empty((2, pairs), "<u4")
        self._pairs = np.empty((2, pairs), np.float32)
        self._length, self._power, self._square = np.empty((3, pairs), np.float32)
        self._bits = np.empty(pairs, np.int32)

    def normal(self) -> Floats:
        """Two normal numbers from each column of `words`."""
        lengths, angles = self.words
        length = self._lengths(lengths)
        pairs = self._directions(angles)
        pairs *= length
        return pairs.reshape(-1)

    def _lengths(self, words: Words) -> Floats:
        """√(-2 ln u) for u = words / 2³², or half of one where the word is 0."""
        length, power, bits = self._length, self._power, self._bits
        np.copyto(length, words, casting="same_kind")
        np.maximum(length, np.float32(0.5), out=length)
        # length = 2^e · (1 + x), with 1 + x between √½ and √2
        as_bits = length.view(np.int32)
        np.subtract(as_bits, _ROOT_HALF, out=bits)
        np.right_shift(bits, _EXPONENT, out=bits)
        np.copyto(power, bits, casting="same_kind")
        np.left_shift(bits, _EXPONENT, out=bits)
        as_bits -= bits
        length -= np.float32(1)
        result = _polynomial(_LOGARITHM, length, self._square)
        result *= length
        power -= np.float32(32)
        power *= np.float32(-2 * math.log(2))
        result += power
        np.maximum(result, np.float32(0), out=result)
        return np.sqrt(result, out=length)

    def _directions(self, words: Words) -> Floats:
        """A point of the circle for each word, [2, n]; the last bit is the sign of its cosine."""
        angle, square, pairs = self._power, self._square, self._pairs
        np.copyto(angle, words.view(np.int32), casting="same_kind")
        angle *= np.float32(2**-31)
        np.multiply(angle, angle, out=square)
        sine, cosine = _polynomial(_SINE_AND_COSINE, square, pairs)
        sine *= angle
        signs = np.left_shift(words, np.uint32(31), out=self._bits.view(np.uint32))
        bits = cosine.view(np.uint32)
        bits ^= signs
        return pairs


def _polynomial(coefficients: Floats, x: Floats, out: Floats) -> Floats:
    """Σ c_i x^i into `out`, which has a row for each column of `coefficients`, or is one row."""
    first, *between, last = coefficients
    np.multiply(x, last, out=out)
    for coefficient in reversed(between):
        out += coefficient
        out *= x
    out += first
    return out
