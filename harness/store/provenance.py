"""What produced a result: source hashes, package versions, commit, machine class."""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec, resolve_name
from pathlib import Path

PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "scikit-image",
    "lpips",
    "safetensors",
    "pillow",
    "opacus",
)


def source_sha256(*modules: str) -> str:
    """A hash of these modules' source and of all they import from their own top packages.

    Comments count: the hash says which text ran. Modules without source are named, not hashed.
    """
    digest = hashlib.sha256()
    for name in sorted(_closure(modules)):
        digest.update(f"{name}\0{module_sha256(name)}\n".encode())
    return digest.hexdigest()


def packages_of(*modules: str) -> dict[str, str]:
    """Versions of the installed packages that these modules import, by distribution.

    All that they import of their own top packages is looked at too, as for the hash. What decides
    no numbers is left out.
    """
    own = {name.partition(".")[0] for name in (*modules, __name__)}
    imported = {found.partition(".")[0] for name in _closure(modules) for found in _imports(name)}
    others = imported - own - NUMBERLESS - sys.stdlib_module_names
    return {name: found for top in sorted(others) for name, found in _versions(top).items()}


NUMBERLESS = frozenset(
    ("click", "filelock", "jinja2", "platformdirs", "pluggy", "psutil", "pydantic", "rich")
)
"""Packages that decide no numbers: a new version of them makes nothing anew."""

DISTRIBUTIONS = {"PIL": "pillow", "skimage": "scikit-image"}
"""Known without reading what every distribution installed, which takes an eighth of a second."""


@cache
def _versions(top: str) -> dict[str, str]:
    """Of the distributions that a top package comes from; empty for what lies about unpacked."""
    name = DISTRIBUTIONS.get(top, top)
    try:
        return {name: version(name)}
    except PackageNotFoundError:
        return {each: version(each) for each in sorted(packages_distributions().get(top, ()))}


def _closure(modules: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += _own_imports(name)
    return seen


@cache
def _spec(module: str) -> ModuleSpec | None:
    """Where a module lies. Unlike `find_spec` it runs no parent: a hash costs no torch."""
    parent = module.rpartition(".")[0]
    if not parent:
        return find_spec(module)
    above = _spec(parent)
    if above is None or above.submodule_search_locations is None:
        return None
    return PathFinder.find_spec(module, above.submodule_search_locations)


def _source(module: str) -> Path | None:
    spec = _spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)


@cache
def module_sha256(module: str) -> str:
    """A hash of one module's source, whatever it imports."""
    path = _source(module)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path else "none"


def _own_imports(module: str) -> list[str]:
    """Modules of the same top package that a module imports."""
    top = module.partition(".")[0]
    return [name for name in _imports(module) if name.partition(".")[0] == top and _source(name)]


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Names that a module imports, anywhere in it; not all of them need be modules."""
    path = _source(module)
    if path is None:
        return ()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:  # its text is hashed; whoever imports it will say what is wrong
        return ()
    return tuple(_imported_names(tree, package))


def _imported_names(tree: ast.Module, package: str) -> Iterator[str]:
    """Absolute names; `package` is what relative imports start from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


@cache
def package_versions() -> dict[str, str]:
    """Versions of the packages that decide numbers, where installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def available_threads() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def device_class(asked: str) -> str:
    """`cpu`, `cuda` or `mps`. Imports torch only where it may see more than a CPU."""
    if asked != "auto":
        return asked
    if not _may_accelerate():
        return "cpu"
    return next(device for device in ("cuda", "mps", "cpu") if can_compute_on(device))


def can_compute_on(device: str) -> bool:
    """Whether torch sees a device of this class."""
    if device == "cpu":
        return True
    import torch

    return torch.cuda.is_available() if device == "cuda" else torch.backends.mps.is_available()


def _may_accelerate() -> bool:
    """Whether the installed torch is built for more than a CPU, read from its version file."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    if sys.platform == "darwin":
        return True
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    return not re.search(r"^cuda\b[^=]*=\s*None", text, re.MULTILINE)


ROOT = Path(__file__).resolve().parents[2]
CODE = ("harness", "plugins", "pyproject.toml", "constraints.txt")
"""What runs, and with what."""


def code_state(root: Path = ROOT) -> dict[str, str | bool]:
    """Commit of a source checkout, and whether its code is another; empty for a package.

    New records beside the code do not make it another.
    """
    if not (root / ".git").exists():
        return {}
    try:
        commit = _git(root, "rev-parse", "HEAD")
        dirty = bool(_git(root, "status", "--porcelain", "--", *CODE))
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"commit": commit, "dirty": dirty}


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def python_version() -> str:
    """Such as `3.11.7`."""
    return platform.python_version()
