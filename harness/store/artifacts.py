"""Outputs of stages on disk: `artifacts/<stage>/<key>/{tensors.safetensors,facts.json}`.

`facts.json` carries the tensors' hash and its own, and the cache's seal on both under this stage
and key; a folder without it was never finished.
Folders appear by rename, so another process sees all of an artifact or nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.api.errors import IntegrityError, StoreError
from harness.store.paths import (
    REMEDY,
    UNSEALED,
    disk_errors,
    lock,
    scratch_folder,
    seal,
    sealed,
    write_atomically,
)

if TYPE_CHECKING:
    from torch import Tensor

Value = TypeVar("Value")

TENSORS = "tensors.safetensors"
FACTS = "facts.json"


@dataclass(frozen=True)
class Artifact:
    """One stage's output: tensors, and JSON facts."""

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any] = field(default_factory=dict)


def below(prefix: str, named: Mapping[str, Value]) -> dict[str, Value]:
    """The values whose names begin with a prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in named.items() if k.startswith(prefix)}


class Store:
    """All artifacts and records below one root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fresh: set[tuple[str, str]] = set()

    def _folder(self, stage: str, key: str) -> Path:
        return self.root / "artifacts" / stage / key

    def has(self, stage: str, key: str) -> bool:
        """Whether a finished artifact is there; its bytes are checked on reading."""
        with disk_errors(self.root):
            return (self._folder(stage, key) / FACTS).exists()

    @contextmanager
    def turn(self, stage: str, key: str, *, force: bool = False) -> Iterator[Artifact | None]:
        """The artifact of a key; None if it is not there, and is made and written in this turn.

        Processes that want the same artifact take turns, so it is made once. `force` makes it
        anew, but not again what is new since this store was opened.
        """
        force = force and (stage, key) not in self._fresh
        found = None if force else self._readable(stage, key)
        if found is not None:
            yield found
            return
        before = self._written(stage, key)
        with lock(self.root, f"{stage}-{key}"):
            there = self.has(stage, key) and (not force or self._written(stage, key) != before)
            yield self.read(stage, key) if there else None
            self._fresh.add((stage, key))

    def _readable(self, stage: str, key: str) -> Artifact | None:
        """What is there, unless it is replaced or pruned meanwhile, or corrupt."""
        if self.has(stage, key):
            with suppress(StoreError, IntegrityError):
                return self.read(stage, key)
        return None

    def _written(self, stage: str, key: str) -> int | None:
        """Which writing of an artifact is there: someone else may remake it in a wait."""
        with disk_errors(self.root):
            facts = self._folder(stage, key) / FACTS
            return facts.stat().st_mtime_ns if facts.exists() else None

    def write(self, stage: str, key: str, artifact: Artifact) -> None:
        """Store an artifact, in place of one that is there."""
        with scratch_folder(self.root, stage) as scratch, disk_errors(self.root):
            save_tensors(artifact.tensors, scratch / TENSORS)
            facts = {**_digest(scratch / TENSORS), "facts": dict(artifact.facts)}
            facts["facts_sha256"] = _text_sha256(facts["facts"])
            folder = self._folder(stage, key)
            facts["seal"] = seal(self.root, *_sealed_words(folder, facts))
            write_atomically(scratch / FACTS, json.dumps(facts, sort_keys=True).encode())
            folder.parent.mkdir(parents=True, exist_ok=True)
            aside = scratch.with_name(f"{scratch.name}-old")
            with suppress(FileNotFoundError):
                folder.rename(aside)
            scratch.rename(folder)
            shutil.rmtree(aside, ignore_errors=True)

    def read(self, stage: str, key: str) -> Artifact:
        """Read an artifact; IntegrityError if its bytes are not what was written."""
        from safetensors.torch import load_file

        folder = self._folder(stage, key)
        facts = self.check(folder)
        with disk_errors(folder):
            tensors = load_file(folder / TENSORS)
            os.utime(folder)
        return Artifact(tensors, facts["facts"])

    def check(self, folder: Path) -> dict[str, Any]:
        """What is stored beside an artifact's tensors; IntegrityError if they are not those."""
        facts = self._facts(folder)
        _check_tensors(folder, facts)
        return facts

    def adopt(self, folder: Path) -> None:
        """Seal an artifact; IntegrityError if its bytes are not those that it was stored with."""
        facts = _read_facts(folder)
        _check_tensors(folder, facts)
        facts["seal"] = seal(self.root, *_sealed_words(folder, facts))
        write_atomically(folder / FACTS, json.dumps(facts, sort_keys=True).encode())

    def _facts(self, folder: Path) -> dict[str, Any]:
        facts = _read_facts(folder)
        if not sealed(self.root, facts.get("seal"), *_sealed_words(folder, facts)):
            raise _corrupt(folder, UNSEALED)
        return facts

    def identity(self, stage: str, key: str) -> dict[str, str | int]:
        """The hash and size of a stored artifact's tensors, and its key."""
        facts = self._facts(self._folder(stage, key))
        return {"key": key, "sha256": facts["sha256"], "bytes": facts["bytes"]}

    def facts(self, stage: str, key: str) -> dict[str, Any]:
        """The facts of a stored artifact, without its tensors."""
        found: dict[str, Any] = self._facts(self._folder(stage, key))["facts"]
        return found

    def tensors_path(self, stage: str, key: str) -> Path:
        """The file with an artifact's tensors."""
        return self._folder(stage, key) / TENSORS

    def remove(self, folder: Path) -> None:
        """Drop one folder; an artifact's facts go first, so that half of it is none."""
        with disk_errors(folder):
            (folder / FACTS).unlink(missing_ok=True)
            shutil.rmtree(folder)


def _read_facts(folder: Path) -> dict[str, Any]:
    with disk_errors(folder):
        text = (folder / FACTS).read_bytes()
    try:
        facts: dict[str, Any] = json.loads(text)
        intact = facts["facts_sha256"] == _text_sha256(facts["facts"])
        facts["sha256"], facts["bytes"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _corrupt(folder, "its facts cannot be read") from None
    if not intact:
        raise _corrupt(folder, "its facts do not have the hash they were stored with")
    return facts


def _sealed_words(folder: Path, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """What a seal is of: the place, and hashes of all that lies there."""
    stage, key = folder.parts[-2:]
    return (stage, key, *(str(facts[name]) for name in ("sha256", "bytes", "facts_sha256")))


def _check_tensors(folder: Path, facts: Mapping[str, Any]) -> None:
    with disk_errors(folder):
        tensors = folder / TENSORS
        if not tensors.exists() or _digest(tensors)["sha256"] != facts["sha256"]:
            raise _corrupt(folder, "its tensors do not have the hash they were stored with")


def _digest(path: Path) -> dict[str, str | int]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return {"sha256": digest.hexdigest(), "bytes": path.stat().st_size}


def _text_sha256(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Save tensors; safetensors words a full disk in its own error, turned back into OSError."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(plain, path)
    except SafetensorError as error:
        if refused := re.search(r"os error (\d+)", str(error)):
            number = int(refused[1])
            raise OSError(number, os.strerror(number), str(path)) from error
        raise


def _corrupt(folder: Path, reason: str) -> IntegrityError:
    return IntegrityError(f"The cache is corrupt: {folder}: {reason}. {REMEDY}")
