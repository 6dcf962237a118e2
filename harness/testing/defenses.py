"""Checks of defenses, each at its own work and through the true release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from harness.api import (
    CellFailed,
    Encoded,
    HarnessError,
    Law,
    Measured,
    PiecewiseDefense,
    Recipe,
    Release,
    ReleaseKind,
    Samples,
    Stage,
)
from harness.asking.plan import resolved
from harness.rng import Axis, KeyedStream, derive
from harness.running.learning import learning
from harness.running.samples import Space, standardised
from harness.scoring.lawful import EXACT, like_public, unlike_law
from harness.testing.datasets import known
from harness.testing.subject import Subject, Violation, refusal
from harness.testing.watch import (
    ENGINE,
    META,
    TORCH,
    different,
    disciplined,
    forgetful,
    on_meta,
    unmoved,
    untouched,
)
from harness.testing.workbench import KEY, VICTIM, asked, workbench

KINDS = {
    Stage.ENCODING: ReleaseKind.ENCODINGS,
    Stage.TRAINING: ReleaseKind.FEATURES,
    Stage.GRADIENT: ReleaseKind.GRADIENTS,
    Stage.STATISTICS: ReleaseKind.STATISTICS,
}
ROUNDS = 2
BATCH = 2
PIECE = 7
"""Rows asked for at a time, but for the first and the last."""
ANOTHER = b"another owner's key"
MASKS = "extra.masks"
GUARANTEE = {"epsilon", "delta", "adjacency", "assumptions"}
"""What a release of sums has to say of what it proves."""


class Counting(KeyedStream):
    """A stream that counts how often it, or one that came of it, was read."""

    def __init__(self, key: bytes, reads: list[int] | None = None) -> None:
        super().__init__(key)
        self.reads = reads if reads is not None else [0]

    def stream(self, **axes: Axis) -> Counting:
        """An independent stream that counts together with this one."""
        return Counting(derive(self.key, axes), self.reads)

    def bytes(self, count: int) -> bytes:
        """Random bytes."""
        self.reads[0] += 1
        return super().bytes(count)


def cell_of(subject: Subject, case: str = "grey") -> dict[str, Any]:
    """Options of the cell that a defense is checked in."""
    stage: Stage = subject.spec.stage
    rounds = ROUNDS if stage is Stage.ENCODING else 1
    more = {"rounds": rounds, "batch_size": BATCH, "only": "utility"}
    return asked(case, defense=subject.text, **more)


def release_of(subject: Subject, case: str = "grey", secret: bytes | None = None) -> Release:
    """What leaves under the defense, made anew. CellFailed where it breaks its contract."""
    with workbench(cell_of(subject, case), secret=secret) as bench:
        return bench.release(KINDS[subject.spec.stage])


def everything(release: Release) -> dict[str, Tensor]:
    """All tensors of a release, and what the owner keeps."""
    kept = {f"secret {name}": tensor for name, tensor in release.secrets.items()}
    return {**release.tensors, **kept}


def deterministic(subject: Subject) -> str:
    """The same owner's key gives the same bytes."""
    one, other = release_of(subject), release_of(subject)
    wrong = different(everything(one), everything(other))
    if one.resolved != other.resolved:
        wrong.append("resolved parameters")
    if wrong:
        raise Violation(f"two runs under one key differ in {', '.join(wrong)}")
    return "two runs under one key give the same bytes"


def leaves_the_world_alone(subject: Subject) -> str:
    """A release leaves global state as it was; training has torch's generator for itself."""
    seeded = () if subject.spec.stage in (Stage.ENCODING, Stage.STATISTICS) else (TORCH,)
    return unmoved(lambda: release_of(subject), *seeded)


def copes_with(subject: Subject, case: str) -> str:
    """Data out of the ordinary is released, or refused in a sentence of the defense's own."""
    try:
        release = release_of(subject, case)
    except HarnessError as error:
        return refusal(error)
    name, tensor = next(iter(release.tensors.items()))
    return f"{name} {list(tensor.shape)}"


def can_be_trained_on(subject: Subject) -> str:
    """A victim is trained under the defense, and asked as the defense would have it asked."""
    with workbench(cell_of(subject)) as bench:
        try:
            found = learning(bench.run).utility
        except CellFailed as error:
            raise Violation(str(error)) from error
    assert found
    return f"accuracy {found.accuracy:.2f} on {found.n} images after two epochs"


def images(subject: Subject) -> tuple[Samples, Samples]:
    """Private and public images, standardised."""
    with workbench(cell_of(subject)) as bench:
        splits = bench.run(Space.of(bench.run.cell))
        return standardised(splits.private, splits.scale), standardised(splits.public, splits.scale)


def gradients() -> dict[str, Tensor]:
    """Gradients of a small network, by parameter name."""
    generator = torch.Generator().manual_seed(5)
    shapes = {"hidden.weight": (32, 256), "hidden.bias": (32,), "head.weight": (3, 32)}
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


def encodes(subject: Subject) -> str:
    """Shapes, types and bounds of a round; its inputs are left as they were."""
    private, public = images(subject)
    with untouched(**{"private images": private.images, "public images": public.images}):
        subject.build().encode(private, public, KeyedStream(KEY))
    release = release_of(subject)
    primary = release.secrets["sources"][..., 0].sort(dim=1).values
    if not bool((primary == torch.arange(primary.shape[1])).all()):
        raise Violation(
            "a round does not have each private image as the first source of one encoding",
            "put the image that a row is the encoding of first in its `sources`",
        )
    if subject.spec.hides_signs and MASKS not in release.secrets:
        raise Violation("it declares hides_signs and keeps no `masks` among its secrets")
    return f"encodings {list(release.tensors['encodings'].shape)} float32"


def encodes_in_pieces(subject: Subject) -> str:
    """The pieces of a round are the rows of the whole, whatever their sizes."""
    private, public = images(subject)
    defense = subject.build()
    if not isinstance(defense, PiecewiseDefense):
        return "makes a round in one piece"
    whole = defense.encode(private, public, KeyedStream(KEY))
    begun = defense.begin(private, public, KeyedStream(KEY))
    sizes = [1, *[PIECE] * ((len(private) - 1) // PIECE), (len(private) - 1) % PIECE]
    pieces = [begun.rows(rows) for rows in torch.split(torch.arange(len(private)), sizes)]
    joined = {name: torch.cat([_parts(piece)[name] for piece in pieces]) for name in _parts(whole)}
    wrong = different(joined, _parts(whole))
    if begun.resolved != whole.resolved:
        wrong.append("resolved parameters")
    if begun.shape != tuple(whole.images.shape[1:]):
        wrong.append("the shape of an encoding")
    if wrong:
        raise Violation(f"pieces of a round and the whole differ in {', '.join(wrong)}")
    return f"{len(pieces)} pieces hold the rows of the whole"


def states_its_law(subject: Subject) -> str:
    """The stated noise is the one that is there: ceilings are proven from what is stated."""
    private, public = images(subject)
    defense = subject.build()
    made = defense.encode(private, public, KeyedStream(KEY))
    law = defense.law(made.images[0].numel(), made.resolved)
    if fault := like_public(made.images.flatten(1), public.images.flatten(1)):
        raise Violation(fault, "release the private images, protected; whose are these?")
    if law is None:
        return "states none: nothing is proven of what leaks"
    if law.altered or (law.signs and law.noise != "none"):
        return f"of {law.altered or 'rows under random signs'}: cannot be held against its rows"
    rows, pool = made.images.flatten(1), torch.cat([private.images, public.images]).flatten(1)
    fault = unlike_law(law, rows, made.secrets.weights, made.secrets.sources, pool)
    if "correlated" in fault:
        raise Violation(fault, "return None from `law`: no ceiling is stated for coloured noise")
    if fault:
        raise Violation(fault)
    if law.noise == "none":
        return "rows are their mixtures"
    _exposed(law, made, len(private))
    return f"{law.noise} noise of the stated deviation"


def _exposed(law: Law, made: Encoded, images: int) -> None:
    """No image of this round is told more of than the law allows any."""
    if law.exposure is None:
        return
    deviations = law.deviations(made.secrets.weights)
    told = [
        float(
            (made.secrets.weights.double() * (made.secrets.sources == image))
            .sum(1)
            .div(deviations)
            .square()
            .sum()
        )
        for image in range(images)
    ]
    if max(told) > law.exposure * (1 + EXACT):
        raise Violation(
            f"a round tells {max(told):.4g} of one image, and the stated exposure is "
            f"{law.exposure:.4g}",
            "state the largest Σ (weight / deviation)² over all weights and orders there may be",
        )


def _parts(made: Encoded) -> dict[str, Tensor]:
    kept = {"weights": made.secrets.weights, "sources": made.secrets.sources, **made.secrets.extra}
    return {"images": made.images, "labels": made.labels, **kept}


def trains(subject: Subject) -> str:
    """The recipe stays one, and a model is trained to the end under the defense."""
    recipe = subject.build().adapt(resolved("victims", VICTIM, "quick", known()).config)
    if not isinstance(recipe, Recipe):
        raise Violation(f"adapt returned {type(recipe).__name__}; wanted the recipe it was given")
    features = release_of(subject).tensors["features"]
    if not bool(features.isfinite().all()):
        raise Violation("features that are not all finite")
    return f"features {list(features.shape)}"


def protects(subject: Subject) -> str:
    """Every gradient comes back in its shape and type; what was given is left as it was."""
    given = gradients()
    with untouched(**given):
        got = subject.build().protect(given, KeyedStream(KEY))
    for name, gradient in given.items():
        found = got.get(name)
        if found is None or (found.shape, found.dtype) != (gradient.shape, gradient.dtype):
            what = "nothing" if found is None else f"{list(found.shape)} {found.dtype}"
            raise Violation(f"'{name}' {list(gradient.shape)} float32 comes back as {what}")
        if not bool(found.isfinite().all()):
            raise Violation(f"'{name}' comes back with values that are not finite")
    release = release_of(subject)
    count = sum(name.startswith("gradients.") for name in release.tensors)
    return f"gradients of {count} parameters"


def sums(subject: Subject) -> str:
    """Sums and counts by class, with a map that gives as many numbers of any image."""
    private, public = images(subject)
    with untouched(**{"private images": private.images, "public images": public.images}):
        made = _measured(subject, private, public)(KeyedStream(KEY))
        found = subject.build().embed(public.images, made.basis)
    if found.dtype != torch.float32 or found.shape != (len(public), made.sums.shape[1]):
        raise Violation(f"embed gives {list(found.shape)}; wanted [{len(public)}, q] float32")
    if missing := sorted(GUARANTEE - made.guarantee.keys()):
        raise Violation(
            f"its guarantee does not say {', '.join(missing)}",
            "say in `guarantee` what is proven, and of which neighbouring data",
        )
    release_of(subject)
    return f"sums {list(made.sums.shape)} float32"


def _measured(
    subject: Subject, private: Samples, public: Samples
) -> Callable[[KeyedStream], Measured]:
    classes = int(private.labels.max()) + 1
    return lambda stream: subject.build().measure(private, public, classes, stream)


def sums_secretly(subject: Subject) -> str:
    """Another key sums otherwise, if anything is drawn at all."""
    measure = _measured(subject, *images(subject))
    reads = _reads(lambda stream: {"sums": measure(stream).sums}, "sums")
    if not reads:
        return "draws nothing from its stream: every owner's sums are the same"
    return f"another key sums otherwise; {reads} draws"


def sums_and_forgets(subject: Subject) -> str:
    """Releases of one instance leave nothing behind."""
    private, public = images(subject)
    defense, classes = subject.build(), int(private.labels.max()) + 1
    return forgetful(lambda _: defense.measure(private, public, classes, KeyedStream(KEY)))


def sums_on_any_device(subject: Subject) -> str:
    """Its map works on the device of the images."""
    private, public = images(subject)
    made = _measured(subject, private, public)(KeyedStream(KEY))
    basis = {name: tensor.to(META) for name, tensor in made.basis.items()}
    away = on_meta(public)
    return disciplined(subject, lambda: subject.build().embed(away.images, basis))


def _encoding(subject: Subject) -> Callable[[KeyedStream], dict[str, Tensor]]:
    """A round of one instance, as its images and what the owner keeps of it."""
    private, public = images(subject)
    defense = subject.build()

    def encode(stream: KeyedStream) -> dict[str, Tensor]:
        return _parts(defense.encode(private, public, stream))

    return encode


def encodes_secretly(subject: Subject) -> str:
    """Another key encodes otherwise, and so does another round, if anything is drawn at all."""
    reads = _reads(_encoding(subject), "encodings")
    if not reads:
        return "draws nothing from its stream: every owner's encoding is the same"
    return f"another key encodes otherwise; {reads} draws in a round"


def protects_secretly(subject: Subject) -> str:
    """Another key protects otherwise, if anything is drawn at all."""
    reads = _reads(lambda stream: subject.build().protect(gradients(), stream), "gradients")
    if not reads:
        return "draws nothing from its stream"
    return f"another key protects otherwise; {reads} draws for one batch"


def _reads(work: Callable[[KeyedStream], Mapping[str, Tensor]], what: str) -> int:
    """How often `work` reads its stream; Violation if it does, and another gives the same."""
    stream = Counting(KEY)
    one = dict(work(stream))
    if stream.reads[0] and not different(one, work(KeyedStream(ANOTHER))):
        raise Violation(f"it draws from its stream, and another key gives the same {what}")
    return stream.reads[0]


def trains_secretly(subject: Subject) -> str:
    """Another owner's key trains another model."""
    one, other = release_of(subject), release_of(subject, secret=ANOTHER)
    if not different(everything(one), everything(other)):
        raise Violation("another key gives the very same model")
    return "another key trains another model"


def encodes_and_forgets(subject: Subject) -> str:
    """Rounds of one instance leave nothing behind."""
    encode = _encoding(subject)
    return forgetful(lambda turn: encode(KeyedStream(KEY).stream(round=turn)))


def trains_and_forgets(subject: Subject) -> str:
    """Trainings leave nothing behind."""
    return forgetful(lambda _: release_of(subject), ENGINE)


def protects_and_forgets(subject: Subject) -> str:
    """Batches of one training leave nothing behind."""
    defense, given = subject.build(), gradients()
    return forgetful(lambda turn: defense.protect(given, KeyedStream(KEY).stream(batch=turn)))


def encodes_on_any_device(subject: Subject) -> str:
    """It works on the device of its images."""
    private, public = map(on_meta, images(subject))
    return disciplined(subject, lambda: subject.build().encode(private, public, KeyedStream(KEY)))


def trains_on_any_device(subject: Subject) -> str:
    """It works on the device of the hidden layer."""
    hidden, labels = torch.zeros(6, 32, device=META), torch.zeros(6, 3, device=META)
    return disciplined(subject, lambda: subject.build().penalty(hidden, labels))


def protects_on_any_device(subject: Subject) -> str:
    """It works on the device of the gradients."""
    given = on_meta(gradients())
    return disciplined(subject, lambda: subject.build().protect(given, KeyedStream(KEY)))
