"""An attack's jobs: the view that it is handed on disk, its work on it, and what it brings back.

A view is `view.json`, one safetensors file for each channel, and nothing else. Only granted
channels have a file. The frame holds what is public anyway: shapes, the scale, the defense's name
and resolved config, and the key of the attack's own randomness.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file
from torch import Tensor

from harness.api import (
    Attack,
    Budget,
    Channel,
    Config,
    EncodingDefense,
    Progress,
    Reconstruction,
    Samples,
    Scale,
    Statistics,
    StatisticsDefense,
    View,
)
from harness.api.precision import Precision
from harness.api.release import Encoder
from harness.asking.registry import registry
from harness.rng import KeyedStream
from harness.sandbox.rebuilding import plain, restore
from harness.store.artifacts import below, save_tensors

FRAME = "view.json"
SHARED = "shared"
"""Folder of what the attack's preparations made, one file each."""
PREPARED, FOUND, DIAGNOSTICS = (
    "prepared.safetensors",
    "reconstruction.safetensors",
    "diagnostics.json",
)
"""Files that an attack's process leaves behind."""
FIELDS, CLAIM = ("images", "targets", "rows", "batches"), "claims."
"""How the tensors of a reconstruction are named."""


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
    sums: Named | None = None
    victim: Named | None = None
    protocol: dict[str, int | float | str] = {}
    key: str
    device: str
    seconds: float
    megabytes: int
    threads: int
    precision: Precision = "float32"

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
    channels = {
        channel: _read(channel, load_file(folder / f"{channel}.safetensors", frame.device), frame)
        for channel in present
    }
    if Channel.BN_STATISTICS in frame.granted and Channel.GRADIENTS in present:
        channels.setdefault(Channel.BN_STATISTICS, {})  # of a model without BatchNorm
    if frame.n_private is not None:
        channels[Channel.N_PRIVATE] = frame.n_private
    if Channel.ENCODER in frame.granted:
        channels[Channel.ENCODER] = encoder(frame.encoder, frame.classes)
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
        precision=frame.precision,
    )


def _shared(folder: Path, device: str) -> dict[str, Tensor]:
    """By `preparation.tensor`."""
    return {
        f"{path.stem}.{name}": tensor
        for path in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(path, device=device).items()
    }


def _read(channel: Channel, tensors: dict[str, Tensor], frame: Frame) -> Any:
    """What an attack gets of a channel; where it is no more than one tensor, that one.

    Of a model that is the victim, or its part up to the cut, with released weights.
    """
    if channel is Channel.PUBLIC:
        return Samples(tensors["images"], tensors["labels"]).standardised(frame.scale)
    if channel in (Channel.GRADIENTS, Channel.UPDATES, Channel.BN_STATISTICS):
        return tensors
    if channel is Channel.STATISTICS:
        assert frame.sums is not None
        return statistics(frame.sums, tensors)
    if channel in (Channel.MODEL, Channel.FEATURE_ENCODER):
        assert frame.victim is not None
        victim, cut = built("victims", frame.victim), channel is Channel.FEATURE_ENCODER
        model = restore(victim, frame.input_shape, frame.classes, tensors, cut=cut)
        return model.to(frame.device)
    (tensor,) = tensors.values()
    return tensor


def encoder(named: Named | None, classes: int) -> Encoder:
    """The encoding defense by its law; plain where there is none."""
    if named is None:
        return Encoder("none", Config(), lambda own, _public, _rng: plain(own, classes))
    defense: EncodingDefense[Any] = built("defenses", named)
    infer = defense.infer if defense.infers else None
    return Encoder(named.name, defense.config, defense.encode, infer)


def statistics(named: Named, tensors: Mapping[str, Tensor]) -> Statistics:
    """What a release of sums holds, with the defense's own map from images to what was summed."""
    defense: StatisticsDefense[Any] = built("defenses", named)
    noise, of_counts = tensors["noise"].tolist()
    return Statistics(
        sums=tensors["sums"],
        counts=tensors["counts"],
        noise=noise,
        count_noise=of_counts,
        basis=below("basis.", tensors),
        through=defense.embed,
    )


def built(kind: str, named: Named) -> Any:
    """A plugin at work, by its name and config."""
    config = registry().spec(kind, named.name).config.model_validate(named.config)
    return registry().build(kind, named.name, config)


def share(job: Mapping[str, Any], progress: Progress) -> None:
    """Make what several attacks share, from what all of them hold before the release."""
    function = resolve_name(job["factory"])  # before anything is drawn
    frame, view = _handed(job)
    made = function(view, frame.budget, progress, **job["arguments"])
    save_tensors(made, Path(job["out"]) / PREPARED)


def call(job: Mapping[str, Any], _progress: Progress) -> None:
    """Call the function that the job names with the job itself; it is watched as an attack is."""
    resolve_name(job["function"])(job)


def prepare(job: Mapping[str, Any], progress: Progress) -> None:
    """Let an attack learn from what it holds before the release, and keep what it learned."""
    frame, view = _handed(job)
    attack: Attack[Any] = built("attacks", frame.attack)
    save_tensors(attack.prepare(view, frame.budget, progress), Path(job["out"]) / PREPARED)


def reconstruct(job: Mapping[str, Any], progress: Progress) -> None:
    """Let an attack at the release, and keep what it brings back."""
    frame, view = _handed(job)
    learned = load_file(job["prepared"], device=str(view.device))
    found = built("attacks", frame.attack).reconstruct(view, learned, frame.budget, progress)
    if not isinstance(found, Reconstruction):
        raise TypeError(f"reconstruct must return a Reconstruction, not {type(found).__name__}")
    out = Path(job["out"])
    save_tensors(pack(found), out / FOUND)
    for name, value in found.diagnostics.items():
        if not math.isfinite(value):
            raise ValueError(f"the diagnostic '{name}' is {value}; leave out what has no value")
    diagnostics = {name: float(value) for name, value in found.diagnostics.items()}
    (out / DIAGNOSTICS).write_text(json.dumps(diagnostics), encoding="utf-8")


def _handed(job: Mapping[str, Any]) -> tuple[Frame, View]:
    """The view that a job is about; torch draws from the attack's own stream from here on."""
    folder = Path(job["view"])
    frame = read_frame(folder)
    view = open_view(folder, frame)
    torch.manual_seed(view.rng.stream(what="torch").seed())
    return frame, view


def pack(found: Reconstruction) -> dict[str, Tensor]:
    """A reconstruction's tensors by name."""
    named = {name: getattr(found, name) for name in FIELDS}
    claims = {CLAIM + name: tensor for name, tensor in found.claims.items()}
    return {name: tensor for name, tensor in named.items() if tensor is not None} | claims


def unpack(tensors: Mapping[str, Tensor], diagnostics: Mapping[str, float]) -> Reconstruction:
    """The inverse of `pack`."""
    return Reconstruction(
        **{name: tensors.get(name) for name in FIELDS},
        claims=below(CLAIM, tensors),
        diagnostics=diagnostics,
    )
