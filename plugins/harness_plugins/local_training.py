"""How a party trained before it sent an update, as far as a server knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.api import Channel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from harness.api import View


@dataclass(frozen=True)
class LocalTraining:
    """So many `steps` of SGD at the rate `lr`, each on `batch_size` of the party's `images`."""

    steps: int
    lr: float
    batch_size: int
    images: int

    @classmethod
    def of(cls, view: View) -> LocalTraining:
        """What the view of an update says of it."""
        told = view.protocol
        return cls(
            steps=int(told["local_steps"]),
            lr=float(told["local_lr"]),
            batch_size=int(told["batch_size"]),
            images=int(told["local_images"]),
        )

    def batches(self) -> list[list[int]]:
        """Which images each step takes, if they come in their order and then again."""
        rows = range(self.steps * self.batch_size)
        taken = [row % self.images for row in rows]
        return [taken[i : i + self.batch_size] for i in rows[:: self.batch_size]]

    def mean_gradients(self, updates: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The mean over steps of the gradients that were followed: -update / (lr steps).

        Of one step it is the batch's own gradient; later ones are taken at weights that have moved.
        """
        return {name: update / (-self.lr * self.steps) for name, update in updates.items()}


def as_gradients(view: View) -> View:
    """A view of updates as one of the mean gradients that they come from; any other as it is."""
    if not view.has(Channel.UPDATES):
        return view
    gradients = LocalTraining.of(view).mean_gradients(view.updates)
    return replace(view, channels={**view.channels, Channel.GRADIENTS: gradients})


def together(view: View) -> int:
    """How many images each gradient or update is of."""
    return int(view.protocol.get("local_images", view.protocol.get("batch_size", 1)))
