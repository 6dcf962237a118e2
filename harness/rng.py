"""Randomness by named axis.

A stream's key is SHA-256 over its parent's key and its axes, so a new defense, attack or image
moves nobody else's numbers. From a key, bytes come out of SHAKE-256, and bulk normal noise out of
AES-256 in counter mode (`harness.normals`): both are cryptographic.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import Tensor

    from harness.api import Stream

Axis = str | int


def derive(key: bytes, axes: dict[str, Axis]) -> bytes:
    """The key of the stream that `axes` name under `key`."""
    text = json.dumps(axes, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(key + text.encode()).digest()


def board_key(seed: int) -> bytes:
    """The root of all public randomness of one seed."""
    return derive(b"encoding-harness board", {"seed": seed})


def owner_key(seed: int, secret: bytes | None) -> bytes:
    """The root of what a defense keeps secret: from the owner's key where one is given.

    Without one it is derived from the seed, so that anyone can repeat a benchmark.
    """
    return derive(b"encoding-harness owner" + (secret or b""), {"seed": seed})


class KeyedStream:
    """The engine's `Stream`. Two streams with one key give the same values, anywhere."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self._reads = 0

    def stream(self, **axes: Axis) -> KeyedStream:
        """An independent stream named by axes; does not move this one."""
        return KeyedStream(derive(self.key, axes))

    def bytes(self, count: int) -> bytes:
        """Random bytes of a fresh SHAKE-256 block, one per call."""
        self._reads += 1
        block = self.key + self._reads.to_bytes(8, "little")
        return hashlib.shake_256(block).digest(count)

    def _words(self, count: int) -> Tensor:
        import torch

        return torch.frombuffer(bytearray(self.bytes(8 * count)), dtype=torch.int64)

    def uniform(self, *shape: int) -> Tensor:
        """float64 in [0,1), 53 bits each."""
        words = self._words(math.prod(shape)) & ((1 << 53) - 1)
        return (words.double() / (1 << 53)).view(shape)

    def permutation(self, n: int) -> Tensor:
        """A uniform permutation of 0..n-1: the order of n random 64-bit words."""
        return self._words(n).argsort(stable=True)

    def integers(self, high: int, *shape: int) -> Tensor:
        """Uniform int64 in 0..high-1; the bias of 53-bit scaling is below high/2^53."""
        return (self.uniform(*shape) * high).long().clamp_(max=high - 1)

    def signs(self, *shape: int) -> Tensor:
        """Fair int8 signs, one bit each."""
        import numpy as np
        import torch

        count = math.prod(shape)
        bits = np.unpackbits(np.frombuffer(self.bytes(-(-count // 8)), dtype=np.uint8))[:count]
        return torch.from_numpy(bits.view(np.int8) * np.int8(2) - np.int8(1)).view(shape)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal float32, expanded from a fresh key by AES-256."""
        return self.normal_later(*shape)()

    def normal_later(self, *shape: int) -> Callable[[], Tensor]:
        """What `normal` would give: keyed now, expanded when called, in any thread."""
        import torch

        from harness.normals import KEY_BYTES, standard_normal

        key = self.bytes(KEY_BYTES)

        def expand() -> Tensor:
            return torch.from_numpy(standard_normal(key, math.prod(shape))).view(shape)

        return expand

    def seed(self) -> int:
        """A 63-bit seed."""
        return int.from_bytes(self.bytes(8), "little") >> 1

    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """A torch generator seeded from the stream."""
        import torch

        generator = torch.Generator(device)
        generator.manual_seed(self.seed())
        return generator


@contextmanager
def seeded(stream: Stream, device: torch.device) -> Iterator[None]:
    """Torch's global generators, seeded from `stream` inside and put back afterwards."""
    import torch

    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(stream.seed())
        if cuda:
            torch.cuda.manual_seed(stream.seed())
        yield


def public_stream(seed: int) -> KeyedStream:
    """All public randomness of one seed."""
    return KeyedStream(board_key(seed))


def secret_stream(seed: int, secret: bytes | None) -> KeyedStream:
    """All randomness of an owner."""
    return KeyedStream(owner_key(seed, secret))


def make_deterministic(threads: int) -> None:
    """Fixed thread count, and the deterministic form of every operation that has one."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("warn")
