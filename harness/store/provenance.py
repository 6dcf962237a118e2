"""What produced a result: source hashes, package versions, commit, machine class."""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import re
import subprocess
import sys
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


@cache
def source_sha256(*modules: str, apart: frozenset[str] = frozenset()) -> str:
    """A hash of the source of these modules and of all that they use: of `modules_of` them.

    Comments count: the hash says which text ran. Modules without source are named, not hashed.
    """
    digest = hashlib.sha256()
    for name in modules_of(*modules, apart=apart):
        digest.update(f"{name}\0{module_sha256(name)}\n".encode())
    return digest.hexdigest()


@cache
def packages_of(*modules: str, apart: frozenset[str] = frozenset()) -> dict[str, str]:
    """Versions of the installed packages that these modules import, by distribution.

    All that they import of their own top packages is looked at too, as for the hash. What decides
    no numbers is left out.
    """
    own = {name.partition(".")[0] for name in (*modules, __name__)}
    imported = {top for name in modules_of(*modules, apart=apart) for top in _tops(name)}
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


def modules_of(*modules: str, apart: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """These modules and all whose code they use, each within its own top package; sorted.

    Every import is followed, inside functions too, but for those under `if TYPE_CHECKING:`.
    `from package import name` leads to the module that defines `name`, past each `__init__` that
    only passes it on. An import also runs the `__init__` of every package above a module; those
    of this project are empty or pass names on, which decides nothing, so they are not followed.
    Modules that stand `apart` are neither followed nor named, unless they are asked for.
    """
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += [used for used in _used(name) if used not in apart]
    return tuple(sorted(seen))


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


class _Executed(ast.NodeTransformer):
    """Takes out of a module what only type checkers read."""

    def visit_If(self, node: ast.If) -> ast.If | list[ast.stmt]:
        """The `else` of an `if TYPE_CHECKING:`; any other `if` as it is."""
        self.generic_visit(node)
        asked = getattr(node.test, "attr", getattr(node.test, "id", ""))
        return node.orelse if asked == "TYPE_CHECKING" else node


@cache
def _tree(module: str) -> ast.Module:
    """What a module executes; nothing where it has no source."""
    path = _source(module)
    try:
        tree = ast.parse(path.read_bytes() if path else b"")
    except SyntaxError:  # its text is hashed; whoever imports it will say what is wrong
        return ast.Module([], [])
    executed: ast.Module = _Executed().visit(tree)
    return executed


@cache
def _used(module: str) -> tuple[str, ...]:
    """Modules of the same top package that a module imports, or imports something of."""
    found: list[str] = []
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, module)
            for alias in node.names if _alike(origin, module) else ():
                found += _homes(origin, alias.name)
    return tuple(name for name in found if _alike(name, module) and _source(name))


@cache
def _tops(module: str) -> frozenset[str]:
    """The top packages that a module imports from, its own among them."""
    found: set[str] = set()
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).partition(".")[0])
    return frozenset(found)


def _alike(one: str, other: str) -> bool:
    """Whether two modules are of the same top package."""
    return one.partition(".")[0] == other.partition(".")[0]


def _origin(node: ast.ImportFrom, module: str) -> str:
    """The absolute name of what `module` imports from."""
    package = module if _is_package(module) else module.rpartition(".")[0]
    return resolve_name("." * node.level + (node.module or ""), package)


def _is_package(module: str) -> bool:
    spec = _spec(module)
    return spec is not None and spec.submodule_search_locations is not None


def _homes(origin: str, name: str) -> list[str]:
    """Where `from origin import name` has the name from: a module that defines it, or is it."""
    passed = set()
    while (origin, name) not in passed:
        passed.add((origin, name))
        origin, name = _passed_on(origin).get(name, (origin, name))
    below = f"{origin}.{name}"
    only_below = _source(below) and name not in _own_names(origin)
    return [below] if only_below else [origin, below]


@cache
def _passed_on(package: str) -> dict[str, tuple[str, str]]:
    """By name: from which module, and as what, an `__init__` has what it passes on.

    That is what it imports at its top, or in its `__getattr__`, and does nothing else with.
    """
    body = _tree(package).body if _is_package(package) else []
    late = [node for s in body if _name(s) == "__getattr__" for node in ast.walk(s)]
    origins = [(n, _origin(n, package)) for n in (*body, *late) if isinstance(n, ast.ImportFrom)]
    return {
        alias.asname or alias.name: (origin, alias.name)
        for node, origin in origins
        if _alike(origin, package) and origin != package
        for alias in node.names
        if (alias.asname or alias.name) not in _own_names(package)
    }


@cache
def _own_names(package: str) -> set[str]:
    """Names that an `__init__` defines, changes or uses, outside its `__getattr__`."""
    body = [s for s in _tree(package).body if not isinstance(s, ast.ImportFrom)]
    own = [node for s in body if _name(s) != "__getattr__" for node in ast.walk(s)]
    return {_name(node) for node in own}


def _name(node: ast.AST) -> str:
    """The name that a definition, an import or a mention is of."""
    return str(getattr(node, "asname", None) or getattr(node, "name", getattr(node, "id", "")))


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
