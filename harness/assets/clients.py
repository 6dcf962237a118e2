"""Registries through their ordinary clients: pip, npm, apt. Nothing that arrives is executed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, NoReturn

from harness.api import IntegrityError, Source
from harness.assets.download import Progress, SourceFailed

POLL = 0.2
"""Seconds between two looks at how much has arrived."""

STALL = 120.0
"""Seconds without a byte more after which a client is given up."""

INERT_PIP = Path(__file__).parent / "inert_pip"
_CODES = ("npm error code", "npm error errno", "npm error syscall", "npm error type")
_FULL = ("No space left on device", "ENOSPC")
_STALE_LISTS = ("Unable to locate package", "no installation candidate", "Can't find", "404 ")
_WRONG_HASH = ("DO NOT MATCH THE HASHES", "EINTEGRITY", "Hash Sum mismatch")
DEB_MAGIC = b"!<arch>\n"
DEB_HEADER = 60


def _bytes_below(folder: Path) -> int:
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            # A client moves its files about while they are counted.
            with suppress(FileNotFoundError):
                total += (Path(base) / name).stat().st_size
    return total


def _watch(client: subprocess.Popen[bytes], folder: Path, source: Source, show: Progress) -> None:
    """Report what lies in `folder` while the client runs; a client keeps temporary copies too.

    Raises SourceFailed when nothing has come for a long time.
    """
    total, most, since = int(source.megabytes * 1e6), 0, time.monotonic()
    while client.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            client.wait(POLL)
        here = _bytes_below(folder)
        if here > most:
            most, since = here, time.monotonic()
        elif time.monotonic() - since > STALL:
            raise SourceFailed(f"nothing arrived for {STALL:.0f} s")
        show(min(most, total), total)
    show(total, total)


def _run(
    command: Sequence[str], folder: Path, source: Source, show: Progress, **env: str
) -> tuple[int, str]:
    """Run a client in `folder`, its own output kept from the terminal: exit code and output."""
    log = folder / ".client.log"
    with log.open("wb") as sink:
        client = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(folder), **env},
        )
        try:
            _watch(client, folder, source, show)
        finally:
            client.kill()
            client.wait()
    return client.returncode, log.read_text(errors="replace")


def _fail(client: str, source: Source, output: str, remedy: str = "") -> NoReturn:
    """Raise what a client's failure means: a full disk, a wrong hash, or one source less.

    Told is the first line that the client marks as an error and that is more than a code.
    """
    if any(sign in output for sign in _FULL):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [line for line in lines if line.lower().startswith(("error", "e: ", "npm error"))]
    telling = [line for line in marked if not line.startswith(_CODES)]
    complaint = (telling or lines or ["it said nothing"])[0]
    reason = f"{client} failed: {complaint}{f' (run {remedy})' if remedy else ''}"
    if any(sign in output for sign in _WRONG_HASH):
        raise IntegrityError(
            f"{source.where} is not what its hash says; nothing was kept. {reason}"
        )
    raise SourceFailed(reason, remedy)


def _only(folder: Path, pattern: str, client: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SourceFailed(f"{client} left {len(found)} files of the form {pattern}")
    return found[0]


def pip_download(source: Source, folder: Path, progress: Progress) -> Path:
    """`pip download` of a pinned requirement whose sha256 pip checks before it looks inside.

    The backend in `inert_pip` answers for every archive, so no code of it runs.
    """
    if find_spec("pip") is None:
        raise SourceFailed("pip is not installed", f"{sys.executable} -m ensurepip")
    if source.digest is None:
        raise SourceFailed("a pip source must pin the sha256 of its archive")
    requirement, into = folder / "requirement.txt", folder / "archive"
    requirement.write_text(f"{source.where} --hash={source.digest}\n")
    options = "--no-deps --require-hashes --no-build-isolation --use-pep517 --no-cache-dir"
    limits = "--no-input --disable-pip-version-check --timeout 15 --retries 1"
    command = [sys.executable, "-m", "pip", "download", *options.split(), *limits.split()]
    command += ["--dest", str(into), "--requirement", str(requirement)]
    inert = {"PYTHONPATH": str(INERT_PIP), "PYTHONSAFEPATH": "1"}
    code, output = _run(command, folder, source, progress, **inert)
    if code:
        _fail("pip", source, output)
    return _only(into, "*", "pip")


def npm_pack(source: Source, folder: Path, progress: Progress) -> Path:
    """`npm pack` of a pinned package, without its scripts and without its dependencies."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceFailed("npm is not installed", "apt-get install npm")
    options = "--ignore-scripts --fetch-retries=1 --fetch-retry-mintimeout=1000 --cache=npm-cache"
    code, output = _run([npm, "pack", *options.split(), source.where], folder, source, progress)
    if code:
        _fail("npm", source, output)
    return _only(folder, "*.tgz", "npm")


def apt_download(source: Source, folder: Path, progress: Progress) -> Path:
    """`apt-get download` of a package; its data archive is what arrives."""
    apt = shutil.which("apt-get")
    if apt is None:
        raise SourceFailed("apt-get is not installed")
    options = "-o Acquire::Retries=1 -o Acquire::http::Timeout=15 -o Acquire::https::Timeout=15"
    command = [apt, "download", *options.split(), source.where]
    code, output = _run(command, folder, source, progress, LC_ALL="C")
    if code:
        stale = any(sign in output for sign in _STALE_LISTS)
        _fail("apt-get", source, output, "apt-get update" if stale else "")
    return _only(folder, "*.deb", "apt-get")


def _members(stream: BinaryIO) -> Iterator[tuple[str, int]]:
    """Name and size of each member of an `ar` archive; the stream stands at its first byte."""
    while header := stream.read(DEB_HEADER):
        if len(header) < DEB_HEADER or header[58:] != b"`\n":
            raise ValueError("a broken member header in the Debian package")
        name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
        start = stream.tell()
        yield name, size
        # Members begin at even offsets.
        stream.seek(start + size + size % 2)


def data_archive(package: Path) -> Path:
    """Write the `data.tar.*` of a .deb beside it and return its path; dpkg need not be here."""
    with package.open("rb") as stream:
        if stream.read(len(DEB_MAGIC)) != DEB_MAGIC:
            raise ValueError(f"{package.name} is not a Debian package")
        for name, size in _members(stream):
            if name.startswith("data.tar"):
                target = package.with_name(name)
                target.write_bytes(stream.read(size))
                return target
    raise ValueError(f"{package.name} holds no data archive")


CLIENTS: dict[str, Callable[[Source, Path, Progress], Path]] = {
    "pip": pip_download,
    "npm": npm_pack,
    "apt": apt_download,
}
"""By source kind: into an empty folder, the archive as the registry gave it."""

OPENERS: dict[str, Callable[[Path], Path]] = {"apt": data_archive}
"""By source kind: from the checked archive to the file that a plugin unpacks."""
