"""Making a package: what would leave is known, and said, before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from pydantic import TypeAdapter, ValidationError

from harness.api import Bound, EncodingDefense, NotApplicable, OwnersView, Scale, Splits, UsageError
from harness.api.specs import Stage
from harness.asking.plan import Cell
from harness.asking.registry import registry
from harness.asking.request import Resolved, expand, parse_one, parse_stack, resolve
from harness.boards.folder import every_board
from harness.packages.keys import OwnerKey, ReleaseStream, new_release
from harness.packages.ledger import Entry, History, Ledger, Tags, packed, tags_of
from harness.packages.package import check_place, fault_of, write_package
from harness.packages.samples import opened, written
from harness.packages.statement import (
    GRAMMAR,
    MOST_ROUNDS,
    UNSEALED,
    Name,
    Names,
    Preprocessing,
    Promise,
    Randomness,
    Statement,
    Used,
    Written,
)
from harness.results.identified import identified, in_words
from harness.results.material import gathered, lines
from harness.rng import public_stream
from harness.running.ceiling import law_of, owners_view
from harness.running.encoding import Source, source_of
from harness.running.load import LoadStage, SplitSizes, collection_of, load
from harness.running.rounds import Rounds
from harness.running.run import Observer, Run
from harness.running.samples import Space, space_identity
from harness.running.stage import plugin_boundary
from harness.scoring.ceilings import Proof, Proven
from harness.store.provenance import plain_config, plugin_identity, sha256_of, source_sha256

if TYPE_CHECKING:
    from torch import Tensor

KEPT = "it is estimated on the images themselves, and told to their owner alone"
DISTRIBUTION = "encoding-harness"
MU = "mu"
"""The quantity that says how much normal noise tells of one image; its squares add up."""
EPSILON, NAMED = "epsilon", "identification"
"""Quantities that an owner is asked about where they are large."""
MOST_EPSILON, MOST_NAMED = 1000.0, 0.5
BOUNDLESS = " is beyond all bounds"
MOST_APART = 10
"""Another package's deviations may be so many times those of the own images, or less than them."""
LOOKED_AT = 4096
"""Images whose deviation is measured, at most."""


@dataclass(frozen=True)
class Order:
    """What an owner asks for. `like` is what another package says, to be released alike."""

    party: str = ""
    like: Statement | None = None
    again: str = ""
    """The id of a release that is to be made once more, byte by byte, or how it begins."""
    new_ledger: bool = False
    """The ledger is lost, and one is to begin that counts nothing that left before."""


@dataclass(frozen=True)
class Pending:
    """A release that was made ready: all that is known of it, before it is written."""

    said: Statement
    source: Source
    entry: Entry
    ledger: Ledger
    history: History
    found: Promise
    """What is proven, for its owner: with what was estimated on the images themselves."""
    doubts: tuple[str, ...]
    """Why its owner has to agree to it first."""
    notes: tuple[str, ...]
    noisy: bool
    """Whether the law states noise."""

    def write(self, out: Path, observer: Observer) -> Statement:
        """Write it down in the ledger, then make it. A package that fails stays written down.

        UsageError where other releases of these images came between.
        """
        check_place(out, self.said.size)
        with self.ledger.held():
            now = self.ledger.history(self.entry.tags, until=self.entry.release)
            if now != self.history:
                raise UsageError(
                    "Some of these images were released meanwhile, which is not counted here; give "
                    "the command again."
                )
            self.ledger.add(self.entry)
        with observer.stage("encode and write") as progress:
            return write_package(out, self.said, self.source, progress)


def prepare(key: OwnerKey, order: Order, observer: Observer, **options: Any) -> Pending:
    """Load the images, say what may be proven, count what left before.

    `options` are those of `harness evaluate`. UsageError for what cannot be asked, CellFailed where
    the defense fails at these images.
    """
    _check_words(order, options)
    ledger = _ledger(key, order)
    run = opened(observer, secret=key.secret, **_asked(order, options), ceiling=True)
    encoding = encoding_of(run.cell)
    splits = _owned(run, order, options)
    tags = tags_of(run(LoadStage.of(run.cell)).private.images, key.tag_key)
    asked = data_digest(run.cell, splits, encoding, packed(tags))
    _check_like(ledger, order.like)
    entry, history = _begun(ledger, tags, asked, order.party or key.fingerprint, order.again)
    owner = key.stream(entry.release, entry.party, asked)
    named = encoding.name, run.build("defenses", encoding.spec, encoding.config)
    sources = _Sources(run, splits, named, owner)
    source = sources.of(run.cell.request.rounds)
    resolved = _parameters(source, encoding, splits)
    law = used(encoding, resolved)
    digest = _law_digest(run.cell, splits, law, source)
    promise, mu = _promise(sources, source.rounds, history, digest, alike=bool(order.like))
    entry = entry.model_copy(update={"law": digest, "rounds": source.rounds, "mu": mu})
    told = resolved if order.like else ()
    doubts = (*_unproven(promise), *_weak(promise), *_named_before(encoding, told))
    notes = tuple(_notes(run, order, source, history, ledger, promise))
    image = tuple(run(LoadStage.of(run.cell)).private.images.shape[1:])
    whose = Whose(entry.release, entry.party, entry.made)
    said = unsealed(run.cell, whose, image, splits, source, law, _told(promise))
    stated = law_of(run, source)
    noisy = stated is not None and stated.noise != "none"
    return Pending(said, source, entry, ledger, history, promise, doubts, notes, noisy)


def _check_words(order: Order, options: Mapping[str, Any]) -> None:
    """UsageError where no package can say what is asked for; nothing was loaded yet."""
    rounds = options.get("rounds")
    if isinstance(rounds, int) and not 1 <= rounds <= MOST_ROUNDS:
        raise UsageError(f"--rounds {rounds}: a package holds from 1 to {MOST_ROUNDS:,} rounds.")
    if order.party:
        _sayable(Name, order.party, "--party")
    if order.like is None and not options.get("public"):
        _check_public(parse_one(options.get("space") or "pixels").name)


def _check_public(space: str) -> None:
    if registry().spec("spaces", space).extracts:
        raise UsageError(
            f"Features of '{space}' are standardised as public images' are: name some with "
            "--public, the same for all parties, or release --like another package."
        )


def _parameters(source: Source, encoding: Resolved, splits: Splits) -> Mapping[str, Any]:
    """Public parameters as they turned out; UsageError where the defense has no use for this."""
    try:
        return source.resolved.get(encoding.name, {})
    except NotApplicable as error:
        hint = "" if len(splits.public) else " --public names some."
        raise UsageError(f"Nothing can be released: {error}{hint}") from None


def _sayable(kind: Any, value: Any, what: str) -> None:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise UsageError(f"A package cannot say {what}: {fault_of(error)}.") from None


def _ledger(key: OwnerKey, order: Order) -> Ledger:
    """The key's ledger; UsageError where it is gone, or there and to begin anew."""
    ledger = Ledger(key)
    if not ledger.exists and not order.new_ledger:
        raise UsageError(
            f"There is no ledger {ledger.path}, which `harness keygen` wrote beside the key: put "
            "it back from a copy. --new-ledger begins another; rounds that left before are then "
            "not counted, and ceilings say too little leaks."
        )
    if ledger.exists and order.new_ledger:
        raise UsageError(f"The ledger {ledger.path} is there: leave --new-ledger out.")
    return ledger


def _check_like(ledger: Ledger, like: Statement | None) -> None:
    """UsageError where another release of this owner is taken over of which nothing was proven.

    What it measured on the images would come back as plain numbers that a ceiling may believe.
    """
    own = ledger.entries() if like else ()
    if like and any(entry.release == like.release and entry.mu is None for entry in own):
        raise UsageError(
            "The release to be --like is your own, and nothing was proven of it: what it measured "
            "on your images proves nothing the second time either. Leave --like out, and give its "
            "--defense again."
        )


def _begun(ledger: Ledger, tags: Tags, asked: str, party: str, again: str) -> tuple[Entry, History]:
    """A new line of the ledger, or that of a release that is made `again`; and what left before.

    Law, rounds and mu of a new one are not known yet.
    """
    with ledger.held():
        known = ledger.find(again) if again else None
        history = ledger.history(tags, until=known.release if known else "")
    if known:
        ledger.require_same(known, party, asked)
        return known, history
    entry = Entry(
        release=new_release(),
        party=party,
        asked=asked,
        law="",
        rounds=1,
        mu=None,
        images=packed(tags),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        before=UNSEALED,
    )
    return entry, history


@dataclass(frozen=True)
class Whose:
    """Which release a package is, whose, and of when."""

    release: str
    party: str
    made: str


def unsealed(
    cell: Cell,
    whose: Whose,
    image: tuple[int, ...],
    splits: Splits,
    source: Source,
    law: Written,
    promise: Promise,
) -> Statement:
    """What the package will say, but for the hashes of what is not made yet."""
    return Statement(
        schema=1,
        version=version(DISTRIBUTION),
        made=whose.made,
        release=whose.release,
        party=whose.party,
        law=law,
        preprocessing=_preprocessing(cell, image, splits),
        rounds=source.rounds,
        rows=source.rows,
        shape=source.shape,
        classes=splits.classes,
        randomness=Randomness(),
        promise=promise,
        hashes={},
        seal=UNSEALED,
    )


def _asked(order: Order, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a run; UsageError where what another package decides is asked for too."""
    asked = {k: v for k, v in options.items() if k not in ("private_size", "public_size", "part")}
    if order.like is None:
        return asked
    for name in ("defense", "space"):
        if options.get(name) is not None:
            raise UsageError(f"--like takes the {name} from the other package; leave --{name} out.")
    asked |= {
        "defense": written(order.like.law),
        "space": written(order.like.preprocessing.space),
    }
    return {"rounds": order.like.rounds, **{k: v for k, v in asked.items() if v is not None}}


def encoding_of(cell: Cell) -> Resolved:
    """The one defense; UsageError where it makes no encodings, or these are the images."""
    others = [d for d in cell.defenses if d.spec.stage is not Stage.ENCODING]
    if others or len(cell.defenses) != 1:
        what = f"'{others[0].name}' works on {others[0].spec.stage}" if others else "there is none"
        raise UsageError(f"A package holds encodings, and {what}; name one encoding defense.")
    (encoding,) = cell.defenses
    if not encoding.spec.protects:
        raise UsageError(
            f"'{encoding.name}' protects nothing: it would release the images as they are."
        )
    return encoding


def _owned(run: Run, order: Order, options: Mapping[str, Any]) -> Splits:
    """All that the owner has, or so many of it, and the public images, in the space."""
    cell, asked = run.cell, options.get("private_size")
    own = collection_of(run, cell.dataset)
    _sayable(Names, tuple(own.classes), "these class names")
    public = collection_of(run, cell.public) if cell.public else None
    most = len(public.train) if public else 0
    sizes = SplitSizes(
        private=asked or own.may_be_private,
        public=options.get("public_size") or most,
        test=0,
        at_most=frozenset(("public",)),
    )
    stream = public_stream(cell.request.seed).stream(stage="load")
    images = part_of(load(own, public, sizes, stream), options.get("part"))
    if len(images.private) < 2:
        raise UsageError("One image has no other to be hidden among; release two at least.")
    if cell.space.spec.extracts and not len(images.public):
        # Somebody has to stand where the scale is measured; the other package has another one.
        stood = replace(images, public=images.private[:1])
        run.give(LoadStage.of(cell), stood)
        splits = replace(run(Space.of(cell)), public=images.public)
    else:
        run.give(LoadStage.of(cell), images)
        splits = run(Space.of(cell))
    if order.like is not None:
        alike = alike_to(splits, images.private.shape, order.like)
        _check_scale(splits, alike.scale)
        splits = alike
    run.give(Space.of(cell), splits)
    return splits


def part_of(splits: Splits, part: tuple[int, int] | None) -> Splits:
    """Every n-th image from the k-th on, where a dataset stands for several owners'."""
    if part is None:
        return splits
    k, n = part
    if not 1 <= k <= n <= len(splits.private):
        raise UsageError(f"--part {k}/{n} is none of {len(splits.private)} images; write 1/2, 2/2.")
    return replace(splits, private=splits.private[slice(k - 1, None, n)])


def alike_to(splits: Splits, image: tuple[int, ...], like: Statement) -> Splits:
    """Standardised as a package is; UsageError where images are of another shape than its."""
    steps = like.preprocessing
    if image != steps.image or splits.shape != steps.shape:
        raise UsageError(
            f"The package is of images of shape {steps.image}, and these are {tuple(image)}."
        )
    return replace(splits, scale=steps.scale)


def _check_scale(splits: Splits, theirs: Scale) -> None:
    """UsageError where a scale of another package would make noise vanish beside these images.

    Noise is added to standardised images: under a deviation of a millionth, they are a million.
    """
    own = splits.scale
    if (theirs.low, theirs.high) != (own.low, own.high):
        raise UsageError(
            f"The package is of values between {theirs.low} and {theirs.high}, and these lie "
            f"between {own.low} and {own.high}."
        )
    values = splits.private[:LOOKED_AT].unit().images.float()
    each = values.transpose(0, 1).flatten(1)
    alike = len(set(theirs.std)) == 1
    found = [float(values.std())] if alike else each.std(1).tolist()
    for mine, other in zip(found, theirs.std[: len(found)], strict=True):
        if not mine / MOST_APART <= other <= mine * MOST_APART:
            raise UsageError(
                f"The package standardises by a deviation of {other:.3g}, and these images have "
                f"{mine:.3g}: the noise of its law would not be to them what it is to its own."
            )


def _law_digest(cell: Cell, splits: Splits, law: Used, source: Source) -> str:
    """Of all by which two releases of the same images are more rounds of one release.

    What noise hides depends on the scale, the space and the shape that images are encoded in, and
    on the number of images, which decides how often each is drawn.
    """
    scale = splits.scale
    return sha256_of(
        {
            "law": law.model_dump(mode="json"),
            "space": space_identity(cell),
            "scale": [scale.mean, scale.std, scale.low, scale.high],
            "shapes": [splits.shape, source.shape],
            "rows": source.rows,
        }
    )


def data_digest(cell: Cell, splits: Splits, encoding: Resolved, tags: str = "") -> str:
    """Of the data and of all that decides what is made of it."""
    scale = splits.scale
    return sha256_of(
        {
            "engine": source_sha256("harness.running.encoding", "harness.rng", "harness.normals"),
            "defense": plugin_identity(encoding),
            "space": space_identity(cell),
            "rounds": cell.request.rounds,
            "images": tags,
            "private": [
                content_sha256(splits.private.images),
                content_sha256(splits.private.labels),
            ],
            "public": [content_sha256(splits.public.images), content_sha256(splits.public.labels)],
            "scale": [scale.mean, scale.std, scale.low, scale.high],
            "classes": splits.classes,
        }
    )


def content_sha256(values: Tensor) -> str:
    """A hash of a tensor's kind, shape and bytes."""
    digest = hashlib.sha256(f"{values.dtype} {tuple(values.shape)}".encode())
    for start in range(0, len(values), 4096):
        digest.update(values[start : start + 4096].contiguous().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class _Sources:
    """Rounds of one release, however many: the first are the same ones."""

    run: Run
    splits: Splits
    defense: tuple[str, EncodingDefense[Any]]
    owner: ReleaseStream

    def of(self, rounds: int) -> Source:
        """So many of them."""
        return source_of(self.splits, self.defense, self.owner, rounds=rounds)

    def view(self, rounds: int, *, alike: bool) -> OwnersView:
        """What ceilings are given; `alike`: under a scale that no image here decided."""
        self.run.give(Rounds.of(self.run.cell), self.of(rounds))
        view = owners_view(self.run)
        # Half are looked for, so that the others are there to be looked for among.
        targets = len(view.private) // 2
        measured = view.scale_measured and not alike
        return replace(view, targets=targets, scale_measured=measured)


def used(resolved: Resolved, parameters: Mapping[str, Any]) -> Written:
    """A plugin with its parameters as they turned out; UsageError where they are no plain ones."""
    values = {**plain_config(resolved), **parameters}
    try:
        return Written(name=resolved.name, version=resolved.spec.version, config=values)
    except ValidationError:
        raise UsageError(
            f"'{resolved.name}' has options that are no plain numbers or words without any of "
            f"{''.join(sorted(GRAMMAR))}: a package cannot say them."
        ) from None


def _preprocessing(cell: Cell, image: tuple[int, ...], splits: Splits) -> Preprocessing:
    scale, space = splits.scale, cell.space
    mean, std = (v[:1] if len(set(v)) == 1 else v for v in (scale.mean, scale.std))
    return Preprocessing(
        image=image,
        shape=splits.shape,
        space=used(space, {}),
        mean=mean,
        std=std,
        low=scale.low,
        high=scale.high,
    )


def _promise(
    sources: _Sources, rounds: int, history: History, law: str, *, alike: bool
) -> tuple[Promise, float | None]:
    """What is proven of all that left of these images; and mu of this release alone.

    Earlier releases by the same law are more rounds of it, unless nothing was proven of one of
    them: what was measured on the images then may be given by hand now. By other laws, what normal
    noise tells adds up: mu squared does. Nothing else is proven of them together.
    """
    view = sources.view(rounds, alike=alike)
    bounds = _bounds(sources.run, view)
    own = next((b.quantities[MU].value for b in bounds.values() if _has_mu(b)), None)
    before = history.rounds
    if before and any(entry.mu is None for entry in history.entries):
        why = "of an earlier release of some of these images nothing is proven"
        bounds = {name: f if isinstance(f, str) else why for name, f in bounds.items()}
    elif before and history.laws == {law}:
        bounds = _bounds(sources.run, sources.view(rounds + before, alike=alike))
    elif before:
        bounds = _composed(sources.run, view, bounds, history, own)
    proofs = {name: _finite(Proof.of(found)) for name, found in bounds.items()}
    proofs |= _guaranteed(sources, rounds + before, alone=history.laws <= {law})
    return Promise(rounds=rounds + before, ceilings=proofs), own


def _guaranteed(sources: _Sources, rounds: int, *, alone: bool) -> dict[str, Proof]:
    """What the defense itself proves of all rounds, where it proves anything.

    `alone`: whether its law is the only one by which these images left.
    """
    name, defense = sources.defense
    with plugin_boundary(name):
        resolved = sources.of(1).resolved.get(name, {})
        proven = defense.guarantee(len(sources.splits.private), rounds, resolved)
    if not proven:
        return {}
    if not alone:
        return {name: Proof(reason="earlier releases of these images left by other laws")}
    at = f"at delta = {proven['delta']}, {proven['adjacency']}"
    assumed = (
        f"{key}: {value}" for key, value in proven.items() if key not in ("epsilon", "delta")
    )
    epsilon = Proven(value=float(proven["epsilon"]), detail=at)
    return {name: _finite(Proof(quantities={"epsilon": epsilon}, assumptions=tuple(assumed)))}


def _has_mu(found: Bound | str) -> TypeGuard[Bound]:
    return isinstance(found, Bound) and MU in found.quantities


def _bounds(run: Run, view: OwnersView) -> dict[str, Bound | str]:
    """What each installed ceiling says."""
    found: dict[str, Bound | str] = {}
    for ceiling in run.cell.ceilings.values():
        built = run.build("ceilings", ceiling.spec, ceiling.config)
        label = f"ceiling {ceiling.name}"
        with plugin_boundary(ceiling.name), run.watched(label) as progress:
            found[ceiling.name] = built.bound(view, progress)
    return found


def _composed(
    run: Run,
    view: OwnersView,
    bounds: Mapping[str, Bound | str],
    history: History,
    own: float | None,
) -> dict[str, Bound | str]:
    """With earlier releases by other laws.

    A law that tells more in each round, so that its mu is that of all of them, has their epsilon.
    """
    known = [entry.mu for entry in history.entries if entry.mu is not None]
    together = "earlier releases of these images left by other laws"
    if own is None or view.law is None or view.law.exposure is None:
        why = f"{together}, and of this one no mu is proven"
        return {name: f if isinstance(f, str) else why for name, f in bounds.items()}
    more = 1 + sum(mu**2 for mu in known) / own**2
    law = replace(view.law, exposure=view.law.exposure * more)
    louder = _bounds(run, replace(view, law=law))
    why = f"{together}, and it is stated for one law"
    return {
        name: louder[name] if _has_mu(f) else (f if isinstance(f, str) else why)
        for name, f in bounds.items()
    }


def _finite(proof: Proof) -> Proof:
    """Without numbers that are infinite, which no JSON holds: a note says that they are."""
    boundless = [n for n, q in proof.quantities.items() if not isfinite(q.value)]
    kept = {n: q for n, q in proof.quantities.items() if n not in boundless}
    notes = tuple(f"{name}{BOUNDLESS}" for name in boundless)
    return proof.model_copy(update={"quantities": kept, "notes": (*proof.notes, *notes)})


def _told(promise: Promise) -> Promise:
    """What leaves of it: not what was estimated on private images, which tells of them."""
    kept = {
        name: Proof(reason=KEPT) if any(q.interval for q in proof.quantities.values()) else proof
        for name, proof in promise.ceilings.items()
    }
    return promise.model_copy(update={"ceilings": kept})


def _unproven(promise: Promise) -> Iterator[str]:
    """Why nothing bounds what leaks, where no ceiling says anything."""
    if not promise.proven:
        reasons = dict.fromkeys(proof.reason for proof in promise.ceilings.values())
        yield f"nothing bounds what leaks: {'; '.join(reasons) or 'no ceiling is installed'}"


def _weak(promise: Promise) -> Iterator[str]:
    """Why what is proven bounds nothing that an owner would call little."""
    proven = {name: p for name, p in promise.ceilings.items() if not p.reason}
    for name, proof in proven.items():
        if f"{EPSILON}{BOUNDLESS}" in proof.notes:
            yield f"{name} bounds nothing: its epsilon is infinite"
        for quantity, found in proof.quantities.items():
            if quantity == EPSILON and found.value > MOST_EPSILON:
                yield f"{name} allows an epsilon of {found.value:.4g}, which is as good as no bound"
            if quantity == NAMED and found.value > MOST_NAMED:
                share = f"{found.value:.0%} of images are told among candidates"
                yield f"{name} allows that {share}"
    if proven and all(p.vacuous or not p.quantities for p in proven.values()):
        yield "every ceiling is vacuous here"


def _named_before(encoding: Resolved, measured: Collection[str]) -> Iterator[str]:
    """What the records of boards say of attacks that told images by this very law.

    Options in `measured` are another package's parameters as they turned out, and not compared.
    """
    for folder in every_board(shipped=True):
        every = (text for track in folder.board.tracks for text in track.defenses)
        own = {law for text in every for law in expand(text) if _is_law(law, encoding, measured)}
        rows = lines(gathered(folder)) if own else []
        for row in rows:
            if row.defense in own and (found := identified(row, rows)) and found.sure:
                yield (
                    f"images are told among candidates: on the board {folder.board.name} "
                    f"{found.attack} puts {in_words(found)}"
                )
                return


def _is_law(text: str, encoding: Resolved, measured: Collection[str]) -> bool:
    """Whether a row's defense is this one, with these options."""
    stack = parse_stack(text)
    if len(stack) != 1 or stack[0].name != encoding.name:
        return False
    theirs = plain_config(resolve(encoding.spec, stack[0], "standard"))
    own = plain_config(encoding)
    return all(own[name] == value for name, value in theirs.items() if name not in measured)


def _notes(
    run: Run,
    order: Order,
    source: Source,
    history: History,
    ledger: Ledger,
    promise: Promise,
) -> Iterator[str]:
    """What an owner should know besides."""
    if run.cell.dataset.spec.measured_scale and order.like is None:
        yield (
            "mean and deviation were measured on these images and leave; other parties release "
            "--like this package"
        )
    law = law_of(run, source)
    if law is not None and law.calibrated:
        yield f"{', '.join(law.calibrated)} was measured on these images and leaves"
    if history.rounds:
        count = len(history.entries)
        releases = "one release" if count == 1 else f"{count} releases"
        counted = ": ceilings count them" if promise.proven else ""
        yield (
            f"some of these images were in {releases} before, any one of them in "
            f"{history.rounds} rounds at most{counted}"
        )
    if not ledger.exists:
        yield f"the ledger {ledger.path} begins anew: what left before it is not counted"
