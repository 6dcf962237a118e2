"""Attack: a view goes to a process of its own, a reconstruction comes back.

A view is a folder with the channels that the attack is granted, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.api.data import Samples, Splits
from harness.api.knowledge import NETWORKS, Channel
from harness.api.plugins import Progress
from harness.api.release import Release
from harness.rng import KeyedStream, public_stream, secret_stream
from harness.running.prepare import prepare, preparing
from harness.running.release import ReleaseStage, input_shape, victim_under
from harness.running.samples import Space, Truth
from harness.running.stage import Output, Stage, budget_identity, code_identity, hardware
from harness.running.workplace import (
    confinement,
    diagnostics_in,
    law_of,
    tensors_in,
    workplace,
)
from harness.store.artifacts import Artifact, below
from harness.store.paths import disk_errors
from harness.store.provenance import plain_config, plugin_identity, preparation_identity

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api.plugins import Reconstruction
    from harness.asking.plan import AttackPlan, Cell
    from harness.running.run import Run
    from harness.sandbox.jobs import Frame, Named

MASKS = "extra.masks"
SECRET = {Channel.WEIGHTS, Channel.SOURCES, Channel.BATCH_LABELS}
PREFIXED = {
    Channel.FEATURE_ENCODER,
    Channel.GRADIENTS,
    Channel.MODEL,
    Channel.BN_STATISTICS,
    Channel.STATISTICS,
    Channel.UPDATES,
}


@dataclass(frozen=True)
class Answer:
    """What an attack brought back, what that took, and by content what it had learned before."""

    reconstruction: Reconstruction
    peak_memory: Mapping[str, float]
    learned: Mapping[str, Mapping[str, str | int]]


@dataclass(frozen=True, eq=False)
class AttackStage(Stage[Answer]):
    """One attack on the cell's release."""

    name = "attack"
    plan: AttackPlan

    @property
    def label(self) -> str:
        """By the attack's name."""
        return f"{self.name} {self.plan.attack.name}"

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """The release, and the splits that public images and candidates come from, as judged."""
        others = self.cell.held_out or self.cell.judged_at_release
        truth = (Truth.of(self.cell),) if others else ()
        return (ReleaseStage.of(self.cell), Space.of(self.cell), *truth)

    def facts(self) -> dict[str, Any]:
        """The attack, its channels and its budget: it may pace itself by that."""
        plan = self.plan
        return {
            "attack": plugin_identity(plan.attack),
            "shared": [preparation_identity(made, plan.attack) for made in plan.preparations],
            "learned by": code_identity("harness.running.prepare"),
            "channels": sorted(plan.channels),
            "threat_model": self.cell.threat_model.name,
            "budget": budget_identity(self.cell),
            "seed": self.cell.request.seed,
            "hardware": hardware(self.cell, self.cell.precision(plan.attack.spec)),
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Prepare, then let the attack at the release."""
        plan = self.plan
        with run.processes.take() as process, workplace(process, self.label) as place:
            learned, before = prepare(run, plan, place)
            frame = frame_of(run, plan, plan.channels, "reconstruct")
            hand_over(run, place.view, frame, plan.channels)
            folders = {"view": str(place.view), "out": str(place.out), "prepared": str(learned)}
            job = {"action": "reconstruct", **folders}
            took = process.ask(job, run.budget, progress, spent=before.seconds)
            tensors = tensors_in(place.out / "reconstruction.safetensors")
            diagnostics = diagnostics_in(place.out / "diagnostics.json")
        stages = preparing(run, plan)
        prepared = [run.store.facts(each.name, each.key) for each in stages]
        facts = {
            "diagnostics": diagnostics,
            "peak_memory": {self.label: max(took.megabytes, before.megabytes)},
            "own_seconds": took.seconds,
            "walls": confinement([process.walls, *(made["walls"] for made in prepared)]),
            "learned": {each.label: run.identity(each) for each in stages[:-1]},
        }
        return Artifact(tensors, facts)

    def read(self, stored: Artifact) -> Answer:
        """What came back."""
        from harness.sandbox.jobs import unpack

        found = unpack(dict(stored.tensors), stored.facts.get("diagnostics", {}))
        facts = stored.facts
        return Answer(found, facts.get("peak_memory", {}), facts.get("learned", {}))


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
    import torch

    private, test = splits.private.images, splits.test.images
    decoys = test[: len(private)].to(private.dtype)
    mixed = torch.cat([private, decoys])[_order(splits, stream)]
    return Candidates(mixed, true_places(splits, stream))


def _order(splits: Splits, stream: KeyedStream) -> Tensor:
    n = len(splits.private)
    return stream.stream(what="candidates").permutation(n + min(n, len(splits.test)))


def true_places(splits: Splits, stream: KeyedStream) -> Tensor:
    """[n] where each private image is among the candidates."""
    return _order(splits, stream).argsort()[: len(splits.private)]


def hand_over(run: Run, folder: Path, frame: Frame, channels: frozenset[Channel]) -> None:
    """Write exactly these channels of the run's release and truth."""
    secret = secret_stream(run.cell.request.seed, run.secret)
    with disk_errors(folder):
        view(folder, frame, channels, run.release, run.truth.splits, secret)


def view(
    folder: Path,
    frame: Frame,
    channels: frozenset[Channel],
    release: Release,
    splits: Splits,
    stream: KeyedStream,
) -> None:
    """Write exactly these channels. Nothing else enters the folder."""
    from harness.sandbox.jobs import write_folder

    tensors = {c: _tensors(c, release, splits, stream) for c in sorted(channels)}
    write_folder(folder, frame, {c: named for c, named in tensors.items() if named})


def _tensors(
    channel: Channel, release: Release, splits: Splits, stream: KeyedStream
) -> Mapping[str, Tensor]:
    if channel is Channel.PUBLIC:
        return {"images": splits.public.images, "labels": splits.public.labels}
    if channel is Channel.CANDIDATES:
        images = candidates(splits, stream).images
        mixed = Samples(images, images.new_empty(0))
        return {channel: mixed.standardised(splits.scale).images}
    if channel in PREFIXED:
        held = release.secrets if channel is Channel.BN_STATISTICS else release.tensors
        return below(f"{channel}.", held)
    if channel is Channel.MASKS:
        return {channel: release.secrets[MASKS]} if MASKS in release.secrets else {}
    held = release.secrets if channel in SECRET else release.tensors
    return {channel: held[channel]} if channel in held else {}


def frame_of(run: Run, plan: AttackPlan, present: frozenset[Channel], purpose: str) -> Frame:
    """What a view of these channels says besides tensors."""
    from harness.sandbox.jobs import Frame, Named

    cell, request, splits = run.cell, run.cell.request, run.splits
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
        shape=run.truth.splits.shape,
        input_shape=input_shape(run.release) if network else (),
        classes=len(splits.classes),
        n_private=len(splits.private) if Channel.N_PRIVATE in present else None,
        encoder=encoder_of(run) if Channel.ENCODER in present else None,
        sums=sums_of(cell) if Channel.STATISTICS in present else None,
        victim=_victim(run) if network else None,
        protocol=cell.protocol,
        key=stream.key.hex(),
        device=cell.device,
        seconds=request.time_limit,
        megabytes=request.megabytes,
        threads=cell.threads,
        precision=cell.precision(plan.attack.spec),
    )


def encoder_of(run: Run) -> Named | None:
    """The encoding defense with its parameters as they turned out."""
    return law_of(run.cell.encoding, run.release.resolved) if run.cell.encoding else None


def sums_of(cell: Cell) -> Named | None:
    """The defense that released statistics."""
    return law_of(cell.sums, {}) if cell.sums else None


def _victim(run: Run) -> Named:
    from harness.sandbox.jobs import Named

    victim = victim_under(run, run.cell.defenses)
    return Named(name=victim.name, config=plain_config(victim))
