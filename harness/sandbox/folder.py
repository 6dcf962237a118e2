"""The view on disk: `view.json` and one safetensors file per channel, and nothing else.

Only granted channels have a file. The frame holds what is public anyway: shapes, the scale, the
defense's name and resolved config, and the key of the attack's own randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file
from torch import Tensor, nn

from harness.api import Budget, Channel, Config, EncodingDefense, Samples, Scale, View
from harness.api.release import Encoder
from harness.asking.registry import load_factory, registry
from harness.rng import KeyedStream
from harness.sandbox.rebuilding import plain, restore, restore_encoder
from harness.store.artifacts import save_tensors

FRAME = "view.json"
SHARED = "shared"
"""Folder of what the attack's preparations made, one file each."""


class Named(BaseModel):
    """A plugin by name, and its config as JSON values."""

    model_config = ConfigDict(frozen=True)

    name: str
    config: dict[str, Any]


class Frame(BaseModel):
    """Everything in a view that is not a tensor."""

    model_config = ConfigDict(frozen=True)

    attack: Named
    granted: tuple[Channel, ...]
    threat_model: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    low: float | None = 0.0
    high: float | None = 1.0
    shape: tuple[int, ...]
    input_shape: tuple[int, ...] = ()
    classes: int
    n_private: int | None = None
    encoder: Named | None = None
    victim: Named | None = None
    protocol: dict[str, int | str] = {}
    key: str
    device: str
    seconds: float
    megabytes: int
    threads: int

    @property
    def budget(self) -> Budget:
        """The attack's limits."""
        return Budget(self.seconds, self.megabytes, self.threads)

    @property
    def scale(self) -> Scale:
        """The dataset's scale."""
        return Scale(self.mean, self.std, self.low, self.high)


def write_folder(
    folder: Path, frame: Frame, tensors: Mapping[Channel, Mapping[str, Tensor]]
) -> None:
    """Write a view: the frame, and one file for each channel that has tensors."""
    for channel, named in tensors.items():
        save_tensors(named, folder / f"{channel}.safetensors")
    (folder / FRAME).write_text(frame.model_dump_json(), encoding="utf-8")


def read_frame(folder: Path) -> Frame:
    """The frame of a view."""
    return Frame.model_validate_json((folder / FRAME).read_bytes())


def open_view(folder: Path, frame: Frame) -> View:
    """The view as the attack gets it, tensors on the attack's device."""
    torch.set_num_threads(frame.threads)
    present = {Channel(path.stem) for path in folder.glob("*.safetensors")}
    channels: dict[Channel, Any] = {}
    for channel in present:
        tensors = load_file(folder / f"{channel}.safetensors", device=frame.device)
        channels[channel] = _readers(frame).get(channel, _single)(tensors)
    if Channel.BN_STATISTICS in frame.granted and Channel.GRADIENTS in present:
        channels.setdefault(Channel.BN_STATISTICS, {})  # of a model without BatchNorm
    if frame.n_private is not None:
        channels[Channel.N_PRIVATE] = frame.n_private
    if Channel.ENCODER in frame.granted:
        channels[Channel.ENCODER] = _encoder(frame)
    return View(
        channels=channels,
        granted=frozenset(frame.granted),
        threat_model=frame.threat_model,
        scale=frame.scale,
        shape=frame.shape,
        classes=frame.classes,
        device=torch.device(frame.device),
        rng=KeyedStream(bytes.fromhex(frame.key)),
        protocol=frame.protocol,
        shared=_shared(folder / SHARED, frame.device),
    )


def _shared(folder: Path, device: str) -> dict[str, Tensor]:
    """By `preparation.tensor`."""
    return {
        f"{path.stem}.{name}": tensor
        for path in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(path, device=device).items()
    }


def _single(tensors: dict[str, Tensor]) -> Tensor:
    (tensor,) = tensors.values()
    return tensor


def _readers(frame: Frame) -> dict[Channel, Callable[[dict[str, Tensor]], Any]]:
    """How channels that are more than one tensor are read."""
    return {
        Channel.PUBLIC: lambda t: Samples(t["images"], t["labels"]).standardised(frame.scale),
        Channel.GRADIENTS: lambda t: t,
        Channel.BN_STATISTICS: lambda t: t,
        Channel.MODEL: lambda t: _module(frame, t, cut=False),
        Channel.FEATURE_ENCODER: lambda t: _module(frame, t, cut=True),
    }


def _encoder(frame: Frame) -> Encoder:
    named = frame.encoder
    if named is None:
        return Encoder("none", Config(), lambda own, _public, _rng: plain(own, frame.classes))
    known = registry()
    spec = known.defense(named.name)
    config = spec.config.model_validate(named.config)
    defense: EncodingDefense[Any] = load_factory(spec, known.origin("defenses", spec.name))(config)
    return Encoder(named.name, config, defense.encode)


def _module(frame: Frame, state: dict[str, Tensor], *, cut: bool) -> nn.Module:
    """The victim, or its part up to the cut, with released weights, in evaluation mode."""
    assert frame.victim is not None
    known = registry()
    spec = known.victim(frame.victim.name)
    factory = load_factory(spec, known.origin("victims", spec.name))
    victim = factory(spec.config.model_validate(frame.victim.config))
    rebuild = restore_encoder if cut else restore
    return rebuild(victim, frame.input_shape, frame.classes, state).to(frame.device)
