"""Where plugins get their randomness: a stream that is handed to them, never global state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor


class Stream(Protocol):
    """A keyed stream, reproducible for whoever holds its key. Each call reads on.

    Everything but `generator` comes from a cryptographic stream: SHAKE-256, and for `normal`
    AES-256 under a key drawn from that. All tensors are made on the CPU, the same on any device
    and any machine.
    """

    def stream(self, **axes: str | int) -> Stream:
        """An independent stream named by axes; does not move this one."""
        ...

    def bytes(self, count: int) -> bytes:
        """Random bytes."""
        ...

    def uniform(self, *shape: int) -> Tensor:
        """float64 in [0,1), 53 bits each."""
        ...

    def permutation(self, n: int) -> Tensor:
        """A uniform permutation of 0..n-1, int64."""
        ...

    def integers(self, high: int, *shape: int) -> Tensor:
        """Uniform int64 in 0..high-1."""
        ...

    def signs(self, *shape: int) -> Tensor:
        """Fair int8 signs, ±1."""
        ...

    def normal(self, *shape: int) -> Tensor:
        """Standard normal float32, in bulk."""
        ...

    def normal_later(self, *shape: int) -> Callable[[], Tensor]:
        """What `normal` would give, made when called: several may be called in parallel.

        Moves this stream now, as `normal` does, so that neither order nor threads matter.
        """
        ...

    def seed(self) -> int:
        """A 63-bit seed, for libraries that want one."""
        ...

    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """A torch generator seeded from the stream: for shuffling and initial weights."""
        ...
