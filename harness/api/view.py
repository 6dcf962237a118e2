"""All that an attack may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from harness.api.data import Samples, Scale
from harness.api.errors import ChannelNotGranted
from harness.api.knowledge import Channel
from harness.api.precision import Precision
from harness.api.randomness import Stream
from harness.api.release import Encoder, Statistics

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

T = TypeVar("T")


class Granted(Generic[T]):
    """What a view returns for the channel that the attribute is named after.

    ChannelNotGranted where the view lacks it.
    """

    def __set_name__(self, owner: type[View], name: str) -> None:
        self.channel = Channel(name)

    def __get__(self, view: View, owner: type[View]) -> T:
        # Asked of the class, as dataclasses do, `view` is None and has no channels: AttributeError.
        if self.channel not in view.channels:
            raise ChannelNotGranted(
                f"'{self.channel}' was not granted under the threat model '{view.threat_model}'; "
                f"granted: {', '.join(sorted(view.channels))}. An attack gets a channel that "
                "it lists in `needs` or `optional` and that the threat model holds."
            )
        content: T = view.channels[self.channel]
        return content


@dataclass(frozen=True)
class View:
    """The channels one attack was granted, and the public frame around them.

    `granted` names the channels this attack works with. `Attack.prepare` sees the prior ones
    alone (public images, the encoder's law, the number of private images), though `granted`
    tells it what will come. Tensors are float32 on `device`, images standardised.
    """

    channels: Mapping[Channel, Any]
    granted: frozenset[Channel]
    threat_model: str
    scale: Scale
    shape: tuple[int, ...]
    """Shape of one target: what `Reconstruction.images` must have behind its first axis."""
    classes: int
    device: torch.device
    rng: Stream
    protocol: Mapping[str, int | float | str] = field(default_factory=dict)
    """How the release is made: `rounds`, the `space` as `name[option=value]`; of gradients and
    updates `batch_size`, `victim_epochs`, `bn_mode`, and as `guards` the defenses of training and
    of gradients, `name[option=value]` joined by `+`; of updates also `local_steps`, `local_lr`, and
    as `local_images` how many images each party trained on."""
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    """What the attack's preparations made, as `preparation.tensor`."""
    precision: Precision = "float32"
    """What the attack's networks are trained in."""

    def has(self, channel: Channel) -> bool:
        """Whether this attack works with a channel."""
        return channel in self.granted

    def made(self, preparation: str) -> dict[str, Tensor]:
        """The tensors of one preparation by name; none where it was not made."""
        prefix = f"{preparation}."
        found = {name: tensor for name, tensor in self.shared.items() if name.startswith(prefix)}
        return {name.removeprefix(prefix): tensor for name, tensor in found.items()}

    encodings: ClassVar[Granted[Tensor]] = Granted()
    """[rounds, n, *encoded shape]; the rows of each round are in a secret order."""
    labels: ClassVar[Granted[Tensor]] = Granted()
    """[rounds, n, classes] soft labels."""
    weights: ClassVar[Granted[Tensor]] = Granted()
    """[rounds, n, k] mixing weights, the primary image's first."""
    sources: ClassVar[Granted[Tensor]] = Granted()
    """[rounds, n, k] int64: which private image each weight belongs to."""
    masks: ClassVar[Granted[Tensor]] = Granted()
    """[rounds, n, ceil(d/8)] uint8, packed as `Secrets` says."""
    public: ClassVar[Granted[Samples]] = Granted()
    """Public images, standardised, with hard labels."""
    n_private: ClassVar[Granted[int]] = Granted()
    """How many private images there are."""
    encoder: ClassVar[Granted[Encoder]] = Granted()
    """The encoding defense with its resolved parameters."""
    candidates: ClassVar[Granted[Tensor]] = Granted()
    """[m, *shape]: the private images among decoys."""
    features: ClassVar[Granted[Tensor]] = Granted()
    """[n, ...]: h(x) of each target."""
    feature_encoder: ClassVar[Granted[nn.Module]] = Granted()
    """h, in evaluation mode, with its weights."""
    gradients: ClassVar[Granted[Mapping[str, Tensor]]] = Granted()
    """By parameter name: [batches, *parameter shape]."""
    model: ClassVar[Granted[nn.Module]] = Granted()
    """The model the gradients were taken at, or that was sent to each party."""
    updates: ClassVar[Granted[Mapping[str, Tensor]]] = Granted()
    """By parameter name: [parties, *parameter shape], the weights after local training minus those
    before."""
    batch_labels: ClassVar[Granted[Tensor]] = Granted()
    """[batches, b, classes], of updates [parties, local images, classes]; of statistics
    [1, n, classes], all images in their order."""
    bn_statistics: ClassVar[Granted[Mapping[str, Tensor]]] = Granted()
    """By layer: the batch mean and variance each BatchNorm saw, [batches, channels]."""
    statistics: ClassVar[Granted[Statistics]] = Granted()
    """Noisy sums by class."""


@dataclass(frozen=True)
class Budget:
    """What one attack may use. The engine ends an attack that goes beyond it."""

    seconds: float
    megabytes: int
    threads: int
