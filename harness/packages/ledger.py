"""The ledger beside an owner's key: which releases left, and how often each image was in one.

Its first line names the key. One JSON line for each release follows, added before a byte of it is
made, and never changed; what stands behind a line in hexadecimal digits authenticates it under the
key. A line names images by keyed hashes, so that it tells nobody which they are. Ids are drawn at
random: a ledger that is lost, or put back to an older state, forgets what it counted, but makes no
noise come again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.api import IntegrityError, UsageError
from harness.packages.keys import OwnerKey, make_key
from harness.store.paths import disk_errors
from harness.store.provenance import canonical_json

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

Tags: TypeAlias = "NDArray[np.uint64]"
"""Keyed hashes of images."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_TAG = 8
"""Bytes of an image's keyed hash: two of a million images meet once in 4e7 ledgers."""
_MAC = 64
"""Hexadecimal digits behind a line."""


class Head(BaseModel):
    """The first line: whose ledger it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["release ledger"] = "release ledger"
    key: str
    """The key's fingerprint."""


class Entry(BaseModel):
    """One release. `before` is the SHA-256 of the line above, the first of which names the key."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    release: Digest
    party: str
    asked: Digest
    """Of the data and of all options: what the same id may be used for again."""
    law: str
    rounds: int = Field(ge=1)
    mu: float | None
    """Of Gaussian differential privacy, of this release alone; None where nothing is proven."""
    images: str
    """Keyed hashes, eight bytes each, sorted, as base64."""
    made: str
    before: Digest

    @property
    def tags(self) -> Tags:
        """The keyed hashes of its images."""
        return np.frombuffer(base64.b64decode(self.images), np.uint64)


@dataclass(frozen=True)
class History:
    """What left before, of images some of which are in a new release too.

    `rounds` is the most that any one of them was in. `entries` are all releases with any of them.
    """

    rounds: int
    entries: tuple[Entry, ...]

    @property
    def laws(self) -> frozenset[str]:
        """The laws by which they left."""
        return frozenset(entry.law for entry in self.entries)


def tags_of(images: Tensor, key: bytes) -> Tags:
    """[n] keyed hashes of images [n, ...] by content, sorted."""
    rows = images.contiguous().numpy()
    found = [hmac.digest(key, row.tobytes(), "sha256")[:_TAG] for row in rows]
    return np.sort(np.frombuffer(b"".join(found), np.uint64))


def packed(tags: Tags) -> str:
    """As a line holds them."""
    return base64.b64encode(tags.tobytes()).decode("ascii")


def ledger_of(key: Path) -> Path:
    """Where the ledger of a key lies: beside the key itself, whatever links lead there."""
    with disk_errors(key):
        whole = key.resolve()
    return whole.with_name(f"{whole.name}.ledger")


def draw_key(path: Path) -> OwnerKey:
    """A new key with its ledger, so that a ledger that lacks later was lost.

    UsageError where either is there already.
    """
    beside = ledger_of(path)
    with disk_errors(beside):
        if os.path.lexists(beside):
            raise UsageError(f"{beside} is there already: it is the ledger of another key.")
    key = make_key(path)
    Ledger(key).begin()
    return key


class Ledger:
    """The file `KEY.ledger`, held by one process at a time."""

    def __init__(self, key: OwnerKey) -> None:
        self.path = ledger_of(key.path)
        self._key = key

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold its lock; the system frees it when its holder dies."""
        from filelock import FileLock

        with disk_errors(self.path):
            lock = FileLock(self.path.with_name(f"{self.path.name}.lock"))
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @property
    def exists(self) -> bool:
        """Whether it is there, be it without a release."""
        with disk_errors(self.path):
            return self.path.exists()

    def begin(self) -> None:
        """Write its first line; UsageError where it is there already."""
        if self.exists:
            raise UsageError(f"The ledger {self.path} is there already; it goes on.")
        self._append(Head(key=self._key.fingerprint).model_dump(mode="json"))

    def entries(self) -> tuple[Entry, ...]:
        """All releases, in order; IntegrityError where a line is not as it was written."""
        if not self.exists:
            return ()
        first, *lines = self._lines() or [b""]
        self._check_head(first)
        found, before = [], _digest(first)
        for number, line in enumerate(lines, 2):
            try:
                entry = Entry.model_validate_json(self._checked(line, number))
                intact = len(base64.b64decode(entry.images, validate=True)) % _TAG == 0
            except (ValidationError, ValueError):
                raise self._damaged(number) from None
            if entry.before != before or not intact:
                raise self._damaged(number)
            found.append(entry)
            before = _digest(line)
        return tuple(found)

    def _check_head(self, line: bytes) -> None:
        """IntegrityError where the ledger does not begin as one of this key."""
        try:
            head = Head.model_validate_json(line[: -_MAC - 1])
        except ValidationError:
            raise self._damaged(1) from None
        if head.key != self._key.fingerprint:
            raise IntegrityError(
                f"{self.path} is the ledger of another key ({ascii(head.key)[1:17]}); put back the "
                f"one of {self._key.fingerprint}."
            )
        self._checked(line, 1)

    def _checked(self, line: bytes, number: int) -> bytes:
        """What a line says; IntegrityError unless it was written under this key."""
        text, mac = line[: -_MAC - 1], line[-_MAC:]
        if line != text + b" " + mac or not hmac.compare_digest(mac, self._mac(text)):
            raise self._damaged(number)
        return text

    def _mac(self, text: bytes) -> bytes:
        return hmac.digest(self._key.line_key, text, "sha256").hex().encode()

    def history(self, tags: Tags, *, until: str = "") -> History:
        """What left of these images, before the release `until` if it stands here."""
        counts = np.zeros(len(tags), np.int64)
        met = []
        for entry in self.entries():
            if entry.release == until:
                break
            inside = np.isin(tags, entry.tags)
            if inside.any():
                counts += entry.rounds * inside
                met.append(entry)
        return History(int(counts.max(initial=0)), tuple(met))

    def add(self, entry: Entry) -> None:
        """Write a release down, on the disk before this returns; a repeated one stands already.

        The lock must be held. UsageError where its id was used for other data or options.
        """
        known = self.entries()
        for other in known:
            if other.release == entry.release:
                self.require_same(other, entry.party, entry.asked)
                return
        if not self.exists:
            self.begin()
        linked = entry.model_copy(update={"before": _digest(self._lines()[-1])})
        self._append(linked.model_dump(mode="json"))

    def find(self, release: str) -> Entry:
        """A release by its id, or how that begins; UsageError where none is written down.

        Without its line nothing says what an id was used for.
        """
        found = [entry for entry in self.entries() if entry.release.startswith(release)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(f"{len(found)} releases of {self.path} begin with {release}.")
        raise UsageError(
            f"{self.path} has no release {release[:16]}…: an id is drawn, never chosen. Leave "
            "--again out for a new release."
        )

    def require_same(self, known: Entry, party: str, asked: str) -> None:
        """UsageError unless a release that stands here is of this party, data and options."""
        if known.party != party:
            raise UsageError(
                f"The release {known.release[:16]}… is of the party '{known.party}', and '{party}' "
                "asks for it: its randomness is not used again. Give --party as it was."
            )
        if known.asked != asked:
            raise UsageError(
                f"The release {known.release[:16]}… was made of other data or with other options: "
                "its randomness is not used again. Leave --again out for a new release."
            )

    def _lines(self) -> Sequence[bytes]:
        """Finished ones: what follows the last newline was cut off, and nothing was made of it."""
        with disk_errors(self.path):
            text = self.path.read_bytes() if self.path.exists() else b""
        return text.split(b"\n")[:-1]

    def _append(self, said: dict[str, Any]) -> None:
        text = canonical_json(said).encode()
        line = text + b" " + self._mac(text) + b"\n"
        whole = sum(len(each) + 1 for each in self._lines())
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
        with disk_errors(self.path):
            with os.fdopen(os.open(self.path, flags, 0o600), "wb") as file:
                file.truncate(whole)
                file.seek(whole)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            folder = os.open(self.path.absolute().parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _damaged(self, number: int) -> IntegrityError:
        return IntegrityError(
            f"Line {number} of {self.path} is not what was written there. Put the ledger back from "
            "a copy; without it, what left before is not counted."
        )


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
