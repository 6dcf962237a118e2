"""Ceiling: what no attack exceeds, from the law of the defense. On the owner's side, in no view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from harness.api.ceilings import Bound, OwnersView
from harness.api.knowledge import Channel, ReleaseKind
from harness.api.law import Law
from harness.rng import secret_stream
from harness.running.judge import JudgeStage, judging
from harness.running.rounds import Rounds
from harness.running.samples import CHUNK, Space, Truth, on_demand, standardised
from harness.running.stage import Output, Stage, hardware, plugin_boundary
from harness.scoring.ceilings import LABELS, POOLED, Proof, Shown, compared
from harness.scoring.flags import Flag
from harness.store.artifacts import Artifact, below
from harness.store.provenance import plugin_identity

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api.plugins import Progress
    from harness.asking.plan import AttackPlan, Cell
    from harness.asking.request import Resolved
    from harness.running.encoding import Source
    from harness.running.leakage import Leakage
    from harness.running.run import Run

ERRORS = "errors."
"""What a bound's squared errors are stored under, by quantity."""


@dataclass(frozen=True)
class Proved:
    """What a ceiling says, and the squared errors [targets] that it allows, by quantity."""

    proof: Proof
    errors: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class CeilingStage(Stage[Proved]):
    """One ceiling of a cell's encodings."""

    name = "ceiling"
    ceiling: Resolved

    @classmethod
    def every(cls, cell: Cell) -> dict[str, CeilingStage]:
        """Of each ceiling that the cell asks for, as written."""
        return {written: cls(cell, ceiling) for written, ceiling in cell.ceilings.items()}

    @property
    def label(self) -> str:
        """By the ceiling's name."""
        return f"{self.name} {self.ceiling.name}"

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """The rounds, all samples, and which of them are judged."""
        return (Rounds.of(self.cell), Space.of(self.cell), Truth.of(self.cell))

    def facts(self) -> dict[str, Any]:
        """The ceiling, what else decides whether there is one, and the seed of its noise."""
        cell = self.cell
        return {
            "ceiling": plugin_identity(self.ceiling),
            "kind": cell.kind,
            "late": [plugin_identity(defense) for defense in cell.late],
            "alike": _alike(cell),
            "scale_measured": cell.dataset.spec.measured_scale,
            "seed": cell.request.seed,
            "owner": cell.owner,
            "hardware": hardware(cell),
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Ask the ceiling; what leaves late in the owner's work has none."""
        found: Bound | str = nothing_proven(self.cell)
        if not found:
            view = owners_view(run)
            ceiling = run.build("ceilings", self.ceiling.spec, self.ceiling.config)
            with plugin_boundary(self.ceiling.name):
                found = ceiling.bound(view, progress)
        errors = {} if isinstance(found, str) else found.errors
        tensors = {f"{ERRORS}{name}": values.cpu() for name, values in errors.items()}
        return Artifact(tensors, {"proof": Proof.of(found).model_dump(mode="json")})

    def read(self, stored: Artifact) -> Proved:
        """What it said."""
        return Proved(Proof.model_validate(stored.facts["proof"]), below(ERRORS, stored.tensors))


def _alike(cell: Cell) -> bool:
    """Whether public images are of the dataset that the private ones are drawn from."""
    return cell.public is None or cell.public.written == cell.dataset.written


def nothing_proven(cell: Cell) -> str:
    """Why what leaves in a cell has no law that a ceiling could start from; empty for encodings."""
    if cell.kind is ReleaseKind.ENCODINGS:
        return ""
    reasons = [defense.spec.no_ceiling for defense in cell.late if defense.spec.no_ceiling]
    general = f"what leaves are {cell.kind}, and a ceiling is stated for encodings"
    return "; ".join(reasons) or general


def owners_view(run: Run) -> OwnersView:
    """What ceilings are given of a cell's encodings."""
    cell, splits = run.cell, run.splits
    source = run(Rounds.of(cell))
    weights, sources = _mixtures(source)
    private = on_demand(splits.private, splits.scale)
    return OwnersView(
        defense="none" if cell.encoding is None else cell.encoding.written,
        law=law_of(run, source),
        weights=weights,
        sources=sources,
        private=private,
        targets=min(run.truth.targets, len(private)),
        public=standardised(splits.public, splits.scale),
        subjects=_subjects(run),
        public_alike=_alike(cell),
        scale=splits.scale,
        scale_measured=cell.dataset.spec.measured_scale,
        shape=source.shape,
        device=run.device,
        # The owner's own stream: nobody else may know the noise that a ceiling was found under.
        rng=secret_stream(cell.request.seed, run.secret).stream(stage="ceiling"),
    )


def law_of(run: Run, source: Source) -> Law | None:
    """The law that the cell's encoding defense states; that of no defense adds nothing."""
    encoding = run.cell.encoding
    if encoding is None:
        return Law("none")
    defense = run.build("defenses", encoding.spec, encoding.config)
    with plugin_boundary(encoding.name):
        stated: Law | None = defense.law(prod(source.shape), source.resolved[encoding.name])
    return stated


def left_by_noise(run: Run) -> Tensor | None:
    """[targets] SNR in dB of each, to whoever is told weights and partners and knows no images.

    None where no noise is stated of one owner's encodings, or these are of another size, whose
    noise may average out.
    """
    import torch

    cell, splits = run.cell, run.splits
    if cell.kind is not ReleaseKind.ENCODINGS or cell.request.parties > 1:
        return None
    source = run(Rounds.of(cell))
    law = law_of(run, source)
    if law is None or law.noise == "none" or law.altered or tuple(source.shape) != splits.shape:
        return None
    kept = run.release.secrets
    weights, sources = (kept[name].flatten(0, 1) for name in ("weights", "sources"))
    told = (weights.double() / law.deviations(weights).view(-1, 1)).square().flatten()
    images = len(splits.private) + len(splits.public)
    precision = torch.zeros(images, dtype=torch.float64).index_add_(0, sources.flatten(), told)
    power = _energies(run) / splits.private.images[0].numel()
    return 10 * (power * precision[: len(power)]).log10()


def unlawful(run: Run) -> Iterator[str]:
    """What of one owner's encodings is not what its secrets and the stated law say, by piece."""
    import torch

    from harness.scoring.lawful import like_public, unlike_law

    cell, splits = run.cell, run.splits
    if cell.encoding is None:
        return
    source = run(Rounds.of(cell))
    law = law_of(run, source)
    pools = (standardised(each, splits.scale).images for each in (splits.private, splits.public))
    private, public = (images.flatten(1) for images in pools)
    images = torch.cat([private, public])
    for piece in _released(run, source):
        rows = piece["encodings"].flatten(1)
        yield from filter(None, [like_public(rows, public)])
        if law is not None and rows.shape[1] == images.shape[1]:
            told = unlike_law(law, rows, piece["weights"], piece["sources"], images)
            yield from filter(None, [told])


def _released(run: Run, source: Source) -> Iterator[Mapping[str, Tensor]]:
    """What left, with weights and sources: the very bytes, where they are kept."""
    if run.cell.streamed:
        for round_ in range(source.rounds):
            yield from source.made(round_)
        return
    held = {**run.release.tensors, **run.release.secrets}
    for round_ in range(source.rounds):
        for start in range(0, source.rows, CHUNK):
            span = slice(start, start + CHUNK)
            yield {n: held[n][round_, span] for n in ("encodings", "weights", "sources")}


def _mixtures(source: Source) -> tuple[Tensor, Tensor]:
    """Weights and sources [rounds, n, k] of all rounds; the encodings are made and let go."""
    import torch

    weights, sources = [], []
    for round_ in range(source.rounds):
        kept = [(piece["weights"], piece["sources"]) for piece in source.made(round_)]
        weights.append(torch.cat([each for each, _ in kept]))
        sources.append(torch.cat([each for _, each in kept]))
    return torch.stack(weights), torch.stack(sources)


def _subjects(run: Run) -> Tensor | None:
    """Of private images, then of public ones; None where the dataset knows none."""
    import torch

    private, public = run.splits.private.subjects, run.splits.public.subjects
    if private is None:
        return None
    nobody = torch.full((len(run.splits.public),), -1)
    return torch.cat([private, nobody if public is None else public])


def ceilings(run: Run, leaked: Leakage) -> tuple[dict[str, Proof], tuple[Flag, ...]]:
    """What every ceiling says, beside what the cell's attacks reached, and who is above one."""
    proofs: dict[str, Proof] = {}
    flags: list[Flag] = []
    shown = _shown(run, leaked)
    for written, stage in CeilingStage.every(run.cell).items():
        proved = run(stage)
        proof = proved.proof
        if proved.errors and shown:
            found = compared(shown, proved.errors, _energies(run), judging(run.cell))
            proof = proof.model_copy(update={"reached": found[0]})
            flags += found[1]
        proofs[written] = proof
    return proofs, tuple(flags)


def _shown(run: Run, leaked: Leakage) -> list[Shown]:
    """What the attacks that came to an end showed of targets that they named themselves."""
    cell = run.cell
    done = {name for name, each in leaked.members.items() if each.status == "ok"}
    plans: dict[str, AttackPlan] = {
        name: cell.members[name] for name in cell.members if name in done
    }
    if not cell.members and cell.main and leaked.privacy:
        companions = {plan.attack.name: plan for plan in cell.companions}
        named = {name: plan for name, plan in companions.items() if name in leaked.companions}
        plans = {cell.attack.name: cell.main, **named}
    found = []
    for name, plan in plans.items():
        judged = run(JudgeStage(cell, plan))
        if judged.shown and not judged.unnamed and not judged.grouped:
            errors = judged.errors * run.splits.private.images[0].numel()
            found.append(Shown(name, errors, bounded_by(cell, plan)))
    return found


def bounded_by(cell: Cell, plan: AttackPlan) -> str:
    """The quantity that holds against an attack; "" where it is told more than a prior.

    Whoever has a list that the targets are on, or the truth, has a better prior than the
    population.
    """
    if Channel.CANDIDATES in plan.channels or not cell.threat_model.ranked:
        return ""
    return POOLED + (LABELS if Channel.LABELS in plan.channels else "")


def _energies(run: Run) -> Tensor:
    """[targets] |x|² of standardised targets."""
    truth = run.truth
    targets = truth.splits.private[: truth.targets].standardised(truth.splits.scale).images
    return targets.flatten(1).double().square().sum(1)
