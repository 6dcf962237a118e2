"""Train: the victim under a stack, and what it makes of the test images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.api.data import Samples, Splits
from harness.api.errors import CellFailed
from harness.api.knowledge import OF_BATCHES, ReleaseKind
from harness.api.plugins import Progress, Recipe, Victim, silent
from harness.api.precision import Precision
from harness.api.release import Release
from harness.rng import public_stream, secret_stream
from harness.running.release import (
    OWNER_MODEL,
    SECONDS,
    ReleaseStage,
    Stack,
    build_stack,
    input_shape,
    measured,
    recipe_of,
    victim_under,
)
from harness.running.samples import Space, standardised
from harness.running.stage import Output, Stage, hardware, plugin_boundary
from harness.scoring.utility import (
    ENCODED,
    LARGEST,
    PLAIN,
    RECOMPUTED,
    Right,
    Utility,
    separability,
    summed_up,
)
from harness.store.artifacts import Artifact, below
from harness.store.provenance import plugin_identity

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from harness.api.randomness import Stream
    from harness.asking.plan import Cell
    from harness.asking.request import Resolved
    from harness.rng import KeyedStream
    from harness.running.run import Run

SHORTEST_SECONDS = 0.5
"""Trainings below this are over before the machine has settled; their ratio would be noise."""
RECOMPUTE_WITH = 4096
"""Public images that BatchNorm statistics are recomputed on, at most."""


@dataclass(frozen=True)
class Trained:
    """One training: what the victim got right, what was measured, and how long it took."""

    right: Right
    measures: Mapping[str, float]
    seconds: float


@dataclass(frozen=True, eq=False)
class TrainStage(Stage[Trained]):
    """A victim trained under a stack, on what leaves as `kind`.

    The first under a training defense may be the release's own. Further ones start anew, from
    other weights and in another order, on what the owner trained on.
    """

    name = "train"
    defenses: tuple[Resolved, ...]
    kind: ReleaseKind
    repeat: int = 0

    @classmethod
    def own(cls, cell: Cell) -> list[TrainStage]:
        """The trainings whose accuracy counts in a cell."""
        return cls._repeated(cell, cell.defenses, cell.trained_kind)

    @classmethod
    def unprotected(cls, cell: Cell) -> list[TrainStage]:
        """The trainings that accuracies are held against."""
        return cls._repeated(cell, (), ReleaseKind.ENCODINGS)

    @classmethod
    def _repeated(
        cls, cell: Cell, defenses: tuple[Resolved, ...], kind: ReleaseKind
    ) -> list[TrainStage]:
        more = range(1, cell.request.repeats)
        first = cls(cell, defenses, kind)
        return [first, *(cls(cell, defenses, ReleaseKind.ENCODINGS, i) for i in more)]

    @property
    def label(self) -> str:
        """The unprotected ones have a label of their own."""
        unprotected = "" if self.defenses == self.cell.defenses else " unprotected"
        again = f" {self.repeat + 1}" if self.repeat else ""
        return f"{self.name}{unprotected}{again}"

    @property
    def _release(self) -> ReleaseStage:
        return ReleaseStage(self.cell, self.defenses, self.kind)

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """The release, and test images."""
        return (self._release, Space.of(self.cell))

    def facts(self) -> dict[str, Any]:
        """Victim, defenses and seeds."""
        return {
            "victim": plugin_identity(self.cell.victim),
            "defenses": [plugin_identity(d) for d in self.defenses],
            "repeat": self.repeat,
            "seed": self.cell.request.seed,
            "owner": self.cell.owner,
            "hardware": hardware(self.cell, self.cell.victim_precision(self.defenses)),
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Train, and ask what was learned."""
        from harness.running.training import EpochClock, state

        made, splits = run(self._release), run.splits
        stack, victim = build_stack(run, self.defenses), victim_under(run, self.defenses)
        clock = EpochClock(progress)
        with plugin_boundary(self.cell.victim.name):
            model = train(
                made,
                run.build("victims", victim.spec, victim.config),
                len(splits.classes),
                self._training_stream(stack, run.secret),
                run.device,
                stack=stack,
                precision=self.cell.victim_precision(self.defenses),
                progress=clock,
            )
            seconds = float(made.facts.get(SECONDS, clock.seconds))
            asking = self._repeated_stream(
                secret_stream(self.cell.request.seed, run.secret), "utility"
            )
            right = utility(model, splits, stack, asking, run.device)
            measures = {
                **(measured(made) or stack.measures()),
                **_separability(model, recipe_of(victim).cut, splits, run.device),
            }
        facts = {"right": right.model_dump(), "measures": measures, SECONDS: seconds}
        return Artifact(state(model), facts)

    def _training_stream(self, stack: Stack, secret: bytes | None) -> KeyedStream:
        """Public, but secret where a defense draws its own noise from it."""
        seed = self.cell.request.seed
        hidden = bool(stack.training or stack.gradient)
        stream = secret_stream(seed, secret) if hidden else public_stream(seed)
        return self._repeated_stream(stream, "train")

    def _repeated_stream(self, stream: KeyedStream, stage: str) -> KeyedStream:
        axes = {"repeat": self.repeat} if self.repeat else {}
        return stream.stream(stage=stage, **axes)

    def read(self, stored: Artifact) -> Trained:
        """What is said of the training; its weights stay in the store."""
        facts = stored.facts
        right = Right.model_validate(facts["right"])
        return Trained(right, facts["measures"], facts[SECONDS])


def _separability(
    model: nn.Sequential, cut: str, splits: Splits, device: torch.device
) -> dict[str, float]:
    """How far apart the private images lie where the victim is cut, if it has a cut."""
    from harness.running.training import outputs
    from harness.sandbox.rebuilding import cut_at

    if not cut:
        return {}
    private = standardised(splits.private[:LARGEST], splits.scale)
    h, _ = cut_at(model, cut)
    return separability(outputs(h, private.images, device), private.labels)


def train(
    release: Release,
    victim: Victim[Any],
    classes: int,
    stream: Stream,
    device: torch.device,
    *,
    stack: Stack | None = None,
    precision: Precision = "float32",
    progress: Progress = silent,
) -> nn.Sequential:
    """The victim trained under this release's stack, on `device`, in evaluation mode.

    Encodings: trained here, from the released bytes alone, with the stack's training and
    gradient defenses; epoch e reads round e mod T. Features: the owner trained it while making
    the release, and it comes back from the secrets. Gradients are of a model that was stopped
    early, as updates are: for the accuracy of their stack, train on its encodings.
    """
    from harness.running.training import fit, fresh
    from harness.sandbox.rebuilding import restore

    if release.kind is ReleaseKind.FEATURES:
        owned = below(OWNER_MODEL, release.secrets)
        return restore(victim, input_shape(release), classes, owned).to(device)
    if release.kind in OF_BATCHES:
        raise CellFailed(f"{release.kind} hold no trained victim; train on the stack's encodings")
    images, labels = release.tensors["encodings"], release.tensors["labels"]
    shape = tuple(images.shape[2:])
    model = fresh(victim, shape, classes, stream, device=device)
    recipe: Recipe = victim.config
    return fit(
        model,
        images,
        labels,
        recipe,
        stream,
        device=device,
        stack=stack,
        precision=precision,
        progress=progress,
    )


def utility(
    model: nn.Sequential, splits: Splits, stack: Stack, stream: Stream, device: torch.device
) -> Right:
    """What `model`, on `device` and in evaluation mode, makes of the test images.

    `stream` feeds a defense that encodes before inference. The model is left as it is.
    """
    from harness.running.training import correct, outputs

    test = standardised(splits.test, splits.scale)
    encoded = _encoded_logits(model, test, splits, stack, stream, device)
    logits = {
        **({ENCODED: encoded} if encoded is not None else {}),
        PLAIN: outputs(model, test.images, device),
        **_recomputed_logits(model, test, splits, device),
    }
    return Right(
        inference=PLAIN if encoded is None else ENCODED,
        counts={way: correct(found, test.labels) for way, found in logits.items()},
        chance=test.labels.bincount().max().item() / len(test),
        n=len(test),
    )


def _encoded_logits(
    model: nn.Sequential,
    test: Samples,
    splits: Splits,
    stack: Stack,
    stream: Stream,
    device: torch.device,
) -> Tensor | None:
    """The defense's own inference, batch by batch; None where it asks plainly."""
    from harness.running.training import outputs

    if stack.encoding is None or not stack.encoding[1].infers:
        return None
    defense, rng = stack.encoding[1], stream.stream(what="inference")
    private, public = (
        standardised(part, splits.scale).map(lambda images: images.to(device))
        for part in (splits.private, splits.public)
    )
    return outputs(
        lambda images: defense.infer(model, images, private, public, rng), test.images, device
    )


def _recomputed_logits(
    model: nn.Sequential, test: Samples, splits: Splits, device: torch.device
) -> Mapping[str, Tensor]:
    """Plain inference with clean BatchNorm statistics; nothing without BatchNorm."""
    from harness.running.training import outputs

    if not _has_batchnorm(model) or len(splits.public) < 2:
        return {}
    public = standardised(splits.public[:RECOMPUTE_WITH], splits.scale)
    clean = with_statistics_of(model, public.images, device)
    return {RECOMPUTED: outputs(clean, test.images, device)}


def _has_batchnorm(model: nn.Module) -> bool:
    from torch.nn.modules.batchnorm import _BatchNorm

    return any(isinstance(module, _BatchNorm) for module in model.modules())


def with_statistics_of(model: nn.Sequential, images: Tensor, device: torch.device) -> nn.Sequential:
    """A copy of `model` whose running BatchNorm statistics are averages over `images`."""
    import copy

    from torch.optim.swa_utils import update_bn

    from harness.api.training import spans

    copied = copy.deepcopy(model)
    update_bn((images[span] for span in spans(len(images), 256)), copied, device)
    return copied.eval()


def trained(run: Run) -> tuple[Utility, Mapping[str, float]]:
    """The victim's accuracy beside that of the same victim on unprotected images.

    Measured are its first training, and a young victim's gradients or updates.
    """
    own = [run(stage) for stage in TrainStage.own(run.cell)]
    plain = [run(stage) for stage in TrainStage.unprotected(run.cell)]
    run.timing.update(_seconds(own, plain))
    measures = dict(own[0].measures)
    if run.cell.kind in OF_BATCHES:
        young = measured(run.release)
        measures |= {f"release.{name}": value for name, value in young.items()}
    return summed_up([t.right for t in own], [t.right for t in plain]), measures


def _seconds(own: Sequence[Trained], plain: Sequence[Trained]) -> dict[str, float]:
    """How long trainings took under the stack and unprotected, and the ratio.

    Nothing is said of what is too short to be measured.
    """
    ours, theirs = (sum(training.seconds for training in part) for part in (own, plain))
    if min(ours, theirs) < SHORTEST_SECONDS:
        return {}
    return {
        "training": round(ours, 3),
        "training unprotected": round(theirs, 3),
        "training ratio": round(ours / theirs, 3),
    }
