"""Strangers' modules are imported here first, so that one that must not be imported is not.

    python -m harness.sandbox.trial

Prints as JSON what is wrong with which, by `distribution:entry point`. Each is tried in a process
of its own, within walls, and again only when its files have changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.api.errors import StoreError
from harness.asking.registry import GROUP, OWN_DISTRIBUTION, is_stranger, label_of
from harness.sandbox.jail import UNCONFINED, confine
from harness.sandbox.reach import devices, readable
from harness.store.paths import cache_root, write_atomically

SECONDS = 20
LONGEST = 2000
GUARDED = (
    *("harness.evaluation", "harness.running.run", "harness.scoring.verdict"),
    *(
        "harness.submissions.verification",
        "builtins",
        "hashlib",
        "importlib",
        "json",
        "os",
        "random",
    ),
)
"""What is loaded before a stranger's module, to see whether that changes it."""


def main(*arguments: str) -> None:
    """Try all, or one in this very process."""
    if arguments:
        _import(*arguments)
        return
    found = {label_of(p): tried(p) for p in entry_points(group=GROUP) if is_stranger(p)}
    print(json.dumps({label: fault for label, fault in found.items() if fault}))


def tried(point: EntryPoint) -> str:
    """What is wrong with a module; empty where nothing is."""
    name = _fingerprint(point.module)
    with suppress(OSError, StoreError):
        return (cache_root() / "trials" / name).read_text(encoding="utf-8")[:LONGEST]
    found = _outcome(point.module)
    with suppress(StoreError):  # it is tried again next time
        write_atomically(cache_root() / "trials" / name, found.encode())
    return found


def _fingerprint(module: str) -> str:
    """Of the files of a module's package, and of what they are tried with."""
    spec = find_spec(module.partition(".")[0])
    places = [*((spec.submodule_search_locations or [spec.origin or ""]) if spec else [])]
    files = [file for place in places if place for file in _sources(Path(place))]
    stated = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files]
    told = [module, version(OWN_DISTRIBUTION), sys.version, stated]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _sources(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def _outcome(module: str) -> str:
    with tempfile.TemporaryDirectory(prefix="encoding-harness-trial-") as made:
        folder = Path(made)
        command = [sys.executable, "-m", "harness.sandbox.trial", module, str(folder)]
        quiet: Mapping[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, start_new_session=True, **quiet) as process:
            try:
                code = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                code = None
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if code is None:
            return f"cannot be imported: that did not end within {SECONDS} s"
        if code:
            return f"cannot be imported: that ended Python with exit code {code}"
        with suppress(OSError):
            return (folder / "said").read_text(encoding="utf-8", errors="replace")[:LONGEST]
        return "cannot be imported: that ended Python"


def _import(module: str, folder: str) -> None:
    """Import it within walls, and write down what it changed. What it raises is met again."""
    for name in GUARDED:
        import_module(name)
    if not os.environ.get(UNCONFINED):
        os.environ["TMPDIR"] = folder
        confine(readable(_cache() or Path(folder)), [folder, *devices()])
    before = {name: dict(vars(each)) for name, each in _guarded()}
    said = ""
    try:
        import_module(module)
    except (Exception, SystemExit):  # noqa: BLE001  met again where it is told in full
        pass
    except BaseException as error:  # noqa: BLE001  what would go past everyone
        said = f"cannot be imported: {type(error).__name__}: {error}"
    said = said or next(_changes(before), "")
    (Path(folder) / "said").write_text(said, encoding="utf-8")
    os._exit(0)  # threads that it started do not count


def _cache() -> Path | None:
    """Where the cache is; None where it cannot be looked at, which commands that need it say."""
    with suppress(StoreError):
        return cache_root()
    return None


def _guarded() -> Iterator[tuple[str, ModuleType]]:
    """What is loaded of ours, and of the standard library what all rests on."""
    for name, module in list(sys.modules.items()):
        if name in GUARDED or name.partition(".")[0] == "harness":
            yield name, module


def _changes(before: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What is no longer what it was."""
    for name, values in before.items():
        now = vars(sys.modules[name]) if name in sys.modules else {}
        for each, value in values.items():
            if now.get(each) is not value and not isinstance(value, ModuleType):
                yield f"is refused: when it is imported it changes {name}.{each}"


if __name__ == "__main__":
    main(*sys.argv[1:])
