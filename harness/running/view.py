"""View: what an attack is given, written into a folder that its process reads and nobody else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from harness.api import Budget, CellFailed, Channel, Progress, Release, Splits
from harness.api.knowledge import NETWORKS
from harness.rng import KeyedStream, public_stream, secret_stream
from harness.running.release import ReleaseStage, input_shape
from harness.running.space import Space
from harness.running.stack import victim_under
from harness.running.truth import Truth
from harness.sandbox.jobs import Frame, Named, write_folder
from harness.store.artifacts import below
from harness.store.paths import disk_errors, scratch_folder
from harness.store.provenance import plain_config

if TYPE_CHECKING:
    from harness.asking.plan import AttackPlan
    from harness.running.run import Run
    from harness.sandbox.process import Spent

MASKS = "extra.masks"
SECRET = {Channel.WEIGHTS, Channel.SOURCES, Channel.BATCH_LABELS}
PREFIXED = {
    Channel.FEATURE_ENCODER,
    Channel.GRADIENTS,
    Channel.MODEL,
    Channel.BN_STATISTICS,
}


class Process(Protocol):
    """Where one attack does its jobs, one after another."""

    def ask(
        self, job: Mapping[str, Any], budget: Budget, progress: Progress, *, spent: float = 0.0
    ) -> Spent:
        """Have a job done; CellFailed or CellTimedOut where it fails."""
        ...


class Processes(Protocol):
    """Lends each attack a process; more may be `expected`, so that one is started ahead."""

    expected: int

    def warm(self) -> None:
        """Start the next one now."""
        ...

    def take(self) -> AbstractContextManager[Process]:
        """A process for one attack."""
        ...


@dataclass(frozen=True)
class Workplace:
    """The process of one attack and its folders, gone when it is done."""

    process: Process
    base: Path

    @property
    def before(self) -> Path:
        """The view before the release."""
        return self.base / "before"

    @property
    def view(self) -> Path:
        """The view of it."""
        return self.base / "view"

    @property
    def out(self) -> Path:
        """What comes out."""
        return self.base / "out"


def workplaces() -> Path:
    """Where attacks work: the system's temporary folder, far from the store."""
    return Path(tempfile.gettempdir()) / f"encoding-harness-{os.getuid()}"


@contextmanager
def workplace(process: Process, label: str) -> Iterator[Workplace]:
    """Folders for one attack, gone when it is done."""
    with scratch_folder(workplaces(), label.replace(" ", "-")) as base:
        place = Workplace(process, base)
        for folder in (place.before, place.view, place.out):
            folder.mkdir()
        yield place


@dataclass(frozen=True)
class Candidates:
    """Targets among decoys, in a secret order; `truth[i]` is where target i is."""

    images: Tensor
    truth: Tensor


def candidates(splits: Splits, stream: KeyedStream) -> Candidates:
    """Mix the private images with as many test images, or all there are if those are fewer.

    No attacker holds test images otherwise. `splits` are as the judge has them: where images are
    held out, those are the private ones.
    """
    private, test = splits.private.images, splits.test.images
    decoys = test[: len(private)].to(private.dtype)
    order = stream.stream(what="candidates").permutation(len(private) + len(decoys))
    truth = order.argsort()[: len(private)]
    return Candidates(torch.cat([private, decoys])[order], truth)


def hand_over(run: Run, folder: Path, frame: Frame, channels: frozenset[Channel]) -> None:
    """Write exactly these channels of the run's release and truth."""
    release, truth = run(ReleaseStage.of(run.cell)), run(Truth(run.cell)).splits
    with disk_errors(folder):
        view(
            folder,
            frame,
            channels,
            release,
            truth,
            secret_stream(run.cell.request.seed, run.secret),
        )


def view(
    folder: Path,
    frame: Frame,
    channels: frozenset[Channel],
    release: Release,
    splits: Splits,
    stream: KeyedStream,
) -> None:
    """Write exactly these channels. Nothing else enters the folder."""
    tensors = {c: _tensors(c, release, splits, stream) for c in sorted(channels)}
    write_folder(folder, frame, {c: named for c, named in tensors.items() if named})


def _tensors(
    channel: Channel, release: Release, splits: Splits, stream: KeyedStream
) -> Mapping[str, Tensor]:
    if channel is Channel.PUBLIC:
        return {"images": splits.public.images, "labels": splits.public.labels}
    if channel is Channel.CANDIDATES:
        mixed = candidates(splits, stream)
        images = mixed.images if mixed.images.is_floating_point() else mixed.images.float() / 255
        return {channel: splits.scale.standardise(images)}
    if channel in PREFIXED:
        held = release.secrets if channel is Channel.BN_STATISTICS else release.tensors
        return below(f"{channel}.", held)
    if channel is Channel.MASKS:
        return {channel: release.secrets[MASKS]} if MASKS in release.secrets else {}
    held = release.secrets if channel in SECRET else release.tensors
    return {channel: held[channel]} if channel in held else {}


def frame_of(run: Run, plan: AttackPlan, present: frozenset[Channel], purpose: str) -> Frame:
    """What a view of these channels says besides tensors."""
    cell, request, splits = run.cell, run.cell.request, run(Space(run.cell))
    network = bool(present & NETWORKS)
    stream = public_stream(request.seed).stream(attack=plan.attack.name, purpose=purpose)
    return Frame(
        attack=Named(name=plan.attack.name, config=plain_config(plan.attack)),
        granted=tuple(sorted(plan.channels)),
        threat_model=cell.threat_model.name,
        mean=splits.scale.mean,
        std=splits.scale.std,
        low=splits.scale.low,
        high=splits.scale.high,
        shape=splits.shape,
        input_shape=input_shape(run(ReleaseStage.of(cell))) if network else (),
        classes=len(splits.classes),
        n_private=len(splits.private) if Channel.N_PRIVATE in present else None,
        encoder=encoder_of(run) if Channel.ENCODER in present else None,
        victim=_victim(run) if network else None,
        protocol=cell.protocol,
        key=stream.key.hex(),
        device=cell.device,
        seconds=request.time_limit,
        megabytes=request.megabytes,
        threads=cell.threads,
    )


def encoder_of(run: Run) -> Named | None:
    """The encoding defense with its parameters as they turned out."""
    encoding = run.cell.encoding
    if encoding is None:
        return None
    resolved = run(ReleaseStage.of(run.cell)).resolved.get(encoding.name, {})
    return Named(name=encoding.name, config={**plain_config(encoding), **resolved})


def _victim(run: Run) -> Named:
    victim = victim_under(run, run.cell.defenses)
    return Named(name=victim.name, config=plain_config(victim))


def tensors_in(path: Path) -> dict[str, Tensor]:
    """What an attack's process left in a file; CellFailed where that cannot be read."""
    try:
        return load_file(path)
    except (SafetensorError, FileNotFoundError) as error:
        raise CellFailed(f"the attack left no readable result: {error}") from None
