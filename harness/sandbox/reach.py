"""What a plugin's process may reach of this machine besides its own folders.

Python with all that is installed, the system's libraries, and of the rest what numerical libraries
look at: no home, no temporary folder, no cache.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

GROUP = "harness.plugins"
SYSTEM = (
    *("/usr", "/lib", "/lib64", "/bin", "/opt", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/fonts", "/etc/nvidia"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/driver"),
    *("/proc/sys/kernel", "/proc/sys/vm", "/sys/devices", "/sys/module", "/sys/bus"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
)
"""Programs, libraries and what says how the machine is made."""
DEVICES = ("nvidia*", "dri", "kfd")
"""Below `/dev`: where computations run that are not the processor's."""


def readable(apart: Path) -> list[str]:
    """Paths that hold Python, what is installed, and the system's libraries.

    Of a folder that `apart` (the cache) lies in, all else that it holds.
    """
    paths = {*places(), *map(Path, SYSTEM)}
    return sorted({str(each) for path in paths for each in _without(path, apart.resolve())})


@cache
def places() -> frozenset[Path]:
    """Where Python, the harness, plugins and libraries lie."""
    installed = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path, *_packages()]
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return frozenset(Path(path).resolve() for path in (*installed, *libraries) if _is_ground(path))


def devices() -> list[str]:
    """What is read and written although it is no folder of one's own."""
    there = (str(path) for name in DEVICES for path in Path("/dev").glob(name))
    return ["/dev/null", *there]


def _is_ground(path: str) -> bool:
    """Whether a place that Python looks in is one to read: the shell's, only if it is named."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return bool(path) and (path in named or Path(path).resolve() != Path.cwd())


def _packages() -> Iterator[str]:
    """Where the harness and all plugins lie and are declared, wherever Python finds them."""
    for kind in ("dist-info", "egg-info"):  # the first that names a plugin is the one that counts
        yield from map(str, Path.cwd().glob(f"*.{kind}"))
    names = {"harness", *(each.module.partition(".")[0] for each in entry_points(group=GROUP))}
    for spec in (find_spec(name) for name in sorted(names)):
        if spec and spec.submodule_search_locations:
            yield from spec.submodule_search_locations
        elif spec and spec.origin:
            yield spec.origin


def _without(path: Path, apart: Path) -> Iterable[Path]:
    """A path, or what it holds but for a part of it."""
    if not apart.is_relative_to(path):
        return [path]
    if apart == path or not path.is_dir():
        return []
    return [each for child in sorted(path.iterdir()) for each in _without(child, apart)]
