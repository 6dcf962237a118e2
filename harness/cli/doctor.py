"""`harness doctor`."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass

import click

from harness.cli.options import epilog, json_option, print_answer


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    what: str
    ok: bool
    message: str
    detail: str = ""

    def lines(self, verbose: bool) -> list[str]:
        """As people read it, with the detail below where they want it."""
        detail = self.detail.splitlines() if verbose else []
        said = f"{'ok    ' if self.ok else 'BROKEN'}  {self.what}: {self.message}"
        return [said, *(f"        {line}" for line in detail)]


@click.command("doctor", epilog=epilog("harness doctor", "harness doctor --verbose"))
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks of broken plugins.")
@json_option
def command(verbose: bool, as_json: bool) -> int:
    """Check plugins, their classes, packages, assets and the cache.

    Exits 1 if anything is broken; an asset that could be fetched is not.
    """
    findings = [found for check in CHECKS for found in check()]
    lines = (line for finding in findings for line in finding.lines(verbose))
    print_answer(as_json, [asdict(finding) for finding in findings], lines)
    return 0 if all(finding.ok for finding in findings) else 1


def _declarations() -> list[Finding]:
    from harness.asking.registry import registry

    known = registry()
    broken = [Finding(str(p.origin), False, p.message, p.detail) for p in known.problems]
    counts = ", ".join(f"{len(known.entries[kind])} {kind}" for kind in known.entries)
    return [Finding("plugins", True, counts.replace("_", " ")), *broken]


def _factories() -> list[Finding]:
    """Import every plugin's class, which a run would do only for those it uses."""
    from importlib.util import find_spec

    from harness.api.errors import PluginError
    from harness.asking.registry import load_factory, registry

    if find_spec("torch") is None:
        return [Finding("torch", False, "not installed: nothing but stored records can be shown")]
    broken = []
    for entries in registry().entries.values():
        for entry in entries.values():
            if getattr(entry.spec, "factory", ""):
                try:
                    load_factory(entry.spec, entry.origin)
                except PluginError as error:
                    broken.append(Finding(str(entry.origin), False, str(error)))
    return broken or [Finding("classes", True, "all import")]


def _packages() -> list[Finding]:
    from harness.store.provenance import available_threads, device_class, package_versions

    versions = ", ".join(f"{name} {version}" for name, version in package_versions().items())
    machine = f"device {device_class('auto')}, {available_threads()} threads"
    return [Finding("python", True, f"{platform.python_version()}, {versions}; {machine}")]


def _assets() -> list[Finding]:
    from harness.api.errors import AssetUnavailable, IntegrityError
    from harness.asking.registry import registry
    from harness.assets.lookup import locate
    from harness.store import cache_root

    findings = []
    for name, asset in sorted(registry().assets().items()):
        ok, message = True, "here and verified"
        try:
            locate(asset, cache_root())
        except AssetUnavailable:
            message = f"not here: harness assets fetch {name}"
        except IntegrityError as error:
            ok, message = False, str(error)
        findings.append(Finding(f"asset {name}", ok, message))
    return findings


def _own_files() -> list[Finding]:
    """Whether what is imported as ours is ours."""
    from importlib.metadata import packages_distributions

    from harness.asking.registry import OWN_DISTRIBUTION

    named = packages_distributions()
    others = {
        f"distribution '{owner}' brings a package '{package}', as '{OWN_DISTRIBUTION}' does"
        for package in ("harness", "harness_plugins")
        for owner in named.get(package, ())
        if owner != OWN_DISTRIBUTION
    }
    return [Finding("own files", False, fault) for fault in sorted(others)]


def _confinement() -> list[Finding]:
    """How plugins' processes are kept from the rest of the machine."""
    from harness.sandbox.jail import SIGNALS_SINCE, UNCONFINED, Walls

    walls = Walls.here()
    if os.environ.get(UNCONFINED):
        return [Finding("confinement", True, f"{UNCONFINED} is set: plugins may do all you may")]
    if walls.stand:
        told = f"plugins' processes are confined by Landlock {walls.landlock} and seccomp"
        if walls.landlock < SIGNALS_SINCE:
            told += "; they can end other processes of yours, which Linux 6.12 prevents"
        return [Finding("confinement", True, told)]
    parts = {"Landlock (Linux 5.13)": walls.landlock > 0, "seccomp": walls.seccomp}
    missing = " and ".join(name for name, there in parts.items() if not there)
    told = f"{missing} is not to be had here: plugins may do what you may, and records say so"
    return [Finding("confinement", True, told)]


def _cache() -> list[Finding]:
    from harness.api.errors import StoreError
    from harness.store import cache_root
    from harness.store.paths import disk_errors, scratch_folder

    root = cache_root()
    try:
        with scratch_folder(root, "doctor"), disk_errors(root):
            free = shutil.disk_usage(root).free / 2**30
    except StoreError as error:
        return [Finding("cache", False, str(error))]
    return [Finding("cache", True, f"{root} can be written; {free:.0f} GiB free")]


CHECKS: tuple[Callable[[], list[Finding]], ...] = (
    _declarations,
    _factories,
    _packages,
    _own_files,
    _confinement,
    _assets,
    _cache,
)
