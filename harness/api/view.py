"""All that an attack may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.api.data import Samples, Scale
from harness.api.errors import ChannelNotGranted
from harness.api.knowledge import Channel
from harness.api.randomness import Stream
from harness.api.release import Encoder

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


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
    protocol: Mapping[str, int | str] = field(default_factory=dict)
    """How the release is made: `rounds`, the `space` as `name[option=value]`; of gradients
    `batch_size`, `victim_epochs`, `bn_mode`, and as `guards` the defenses of training and of
    gradients, `name[option=value]` joined by `+`."""
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    """What the attack's preparations made, as `preparation.tensor`."""

    def has(self, channel: Channel) -> bool:
        """Whether this attack works with a channel."""
        return channel in self.granted

    def made(self, preparation: str) -> dict[str, Tensor]:
        """The tensors of one preparation by name; none where it was not made."""
        prefix = f"{preparation}."
        found = {name: tensor for name, tensor in self.shared.items() if name.startswith(prefix)}
        return {name.removeprefix(prefix): tensor for name, tensor in found.items()}

    def _get(self, channel: Channel) -> Any:
        if channel not in self.channels:
            raise ChannelNotGranted(
                f"'{channel}' was not granted under the threat model '{self.threat_model}'; "
                f"granted: {', '.join(sorted(self.channels))}. An attack gets a channel that "
                "it lists in `needs` or `optional` and that the threat model holds."
            )
        return self.channels[channel]

    @property
    def encodings(self) -> Tensor:
        """[rounds, n, *encoded shape]; the rows of each round are in a secret order."""
        encodings: Tensor = self._get(Channel.ENCODINGS)
        return encodings

    @property
    def labels(self) -> Tensor:
        """[rounds, n, classes] soft labels."""
        labels: Tensor = self._get(Channel.LABELS)
        return labels

    @property
    def weights(self) -> Tensor:
        """[rounds, n, k] mixing weights, the primary image's first."""
        weights: Tensor = self._get(Channel.WEIGHTS)
        return weights

    @property
    def sources(self) -> Tensor:
        """[rounds, n, k] int64: which private image each weight belongs to."""
        sources: Tensor = self._get(Channel.SOURCES)
        return sources

    @property
    def masks(self) -> Tensor:
        """[rounds, n, ceil(d/8)] uint8, packed as `Secrets` says."""
        masks: Tensor = self._get(Channel.MASKS)
        return masks

    @property
    def public(self) -> Samples:
        """Public images, standardised, with hard labels."""
        public: Samples = self._get(Channel.PUBLIC)
        return public

    @property
    def n_private(self) -> int:
        """How many private images there are."""
        count: int = self._get(Channel.N_PRIVATE)
        return count

    @property
    def encoder(self) -> Encoder:
        """The encoding defense with its resolved parameters."""
        encoder: Encoder = self._get(Channel.ENCODER)
        return encoder

    @property
    def candidates(self) -> Tensor:
        """[m, *shape]: the private images among decoys."""
        candidates: Tensor = self._get(Channel.CANDIDATES)
        return candidates

    @property
    def features(self) -> Tensor:
        """[n, ...]: h(x) of each target."""
        features: Tensor = self._get(Channel.FEATURES)
        return features

    @property
    def feature_encoder(self) -> nn.Module:
        """h, in evaluation mode, with its weights."""
        module: nn.Module = self._get(Channel.FEATURE_ENCODER)
        return module

    @property
    def gradients(self) -> Mapping[str, Tensor]:
        """By parameter name: [batches, *parameter shape]."""
        gradients: Mapping[str, Tensor] = self._get(Channel.GRADIENTS)
        return gradients

    @property
    def model(self) -> nn.Module:
        """The model the gradients were taken at."""
        module: nn.Module = self._get(Channel.MODEL)
        return module

    @property
    def batch_labels(self) -> Tensor:
        """[batches, b, classes]."""
        labels: Tensor = self._get(Channel.BATCH_LABELS)
        return labels

    @property
    def bn_statistics(self) -> Mapping[str, Tensor]:
        """By layer: the batch mean and variance each BatchNorm saw, [batches, channels]."""
        statistics: Mapping[str, Tensor] = self._get(Channel.BN_STATISTICS)
        return statistics


@dataclass(frozen=True)
class Budget:
    """What one attack may use. The engine ends an attack that goes beyond it."""

    seconds: float
    megabytes: int
    threads: int
