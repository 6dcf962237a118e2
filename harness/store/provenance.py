"""What produced a result: source hashes, package versions, plugins, commit, machine class."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import FileFinder, ModuleSpec, SourceFileLoader
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec, resolve_name
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.api.assets import Asset
    from harness.api.specs import Preparation, Spec
    from harness.asking.request import Resolved

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


API = "harness.api.plugins"
API_WAS = {
    f"harness.api.{name}": sha256
    for name, sha256 in {
        "assets": "4a2a12881ec59682aca87ae3c5c7d9412d4f237d8ed522cf3261dda857732974",
        "data": "130154e8a5043750513bcea75824ac9d699c8d161503c60ff3304dee5d58ca61",
        "errors": "ff11200534b20f28dd7b51e832c66eb6faea9b65366e7aca46872d87ff4a60b9",
        "knowledge": "ccf98905107e63f1bcbdd565cfe9529cda9c358376a494fac6065bf5230608df",
        "law": "6ff79d3bf56283aff479c538bcf1094e9ca1a5d5c02175baf04f7c4ee4c58000",
        "plugins": "ac7d0dc5057475e29b86debd5d890f2a44e03f8aeb878d658669ec4ac20ffe84",
        "precision": "450dbbf9c11b19baea7070ef6fdbcb044a3865fe25a3a99e9f5345f45359fe4c",
        "randomness": "791bdaa62a132fae14c61dfc880872dff5cdca60b0fa067baa1815e08b86196d",
        "release": "61aab4d841564d005b4d864cad7e6f863e22e82d457154501c80381d81e33190",
        "view": "f3c028bc83628529b4c268b2223e706dd99a8e19ff5dedf8ade82a032a3ef976",
    }.items()
}
"""Sources that hashes of some plugins once covered: see `is_of_today`."""


@cache
def packages_of(*modules: str, apart: frozenset[str] = frozenset()) -> dict[str, str]:
    """Versions of the installed packages that these modules import, by distribution.

    All that they import of their own top packages is looked at too, as for the hash. What decides
    no numbers is left out.
    """
    own = {name.partition(".")[0] for name in (*modules, __name__)}
    followed = modules_of(*modules, apart=apart)
    tops = {origin.partition(".")[0] for name in followed for origin, _ in _imports(name)}
    others = tops - own - NUMBERLESS - sys.stdlib_module_names
    return {name: found for top in sorted(others) for name, found in _versions(top).items()}


NUMBERLESS = frozenset(
    (
        "click",
        "filelock",
        "jinja2",
        "pandas",
        "platformdirs",
        "pluggy",
        "psutil",
        "pydantic",
        "rich",
    )
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
    top, *below = module.split(".")
    spec, name = find_spec(top), top
    for part in below:
        name = f"{name}.{part}"
        places = (spec.submodule_search_locations if spec else None) or ()
        finders = (FileFinder(place, (SourceFileLoader, [".py"])) for place in places)
        spec = next(filter(None, (finder.find_spec(name) for finder in finders)), None)
    return spec


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


@cache
def _body(module: str) -> list[ast.stmt]:
    """A module's statements; none where it has no source."""
    path = _source(module)
    try:
        return ast.parse(path.read_bytes()).body if path else []
    except SyntaxError:  # its text is hashed; whoever imports it will say what is wrong
        return []


PARTS = ("body", "handlers", "cases", "orelse", "finalbody")
"""Where a statement has others inside it."""


def _executed(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """These statements and all inside them, but for what only type checkers read."""
    waiting = list(body)
    while waiting:
        statement = waiting.pop(0)
        test = getattr(statement, "test", None)
        for_types = getattr(test, "attr", getattr(test, "id", "")) == "TYPE_CHECKING"
        if not for_types:
            yield statement
        for part in ("orelse",) if for_types else PARTS:
            waiting += getattr(statement, part, ())


@cache
def _imports(module: str) -> tuple[tuple[str, str], ...]:
    """From which module each import is, and of what name; "" where it is of the module itself."""
    found: list[tuple[str, str]] = []
    for node in _executed(_body(module)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(_origin(node, module), alias.name) for alias in node.names]
    return tuple(found)


@cache
def _used(module: str) -> tuple[str, ...]:
    """Modules of the same top package that a module imports, or imports something of."""
    alike = [each for each in _imports(module) if _alike(each[0], module)]
    homes = [_homes(origin, name) if name else [origin] for origin, name in alike]
    return tuple(home for home in chain(*homes) if _source(home))


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
    body = _body(package) if _is_package(package) else []
    late = [node for s in body if _name(s) == "__getattr__" for node in _executed([s])]
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
    body = [s for s in _body(package) if not isinstance(s, ast.ImportFrom)]
    own = [s for s in body if _name(s) != "__getattr__"]
    return {_name(node) for statement in _executed(own) for node in ast.walk(statement)}


def _name(node: ast.AST) -> str:
    """The name that a definition, an import or a mention is of."""
    return str(getattr(node, "asname", None) or getattr(node, "name", getattr(node, "id", "")))


@cache
def package_versions() -> dict[str, str]:
    """Versions of the packages that decide numbers, where installed."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
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


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: one text for one value."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_of(value: Any) -> str:
    """Hash of a JSON value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def plugin_source(resolved: Resolved) -> str:
    """Hash of a plugin's source: its class's module, its config's, and what they use."""
    return spec_source(resolved.spec)


def spec_source(spec: Spec) -> str:
    """The same hash, from a plugin's declaration: its options do not count."""
    return source_sha256(*_modules(spec))


def is_of_today(spec: Spec, source: str) -> bool:
    """Whether a record's hash of a plugin says that its source is what is installed."""
    return source in (spec_source(spec), _with_the_api(spec))


def _with_the_api(spec: Spec) -> str:
    """The hash as it was when plugins without options of their own counted the API as theirs."""
    digest = hashlib.sha256()
    own = {name: module_sha256(name) for name in modules_of(*_modules(spec))}
    for name, sha256 in sorted({**own, **API_WAS}.items()):
        digest.update(f"{name}\0{sha256}\n".encode())
    return digest.hexdigest()


def _modules(spec: Spec) -> list[str]:
    """Where a plugin's code begins: a config that it has from the API is none of its own."""
    modules = {spec.factory.partition(":")[0], spec.config.__module__}
    return sorted(modules - {"", API})


def plugin_identity(resolved: Resolved) -> dict[str, Any]:
    """What makes two uses of a plugin the same."""
    return {
        "name": resolved.name,
        "version": resolved.spec.version,
        "source": plugin_source(resolved),
        "packages": packages_of(*_modules(resolved.spec)),
        "config": plain_config(resolved),
    }


def plain_config(resolved: Resolved) -> dict[str, Any]:
    """A plugin's options as JSON values."""
    values: dict[str, Any] = resolved.config.model_dump(mode="json")
    return values


def preparation_identity(made: Preparation, attack: Resolved) -> dict[str, Any]:
    """What makes two preparations the same: their code and arguments, whoever asks for them."""
    return {
        "name": made.name,
        "factory": made.factory,
        "channels": sorted(made.channels),
        "source": source_sha256(made.factory.partition(":")[0]),
        "packages": packages_of(made.factory.partition(":")[0]),
        "arguments": preparation_arguments(made, attack),
    }


def preparation_arguments(made: Preparation, attack: Resolved) -> dict[str, Any]:
    """Constants, and the options that the attack was given."""
    config = plain_config(attack)
    return {**made.constants, **{name: config[name] for name in made.options}}


def assets_identity(assets: tuple[Asset, ...]) -> dict[str, dict[str, str]]:
    """Files by asset, by content."""
    return {asset.name: {file.name: file.digest for file in asset.files} for asset in assets}
