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

from harness.api import Release, Splits, UsageError
from harness.api.specs import Stage
from harness.asking.plan import Cell, plan
from harness.asking.registry import registry
from harness.asking.request import Resolved, make_request
from harness.challenge import DESCRIPTION, ENCODINGS, MEASURES, PACK, README
from harness.challenge.opening import SALT_BYTES, Truth, checks, truth_of, write_truth
from harness.challenge.pack import (
    Checks,
    Description,
    Named,
    Pack,
    Pool,
    Statement,
    describe,
)
from harness.challenge.public import choose, draw, pool_sha256
from harness.rng import KeyedStream, secret_stream
from harness.running.release import encodings_of
from harness.running.run import Observer, Run, check_machine, equip
from harness.store import Store, cache_root
from harness.store.artifacts import save_tensors
from harness.store.files import sha256_of_file
from harness.store.paths import disk_errors
from harness.store.provenance import sha256_of

KEY_BYTES = 32


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


def make(places: Places, key: bytes | None, observer: Observer, **options: Any) -> Description:
    """Make a challenge of `options`, those of `harness evaluate`; gives what its pack says.

    Without a `key` a fresh one is drawn and forgotten. UsageError for what cannot be asked;
    CellFailed where the defense fails at these images. Both places are filled, or neither.
    """
    places.check()
    run = _run(key or secrets.token_bytes(KEY_BYTES), observer, options)
    cell = run.cell
    owner = _secrets(run)
    with run.watched("load"):
        splits = choose(
            draw(run, cell.request.sizes.public),
            cell.request.sizes.private,
            owner.stream(what="images"),
        )
    if not splits.scale.of_images:
        raise UsageError(f"A challenge is of images, and '{cell.dataset.name}' has vectors.")
    with run.watched("encode"):
        made = _release(run, splits, owner)
    with run.watched("write"):
        return _write(places, cell, splits, made, owner.stream(what="salt").bytes(SALT_BYTES))


def _secrets(run: Run) -> KeyedStream:
    """The owner's randomness for this challenge and no other.

    Two challenges of one key must not share masks or noise: what one hides the other would tell.
    """
    cell, request = run.cell, run.cell.request
    used = [p.written for p in (*cell.defenses, cell.dataset, cell.public) if p]
    digest = sha256_of([used, request.sizes.model_dump(), request.rounds])
    return secret_stream(request.seed, run.secret).stream(stage="challenge", asked=digest)


def _run(key: bytes, observer: Observer, options: dict[str, Any]) -> Run:
    """The cell of a challenge, ready to be encoded."""
    fixed = {"preset": "standard", "only": "utility", "metrics": "ssim", "device": "cpu"}
    request = make_request(**fixed, **options)
    root = cache_root()
    cell = equip(plan(request, registry()), root, key)
    if request.parties > 1:
        raise UsageError("A challenge is one owner's; leave --parties at 1.")
    others = [d for d in cell.defenses if d.spec.stage is not Stage.ENCODING]
    if others:
        raise UsageError(
            f"A challenge is of encodings, and '{others[0].name}' works on {others[0].spec.stage}; "
            "name one encoding defense."
        )
    check_machine("cpu")
    return Run(cell, Store(root), registry(), observer=observer, secret=key)


def _release(run: Run, splits: Splits, owner: KeyedStream) -> Release:
    """All rounds, by the engine's own source of them."""
    from harness.running.encoding import source_of

    (defense,) = run.cell.defenses
    named = defense.name, run.build("defenses", defense.spec, defense.config)
    return encodings_of(source_of(splits, named, owner, rounds=run.cell.request.rounds))


def _named(resolved: Resolved, **parameters: Any) -> Named:
    """A plugin for the pack; where data lies on the owner's machine is nobody's business."""
    config = {**resolved.config.model_dump(mode="json"), **parameters}
    own = bool(getattr(resolved.spec, "fingerprint", ""))
    return Named(name=resolved.name, version=resolved.spec.version, config=None if own else config)


def _statement(
    cell: Cell, splits: Splits, made: Release, truth: Truth, files: dict[str, str]
) -> Statement:
    (defense,) = cell.defenses
    encodings, labels = made.tensors["encodings"], made.tensors["labels"]
    unchecked = Statement(
        defense=_named(defense, **made.resolved.get(defense.name, {})),
        dataset=_named(cell.dataset),
        public=Pool(
            dataset=_named(cell.public) if cell.public else None,
            images=len(splits.public),
            seed=cell.request.seed,
            sha256=pool_sha256(splits.public),
        ),
        private=len(splits.private),
        rounds=len(encodings),
        shape=splits.shape,
        encoded_shape=tuple(encodings.shape[2:]),
        classes=splits.classes,
        mean=splits.scale.mean,
        std=splits.scale.std,
        checks=Checks(labels=False, encodings="no"),
        files=files,
    )
    found = checks(truth, unchecked, Pack(describe(unchecked, "0" * 64), encodings, labels))
    return unchecked.model_copy(update={"checks": found})


def _write(places: Places, cell: Cell, splits: Splits, made: Release, salt: bytes) -> Description:
    """Fill both places, the truth's first: a pack without one would be of no use."""
    private = splits.private.unit()
    heading = (
        f"A challenge: {len(private)} private images, {cell.request.rounds} encodings of each by "
        f"the defense '{cell.defenses[0].name}'.\nFind the private images."
    )
    truth = truth_of({**made.secrets, "images": private.images, "classes": private.labels})
    with _both(places) as part:
        save_tensors(made.tensors, part.pack / ENCODINGS)
        readme = part.pack / README
        readme.write_text(f"{heading}\n\n{PACK}\n{MEASURES}", encoding="utf-8")
        (part.pack / ENCODINGS).chmod(readme.stat().st_mode)  # safetensors makes private files
        files = {name: sha256_of_file(part.pack / name, "file") for name in (ENCODINGS, README)}
        statement = _statement(cell, splits, made, truth, files)
        described = describe(statement, write_truth(part.truth, truth, statement, salt))
        text = described.model_dump_json(indent=2) + "\n"
        (part.pack / DESCRIPTION).write_text(text, encoding="utf-8")
    return described


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
