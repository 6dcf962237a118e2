"""Signing a board: whoever keeps it vouches for its protocol, records, answers and reports.

An ed25519 signature over the path, SHA-256 and size of every file of these. It says who vouches,
and nothing of how the numbers came to be.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from harness.api.errors import IntegrityError, UsageError
from harness.boards.protocol import FILE as BOARD_FILE
from harness.store.files import read_secret, write_secret
from harness.store.paths import disk_errors, listed, write_atomically
from harness.store.provenance import canonical_json
from harness.store.reading import read_json, read_plain, strange_file
from harness.store.record import MALFORMED

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FILE = "signature.json"
SIGNED = (BOARD_FILE, "answers", "controls", "records", "submissions")
"""What of a board's folder is signed; the rest is made of it."""
Schema = Literal["encoding-harness/signature/1"]
SCHEMA: Schema = "encoding-harness/signature/1"
PEM = b"PRIVATE KEY-----"
OWNER_KEY = 32
"""Bytes of an owner's key, which nothing in a board's folder has."""


class Signature(BaseModel, frozen=True, extra="forbid"):
    """What lies beside a board."""

    schema_: Schema = Field(SCHEMA, alias="schema")
    public_key: str = Field(pattern=r"^[0-9a-f]{64}$")
    signature: str = Field(pattern=r"^[0-9a-f]{128}$")


def draw_signing_key(path: Path) -> str:
    """Draw a maintainer's key into a new file that nobody else can read; its fingerprint."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    write_secret(
        path,
        key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()),
    )
    return fingerprint(_public(key))


def fingerprint(public_key: bytes) -> str:
    """Names a key to others: 32 hexadecimal digits."""
    return hashlib.sha256(b"board key" + public_key).hexdigest()[:32]


def sign(folder: Path, key: Path) -> str:
    """Sign a board as it lies there; the fingerprint of the key. UsageError where it is none."""
    signer = _read_key(key)
    made = Signature(public_key=_public(signer).hex(), signature=signer.sign(_said(folder)).hex())
    text = canonical_json(made.model_dump(by_alias=True))
    write_atomically(folder / FILE, text.encode() + b"\n")
    return fingerprint(_public(signer))


def signed_by(folder: Path) -> str:
    """The fingerprint of who signed a board; "" where nobody did.

    IntegrityError where there is a signature, and it does not fit.
    """
    path = folder / FILE
    with disk_errors(path):
        if not os.path.lexists(path):
            return ""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        found = Signature.model_validate(read_json(read_plain(path)))
        public = bytes.fromhex(found.public_key)
        Ed25519PublicKey.from_public_bytes(public).verify(
            bytes.fromhex(found.signature), _said(folder)
        )
    except (*MALFORMED, ValidationError):
        raise IntegrityError(f"{path} is no signature.") from None
    except InvalidSignature:
        raise IntegrityError(
            f"{path} does not fit: since {fingerprint(public)} signed, something has changed."
        ) from None
    return fingerprint(public)


def signature(signer: str) -> str:
    """In words, of a fingerprint or of nobody."""
    return f"signed by {signer}" if signer else "unsigned"


def private_keys(folder: Path, apart: Collection[str] = ()) -> Iterator[Path]:
    """Files below a folder that hold a private key; not in its own folders named `apart`."""
    for path in listed(folder):
        with disk_errors(path):
            if path.is_dir() and not path.is_symlink():
                yield from private_keys(path) if path.name not in apart else ()
            elif not strange_file(path) and _is_private(path):
                yield path


def _is_private(path: Path) -> bool:
    if path.stat().st_size == OWNER_KEY:
        return True
    with path.open("rb") as file:
        return PEM in file.read(10_000)


def _said(folder: Path) -> bytes:
    """What is signed."""
    files = [each for name in SIGNED for each in _files(folder / name, name)]
    return canonical_json({"schema": SCHEMA, "files": files}).encode()


def _files(path: Path, name: str) -> Iterator[list[Any]]:
    """Path below the board, SHA-256 and bytes of each file, folder by folder, by name."""
    with disk_errors(path):
        if path.is_dir() and not path.is_symlink():
            for each in listed(path):
                yield from _files(each, f"{name}/{each.name}")
        elif os.path.lexists(path):
            data = read_plain(path)
            yield [name, hashlib.sha256(data).hexdigest(), len(data)]


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _read_key(path: Path) -> Ed25519PrivateKey:
    """A maintainer's key; UsageError where it is none, or others can read it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    drawn = f"`harness keygen --signing {path}` draws one"
    strange = f"{path} is no key that signs boards: {drawn}."
    data = read_secret(path, f"There is no key {path}; {drawn}.", strange, range(10_000))
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(strange)
    return key
