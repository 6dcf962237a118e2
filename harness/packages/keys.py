"""An owner's key, and the randomness of one release under it: no two releases share any."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from harness.api import CellFailed
from harness.rng import Axis, KeyedStream, derive
from harness.store.files import read_secret, write_secret

if TYPE_CHECKING:
    import torch

KEY_BYTES = 32
ID_BYTES = 32
_PURPOSE = b"encoding-harness release"


@dataclass(frozen=True)
class OwnerKey:
    """32 random bytes in a file that nobody else can read. They never leave their owner."""

    path: Path
    secret: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """Names the key to others and tells nothing of it: 256 random bits cannot be guessed."""
        return hashlib.sha256(b"owner key" + self.secret).hexdigest()[:16]

    @property
    def tag_key(self) -> bytes:
        """Under which the ledger names images, so that its lines tell nobody which they are."""
        return derive(_PURPOSE + self.secret, {"what": "ledger"})

    @property
    def line_key(self) -> bytes:
        """Under which the ledger's lines are authenticated."""
        return derive(_PURPOSE + self.secret, {"what": "lines of the ledger"})

    def stream(self, release: str, party: str, of: str) -> ReleaseStream:
        """All randomness of one release.

        `release` is its id, drawn anew for each. `of` names the data and the options too: should an
        id ever come twice, other data or options still have other noise.
        """
        return ReleaseStream(
            derive(_PURPOSE + self.secret, {"release": release, "party": party, "of": of})
        )


class ReleaseStream(KeyedStream):
    """A stream whose every draw is cryptographic: it hands out no seed of another generator.

    Whoever has a few numbers of a Mersenne twister has all of them; the InstaHide challenge fell to
    that.
    """

    def stream(self, **axes: Axis) -> ReleaseStream:
        """An independent stream named by axes; does not move this one."""
        return ReleaseStream(derive(self.key, axes))

    def seed(self) -> int:
        """Refused."""
        _refuse()

    def generator(self, device: torch.device | str = "cpu") -> torch.Generator:
        """Refused."""
        _refuse()


def _refuse() -> NoReturn:
    raise CellFailed(
        "the defense draws from a seedable generator, which is not cryptographic: what leaves is "
        "drawn from its stream's own uniform, normal, signs or permutation"
    )


def new_release() -> str:
    """A fresh id of 256 random bits, as 64 hexadecimal digits."""
    return secrets.token_hex(ID_BYTES)


def make_key(path: Path) -> OwnerKey:
    """Draw a key into a new file of mode 0600; UsageError where something is there already."""
    secret = secrets.token_bytes(KEY_BYTES)
    write_secret(path, secret)
    return OwnerKey(path, secret)


def read_owner_key(path: Path) -> OwnerKey:
    """The key in a file of `harness keygen`; UsageError where it is none, or others can read it."""
    absent = f"There is no key {path}; `harness keygen {path}` draws one."
    strange = (
        f"{path} is no key: a file of {KEY_BYTES} random bytes, as `harness keygen` draws them."
    )
    return OwnerKey(path, read_secret(path, absent, strange, {KEY_BYTES}))
