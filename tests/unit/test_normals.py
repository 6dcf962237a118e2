"""Normal numbers from a key: a cipher's bits, turned by nothing but exact arithmetic."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from harness.normals import standard_normal

KEY = bytes(range(32))
PIECE = 1 << 15
"""Pairs of a piece."""


def words(key: bytes, count: int) -> np.ndarray:
    """What AES-256 in counter mode gives, as 32-bit words."""
    keystream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(keystream.update(bytes(4 * count)), "<u4")


def box_muller(lengths: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Sines, then cosines, in float64 by NumPy's own functions."""
    u = np.maximum(lengths.astype(float), 0.5) / 2**32
    angle = angles.astype(np.int32) / 2**31 * np.pi / 2
    length = np.sqrt(-2 * np.log(u))
    cosine = np.where(angles & 1, -1, 1) * np.cos(angle)
    return np.concatenate([length * np.sin(angle), length * cosine])


@pytest.mark.parametrize("count", [1, 2, 1001, 2 * PIECE, 2 * PIECE + 7])
def test_they_are_box_and_mullers_of_the_ciphers_bits(count: int) -> None:
    drawn, wanted = words(KEY, 2 * count + 2), []
    for start in range(0, count, 2 * PIECE):
        pairs = min(PIECE, -(-(count - start) // 2))
        wanted.append(box_muller(*drawn[start : start + 2 * pairs].reshape(2, pairs)))
    found = standard_normal(KEY, count)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.concatenate(wanted)[:count], atol=2e-4, rtol=1e-6)


@pytest.mark.numeric
def test_a_key_gives_the_same_bits_with_other_instructions() -> None:
    """As first computed on a processor with AVX-512; other instructions must not change them."""
    digest = hashlib.sha256(standard_normal(KEY, 100_000).tobytes()).hexdigest()
    assert digest.startswith("1548dc2e28a50296")


def test_they_are_normal() -> None:
    values = standard_normal(hashlib.sha256(b"normal").digest(), 4_000_000)
    assert stats.kstest(values, "norm").pvalue > 1e-4
    assert abs(stats.kurtosis(values)) < 0.02
    for beyond in (3, 4):
        count, expected = (abs(values) > beyond).sum(), 2 * stats.norm.sf(beyond) * values.size
        assert abs(count - expected) < 4 * expected**0.5
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.003


def test_another_key_gives_other_numbers() -> None:
    one, other = (standard_normal(bytes([b]) * 32, 100_000) for b in (1, 2))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.015


def test_the_longest_is_that_of_half_a_word() -> None:
    """√(-2 ln 2^-33), along either axis."""
    values = standard_normal(hashlib.sha256(b"long").digest(), 4_000_000)
    assert 5 < abs(values).max() <= box_muller(np.zeros(1, np.uint32), np.zeros(1, np.uint32)).max()


def test_none_are_asked_for() -> None:
    assert standard_normal(KEY, 0).shape == (0,)
