"""Making a challenge: private images are drawn, encoded, and committed to."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.api import Splits, UsageError
from harness.asking.request import Resolved
from harness.challenge import DESCRIPTION, MEASURES, PACK, PACKAGE, README
from harness.challenge.opening import SALT_BYTES, Truth, checks, truth_of, write_truth
from harness.challenge.pack import OWN, Checks, Data, Description, Pack, Pool
from harness.challenge.public import choose, draw, pool_sha256
from harness.packages.keys import ID_BYTES, KEY_BYTES, OwnerKey, ReleaseStream
from harness.packages.package import write_package
from harness.packages.releasing import Whose, data_digest, encoding_of, unsealed, used
from harness.packages.samples import opened
from harness.packages.statement import UNSEALED, Promise, Statement
from harness.running.encoding import Source, source_of
from harness.running.run import Observer, Run
from harness.store.files import sha256_of_file
from harness.store.paths import disk_errors
from harness.store.provenance import sha256_of

PARTY = "challenge"
UNDATED = "undated"
"""A key makes its challenge again byte by byte, on any day."""


@dataclass(frozen=True)
class Places:
    """Where a challenge goes: `pack` a folder for everybody, `truth` a file for its owner."""

    pack: Path
    truth: Path

    def check(self) -> None:
        """UsageError unless both can be written there without harm."""
        with disk_errors(self.pack):
            pack, truth = self.pack.resolve(), self.truth.resolve()
            if truth.is_relative_to(pack):
                raise UsageError(f"The truth {self.truth} would lie in the pack, for all to see.")
            if pack.is_relative_to(truth):
                raise UsageError(f"The pack {self.pack} cannot lie below the file {self.truth}.")
            if os.path.lexists(self.truth):
                raise UsageError(f"{self.truth} is there already; nothing is written over a truth.")
            if os.path.lexists(self.pack) and (not pack.is_dir() or any(pack.iterdir())):
                raise UsageError(f"{self.pack} is there already and is no empty folder.")
            for parent in (pack.parent, truth.parent):
                if not parent.is_dir():
                    raise UsageError(f"There is no folder {parent}.")


def make(places: Places, key: OwnerKey | None, observer: Observer, **options: Any) -> Pack:
    """Make a challenge of `options`, those of `harness evaluate`; gives its pack.

    Without a `key` a fresh one is drawn and forgotten. UsageError for what cannot be asked;
    CellFailed where the defense fails at these images. Both places are filled, or neither.
    """
    places.check()
    key = key or OwnerKey(Path(), secrets.token_bytes(KEY_BYTES))
    run = opened(observer, secret=key.secret, **{"device": "cpu", **options})
    if run.cell.request.parties > 1:
        raise UsageError("A challenge is one owner's; leave --parties at 1.")
    encoding = encoding_of(run.cell)
    with run.watched("load"):
        splits = _drawn(run, key)
    if not splits.scale.of_images:
        raise UsageError(f"A challenge is of images, and '{run.cell.dataset.name}' has vectors.")
    owner = key.stream(PARTY, PARTY, data_digest(run.cell, splits, encoding))
    built = encoding.name, run.build("defenses", encoding.spec, encoding.config)
    source = source_of(splits, built, owner, rounds=run.cell.request.rounds)
    with run.watched("encode"):
        said = _said(run, splits, encoding, source, owner)
        return _write(places, run, splits, source, said, owner)


def _drawn(run: Run, key: OwnerKey) -> Splits:
    """The splits, with private images of the key's choice.

    Other options have another choice: what two challenges hide must not tell of each other.
    """
    cell, sizes = run.cell, run.cell.request.sizes
    names = [p.written for p in (*cell.defenses, cell.dataset, cell.public) if p]
    asked = sha256_of([names, sizes.model_dump(), cell.request.rounds, cell.request.seed])
    stream = key.stream(PARTY, "images", asked)
    return choose(draw(run, sizes.public), sizes.private, stream)


def _said(
    run: Run, splits: Splits, encoding: Resolved, source: Source, owner: ReleaseStream
) -> Statement:
    """What the package will say. It promises nothing: it is there to be broken."""
    whose = Whose(owner.stream(what="release").bytes(ID_BYTES).hex(), PARTY, UNDATED)
    law = used(encoding, source.resolved.get(encoding.name, {}))
    promise = Promise(rounds=source.rounds, ceilings={})
    return unsealed(run.cell, whose, splits.shape, splits, source, law, promise)


def _data(resolved: Resolved) -> Data:
    return OWN if getattr(resolved.spec, "fingerprint", "") else used(resolved, {})


def _write(
    places: Places, run: Run, splits: Splits, source: Source, said: Statement, owner: ReleaseStream
) -> Pack:
    """Fill both places, the truth's first: a pack without one would be of no use."""
    held, private = source.held(), splits.private.unit()
    truth = truth_of({**held.secrets, "images": private.images, "classes": private.labels})
    with _both(places) as part:
        said = write_package(part.pack / PACKAGE, said, source)
        (part.pack / README).write_text(_text(said), encoding="utf-8")
        readme = sha256_of_file(part.pack / README, "file")
        pack = Pack(_described(run, splits, said, readme), said, held.images, held.labels)
        described = _committed(part.truth, pack, truth, owner.stream(what="salt").bytes(SALT_BYTES))
        text = described.model_dump_json(indent=2) + "\n"
        (part.pack / DESCRIPTION).write_text(text, encoding="utf-8")
    return Pack(described, said, held.images, held.labels)


def _text(said: Statement) -> str:
    heading = (
        f"A challenge: {said.rows} private images, {said.rounds} encodings of each by the defense "
        f"'{said.law.name}'.\nFind the private images."
    )
    return f"{heading}\n\n{PACK}\n{MEASURES}"


def _described(run: Run, splits: Splits, said: Statement, readme: str) -> Description:
    """What is public besides, before anything was checked or committed to."""
    cell = run.cell
    public = Pool(
        dataset=_data(cell.public) if cell.public else None,
        images=len(splits.public),
        seed=cell.request.seed,
        sha256=pool_sha256(splits.public),
    )
    return Description(
        release=said.seal,
        readme=readme,
        dataset=_data(cell.dataset),
        public=public,
        checks=Checks(),
        commitment=UNSEALED,
        id=UNSEALED,
    )


def _committed(path: Path, pack: Pack, truth: Truth, salt: bytes) -> Description:
    """Write the truth; gives the description with what can be checked and its commitment."""
    described = pack.described.model_copy(update={"checks": checks(truth, pack)})
    return described.committed(write_truth(path, truth, described, salt))


@contextmanager
def _both(places: Places) -> Iterator[Places]:
    """Places beside the final ones, which are moved there if all goes well."""
    pack, truth = places.pack.resolve(), places.truth.resolve()
    mark = f"-{os.getpid()}-{secrets.token_hex(4)}"
    part = Places(pack.with_name(f".{pack.name}{mark}"), truth.with_name(f".{truth.name}{mark}"))
    try:
        with disk_errors(pack):
            part.pack.mkdir()
            part.truth.touch(mode=0o600)
            yield part
            part.truth.rename(truth)
            try:
                part.pack.rename(pack)
            except OSError:  # a truth without its pack is of no use
                truth.unlink()
                raise
    finally:
        part.truth.unlink(missing_ok=True)
        shutil.rmtree(part.pack, ignore_errors=True)
