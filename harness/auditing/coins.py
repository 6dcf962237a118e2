"""Coins: which of two images of one class is private, and a run of what they chose."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from harness.api import Samples, Splits, UsageError
from harness.rng import public_stream, secret_stream
from harness.running.run import Run
from harness.running.samples import Space
from harness.store.provenance import sha256_of, source_sha256

SPARE = 100
"""Images drawn beside two for each coin: of each class one may be left over."""


@dataclass(frozen=True)
class Coins:
    """Fair coins: `pairs` [2 coins] are each one's two images, `fell` [coins] which is private."""

    pairs: Samples
    fell: Tensor

    def __len__(self) -> int:
        return len(self.fell)

    @property
    def chosen(self) -> Samples:
        """The private images, in the order of the coins."""
        return self.pairs[2 * torch.arange(len(self)) + self.fell]

    @property
    def others(self) -> Samples:
        """Those that the coins left out, likewise."""
        return self.pairs[2 * torch.arange(len(self)) + 1 - self.fell]


def toss(splits: Splits, count: int, seed: int) -> Coins:
    """So many coins over pairs of private images; UsageError where there are fewer pairs."""
    labels, found = splits.private.labels, []
    stream = public_stream(seed).stream(stage="audit")
    for c in range(len(splits.classes)):
        of = (labels == c).nonzero()[:, 0]
        of = of[stream.stream(what="pairs", of=c).permutation(len(of))]
        found.append(of[: len(of) // 2 * 2].view(-1, 2))
    every = torch.cat(found)
    if len(every) < count:
        raise UsageError(f"There are {len(every)} pairs of one class for {count} coins; ask fewer.")
    rows = every[stream.stream(what="order").permutation(len(every))[:count]]
    fell = secret_stream(seed, None).stream(stage="audit").stream(what="coins").integers(2, count)
    return Coins(splits.private[rows.flatten()], fell)


def released(base: Run, private: Samples, asked: Samples, what: str, reserved: int = 0) -> Run:
    """A run of the same cell over other private images; `asked` stand for its test images.

    `what` names them: all that is stored of the run lies under it, and the owner's secrets are
    drawn anew from it. The first `reserved` public images are left out.
    """
    cell, splits = base.cell, base.splits
    sizes = [len(private), len(asked), reserved]
    told = [Space.of(cell).key, what, sizes, source_sha256(__name__)]
    name = f"audit {sha256_of(told)}"
    cell = replace(cell, owner=name, fingerprints={**cell.fingerprints, cell.dataset.written: name})
    run = Run(
        cell,
        base.store,
        base.registry,
        observer=base.observer,
        secret=name.encode(),
        processes=base.processes,
    )
    public = splits.public[reserved:]
    run.give(Space.of(cell), replace(splits, private=private, public=public, test=asked))
    return run


def joined(*parts: Samples) -> Samples:
    """One after another."""
    images = torch.cat([part.images for part in parts])
    return Samples(images, torch.cat([part.labels for part in parts]))
