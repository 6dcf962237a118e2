"""A package under attack: what left is what the file holds, and its owner's images are the truth.

Whoever has no key knows as much as a server does: not who is mixed in which row. The owner's key
and its ledger make weights and sources again, byte by byte what left, and then every attack can be
tried that an evaluation tries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from harness.api import Channel, NotApplicable, ReleaseKind, Splits, UsageError
from harness.asking.plan import Cell, plan
from harness.asking.registry import Registry, registry
from harness.asking.request import make_request
from harness.drawing.gallery import draw_gallery
from harness.packages.keys import OwnerKey
from harness.packages.ledger import Entry, Ledger, packed, tags_of
from harness.packages.package import Package
from harness.packages.releasing import KEPT, alike_to, part_of
from harness.packages.samples import opened, require_known, written
from harness.packages.statement import Statement
from harness.running.attack import SECRET, Answer
from harness.running.ceiling import CeilingStage, Proved
from harness.running.encoding import Held, Source, source_of
from harness.running.load import LoadStage, collection_of
from harness.running.rounds import Rounds
from harness.running.run import Observer, Run, check_machine, check_stage, equip
from harness.running.samples import Space
from harness.running.stage import Output
from harness.scoring.ceilings import Proof
from harness.store import Store, cache_root
from harness.store.artifacts import Artifact
from harness.store.provenance import sha256_of, source_sha256

if TYPE_CHECKING:
    from torch import Tensor

    from harness.store.record import RunRecord

Out = TypeVar("Out")

TAKEN = {"defense": "law", "space": "space", "rounds": "rounds", "release": "encodings"}
"""Options of an evaluation that a package decides, and what of it does."""
KEYLESS = "released"
"""The threat model of whoever has the package and no key."""
UNMIXED = frozenset({"class_means", "p_values"})
"""Claims that can be checked by somebody who does not know who is mixed in which row."""
_SECRET = SECRET | {Channel.MASKS}


@dataclass(frozen=True)
class Truth:
    """Whose images a package is of, as its owner named them: a dataset, or a part of one."""

    dataset: str
    part: tuple[int, int] | None = None


def attack_package(
    path: Path,
    truth: Truth,
    key: OwnerKey | None,
    observer: Observer,
    *,
    force: str | None = None,
    **options: Any,
) -> RunRecord:
    """Attack a package and judge it against the truth; `options` are those of an evaluation.

    UsageError where something else is asked for than the package is, where the truth is not what
    it was made of as far as that can be known, or where a threat model takes the key and there is
    none. IntegrityError where the package was changed. The record's seeds name the package.
    """
    check_stage(force)
    with Package.open(path) as package:
        with observer.stage(f"check {path.name}") as progress:
            package.check(progress)
        run = _run(package, truth, key, observer, force, options)
        if answer := run.answer():
            return answer
        if not run.cell.reason:
            _fill(run, package, truth, key)
        try:
            record = run.record()
        finally:
            run.forget()
    if record.artifacts:
        draw_gallery(run.store.root, record)
    return record


def _run(
    package: Package,
    truth: Truth,
    key: OwnerKey | None,
    observer: Observer,
    force: str | None,
    options: Mapping[str, Any],
) -> Run:
    """A run of the cell that the package is of; nothing in it is the package's yet."""
    known = registry()
    require_known(package.said.law, known)
    root, secret = cache_root(), key.secret if key else None
    asked = _asked(package.said, truth, key, options, known)
    asked["private_size"] = _count(package.said, truth, asked, observer)
    cell = equip(plan(make_request(**asked), known), root, secret)
    cell = _named(cell, package.said, truth, key)
    kind = Run if key else _Outside
    return kind(cell, Store(root), known, observer=observer, secret=secret, force=force)


def _asked(
    said: Statement,
    truth: Truth,
    key: OwnerKey | None,
    options: Mapping[str, Any],
    known: Registry,
) -> dict[str, Any]:
    """The options of the cell; UsageError where they are not the package's, or the key lacks."""
    for name, what in TAKEN.items():
        if options.get(name) is not None:
            raise UsageError(f"--package decides on the {what}; leave --{name} out.")
    if options.get("dataset") is not None:
        raise UsageError("With --package, --truth names the images; leave --dataset out.")
    model = options.get("threat_model") or ("informed" if key else KEYLESS)
    secret = sorted(known.spec("threat_models", model).grants & _SECRET)
    if secret and key is None:
        raise UsageError(
            f"ChannelNotGranted: the threat model '{model}' grants {', '.join(secret)}, which no "
            f"package holds; --owner-key makes them again, and --threat-model {KEYLESS} does "
            "without."
        )
    return {
        **options,
        "threat_model": model,
        "defense": written(said.law),
        "space": written(said.preprocessing.space),
        "rounds": said.rounds,
        "release": str(ReleaseKind.ENCODINGS),
        "dataset": truth.dataset,
    }


def _count(said: Statement, truth: Truth, asked: Mapping[str, Any], observer: Observer) -> int:
    """Private images to load, of which the truth may be a part.

    UsageError where they leave no public images to an attacker who is to have those of one dataset.
    """
    run = opened(observer, dataset=truth.dataset)
    own = collection_of(run, run.cell.dataset)
    count = asked.get("private_size") or (own.may_be_private if truth.part else said.rows)
    if asked.get("public") is None and count >= len(own.train):
        raise UsageError(
            f"The owner has all {len(own.train)} images of '{truth.dataset}', which leaves an "
            "attacker none like them: name some with --public."
        )
    return int(count)


def _named(cell: Cell, said: Statement, truth: Truth, key: OwnerKey | None) -> Cell:
    """The same cell under names of its own: all that is stored of it lies under them.

    What a channel is not granted for is the key's to grant, where there is none.
    """
    fingerprint = key.fingerprint if key else ""
    told = [Space.of(cell).key, said.seal, truth.part, fingerprint, source_sha256(__name__)]
    data = {**cell.fingerprints, cell.dataset.written: f"truth of a package {sha256_of(told)}"}
    by = " and its owner's key" if key else ""
    # A scale that the package brings is of no target, or the package itself says that it is.
    spec = replace(cell.dataset.spec, measured_scale=False)
    reason = cell.reason
    if reason and reason.startswith("ChannelNotGranted") and key is None:
        reason = f"{reason}; of a package, that takes --owner-key"
    return replace(
        cell,
        dataset=replace(cell.dataset, spec=spec),
        owner=f"package {said.release}, seal {said.seal}{by}",
        fingerprints=data,
        reason=reason,
    )


def _fill(run: Run, package: Package, truth: Truth, key: OwnerKey | None) -> None:
    """Put the truth and what left into the run.

    UsageError where the one cannot be what the other was made of.
    """
    check_machine(run.cell.device)
    images = _loaded(run, package.said, truth)
    splits = alike_to(run(Space.of(run.cell)), images.private.shape, package.said)
    run.give(Space.of(run.cell), splits)
    source: Any = Received(package)
    if key:
        entry = _entry(Ledger(key), package.said, images, key)
        source = _again(run, package.said, splits, key, entry)
    run.give(Rounds.of(run.cell), source)
    _promise(run, package.said, key)


def _loaded(run: Run, said: Statement, truth: Truth) -> Splits:
    """The owner's images, public and test images; stored as they are judged, for pictures."""
    stage = LoadStage.of(run.cell)
    made = stage.make(run, lambda *_: None)
    splits = part_of(LoadStage.read(made), truth.part)
    private = splits.private
    if len(private) != said.rows:
        raise UsageError(
            f"The package is of {said.rows} images, and the truth has {len(private)}: give "
            "--private-size and --part as they were at the release."
        )
    if splits.classes != said.classes:
        raise UsageError(
            f"The package has the classes {', '.join(said.classes)}, and the truth has "
            f"{', '.join(splits.classes)}."
        )
    kept = {"images": private.images, "labels": private.labels, "subjects": private.subjects}
    own = {f"private.{name}": tensor for name, tensor in kept.items() if tensor is not None}
    run.store.write(stage.name, stage.key, Artifact({**made.tensors, **own}, made.facts))
    run.give(stage, splits)
    return splits


@dataclass(frozen=True)
class Received:
    """A package in the place of an owner's source: what left, and no secrets."""

    package: Package

    @property
    def rounds(self) -> int:
        """How often each image was encoded."""
        return self.package.rounds

    @property
    def rows(self) -> int:
        """Encodings of one round."""
        return self.package.rows

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one encoding."""
        return self.package.shape

    @property
    def resolved(self) -> Mapping[str, Mapping[str, float | int | str]]:
        """The law's parameters, all of which a package says."""
        law = self.package.said.law
        return {law.name: {name: v for name, v in law.config.items() if v is not None}}

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        """A round's encodings [b, *shape] float32 with their soft labels [b, classes]."""
        return self.package.pieces(round_)

    def held(self) -> Held:
        """All rounds at once."""
        import torch

        rounds = [zip(*self.pieces(t), strict=True) for t in range(self.rounds)]
        images, labels = zip(*[map(torch.cat, each) for each in rounds], strict=True)
        return Held(torch.stack(images), torch.stack(labels), {}, self.resolved)


def _entry(ledger: Ledger, said: Statement, images: Splits, key: OwnerKey) -> Entry:
    """The release's line in the ledger; UsageError where it has none, or is of other images."""
    found = next((each for each in ledger.entries() if each.release == said.release), None)
    if found is None:
        raise UsageError(
            f"{ledger.path} has no release {said.release[:16]}…: the package is another owner's, "
            "or the ledger is not the one that was kept."
        )
    if found.images != packed(tags_of(images.private.images, key.tag_key)):
        raise UsageError(
            "The truth is not the images that the package is of: give --private-size, --part and "
            "--seed as they were at the release."
        )
    return found


def _again(run: Run, said: Statement, splits: Splits, key: OwnerKey, entry: Entry) -> Source:
    """The owner's source of what left; UsageError unless it gives the package's very bytes."""
    encoding = run.cell.encoding
    assert encoding is not None
    named = encoding.name, run.build("defenses", encoding.spec, encoding.config)
    stream = key.stream(entry.release, entry.party, entry.asked)
    source = source_of(splits, named, stream, rounds=said.rounds)
    with run.watched("make it again") as progress:
        for round_ in range(said.rounds):
            progress(round_, said.rounds, f"round {round_ + 1}")
            names = [place.name for place in said.round(round_)]
            wanted = tuple(said.hashes[name] for name in names)
            if _hashes(source, round_) != wanted:
                raise UsageError(
                    f"Round {round_ + 1} of the package is not made again of this truth: give "
                    "--public, --public-size and --seed as they were at the release."
                )
    return source


def _hashes(source: Source, round_: int) -> tuple[str, str]:
    """SHA-256 of a round's encodings, and of its labels."""
    encodings, labels = hashlib.sha256(), hashlib.sha256()
    for images, soft in source.pieces(round_):
        encodings.update(images.contiguous().numpy().data)
        labels.update(soft.contiguous().numpy().data)
    return encodings.hexdigest(), labels.hexdigest()


def _promise(run: Run, said: Statement, key: OwnerKey | None) -> None:
    """Leave to the package what ceilings say, but for what its owner can find out again.

    The package says of a law that was measured on these images that nothing is proven: here its
    parameters are numbers like others.
    """
    silent = Proof(reason="the package says nothing of it")
    for written_, stage in CeilingStage.every(run.cell).items():
        proof = said.promise.ceilings.get(written_, silent)
        if key is None or proof.reason not in ("", KEPT):
            notes = (*proof.notes, f"as the package says of so many rounds: {said.promise.rounds}")
            run.give(stage, Proved(proof.model_copy(update={"notes": notes}), {}))


class _Outside(Run):
    """A run of somebody who has no key: nobody in it knows who is mixed in which row.

    An image for each row is judged as one for nobody by name: matched one to one with the truth,
    as the nulls are. Claims about rows and mixtures are not scored.
    """

    def __call__(self, output: Output[Out]) -> Out:
        """An output; of an attack what can be judged."""
        found = super().__call__(output)
        return cast("Out", judgeable(found)) if isinstance(found, Answer) else found


def judgeable(answer: Answer) -> Answer:
    """What can be judged of an answer without the mixtures; NotApplicable where nothing can."""
    found = answer.reconstruction
    claims = {name: each for name, each in found.claims.items() if name in UNMIXED}
    if found.images is None and not claims:
        raise NotApplicable(
            f"it claims {', '.join(sorted(found.claims))}, which only the owner's key can check"
        )
    return replace(answer, reconstruction=replace(found, rows=None, claims=claims))
