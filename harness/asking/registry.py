"""Finding plugins, and keeping a broken one from taking the others down.

Plugins come from the entry-point group `harness.plugins` and from nowhere else, the built-in
ones included. A declaration that cannot be used becomes a `Problem` that names its plugin and
distribution; every other plugin stays.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from types import MappingProxyType, ModuleType
from typing import Any

import pluggy
from pydantic import BaseModel, ValidationError

from harness.api import hooks
from harness.api.assets import Asset
from harness.api.errors import PluginError, UsageError, nearest
from harness.api.knowledge import (
    PRIOR_CHANNELS,
    RELEASE_CHANNELS,
    Channel,
    ReleaseKind,
    ThreatModel,
)
from harness.api.specs import (
    AttackSpec,
    CeilingSpec,
    DatasetSpec,
    DefenseSpec,
    LearnerSpec,
    MetricSpec,
    SpaceSpec,
    Spec,
    Stage,
    VictimSpec,
)

GROUP = "harness.plugins"
MARKER = f"{hooks.PROJECT}_impl"
OWN_DISTRIBUTION = "encoding-harness"
REFUSED = "HARNESS_REFUSED"
"""The environment variable that says which strangers' modules must not be imported."""
NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
FACTORY = re.compile(r"[\w.]+:\w+")

KINDS: Mapping[str, type[Any]] = {
    "defenses": DefenseSpec,
    "attacks": AttackSpec,
    "datasets": DatasetSpec,
    "metrics": MetricSpec,
    "victims": VictimSpec,
    "learners": LearnerSpec,
    "ceilings": CeilingSpec,
    "spaces": SpaceSpec,
    "threat_models": ThreatModel,
}


@dataclass(frozen=True)
class Origin:
    """Where a plugin was declared."""

    distribution: str
    version: str
    entry_point: str
    module: str

    def __str__(self) -> str:
        """As messages name it."""
        return f"plugin '{self.entry_point}' of distribution '{self.distribution}'"


@dataclass(frozen=True)
class Problem:
    """Why something that a distribution declares cannot be used."""

    origin: Origin
    message: str
    detail: str = ""

    def __str__(self) -> str:
        """One line for people."""
        return f"{self.origin}: {self.message}"


@dataclass(frozen=True)
class Registered:
    """One usable declaration and where it is from."""

    spec: Any
    origin: Origin


@dataclass
class Registry:
    """All usable declarations by kind and name, and the problems of the others."""

    entries: dict[str, dict[str, Registered]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    problems: list[Problem] = field(default_factory=list)

    def _find(self, kind: str, name: str) -> Registered:
        known = self.entries[kind]
        if name not in known:
            hint = f"{nearest(name, known)}{self.blame(name)}"
            raise UsageError(f"Unknown {_noun(kind)} '{name}'.{hint}")
        return known[name]

    def blame(self, name: str) -> str:
        """Point at a broken plugin that may have been meant."""
        guilty = [p for p in self.problems if name in (p.origin.entry_point, p.origin.distribution)]
        return "".join(f" ({problem})" for problem in guilty)

    def origin(self, kind: str, name: str) -> Origin:
        """Where a plugin was declared."""
        return self._find(kind, name).origin

    def spec(self, kind: str, name: str) -> Any:
        """A plugin's declaration; UsageError with the nearest name if there is none."""
        return self._find(kind, name).spec

    def build(self, kind: str, name: str, argument: Any) -> Any:
        """A plugin at work: its class, given a config or a metric's scene.

        PluginError where the class cannot be loaded.
        """
        entry = self._find(kind, name)
        return load_factory(entry.spec, entry.origin)(argument)

    def specs(self, kind: str) -> list[Any]:
        """All declarations of one kind, by name."""
        return [entry.spec for _, entry in sorted(self.entries[kind].items())]

    def assets(self) -> dict[str, Asset]:
        """Every asset that a plugin declares, by name."""
        owners = [spec for kind in ("datasets", "metrics", "spaces") for spec in self.specs(kind)]
        return {asset.name: asset for owner in owners for asset in owner.assets}

    def add(self, kind: str, spec: Any, origin: Origin) -> None:
        """Take one declaration, or note why not."""
        fault = next(_faults(kind, spec, origin), None)
        taken = None if fault else self.entries[kind].get(spec.name)
        if taken:
            noun, owner = _noun(kind), taken.origin
            fault = f"its {noun} '{spec.name}' is refused: {owner} has that name already"
        if fault:
            self.problems.append(Problem(origin, fault))
        else:
            self.entries[kind][spec.name] = Registered(spec, origin)

    def note(self, origin: Origin, what: str, error: BaseException) -> None:
        """Keep what a plugin's own code raised as a problem of that plugin."""
        import traceback  # needed only where something broke

        detail = "".join(traceback.format_exception(error))
        problem = Problem(origin, f"{what} {type(error).__name__}: {error}", detail)
        self.problems.append(problem)


def _noun(kind: str) -> str:
    return kind.removesuffix("s").replace("_", " ")


def _faults(kind: str, spec: Any, origin: Origin) -> Iterator[str]:
    """Why a declaration cannot be used. Take the first: each relies on there being none before.

    That the built-in presets fit is left to the tests: to ask would have pydantic compile every
    built-in config for every command.
    """
    wanted = KINDS[kind]
    if not isinstance(spec, wanted):
        yield f"harness_{kind} must return {wanted.__name__} objects; it returned {spec!r}"
    if not NAME.fullmatch(spec.name):
        yield f"'{spec.name}' is not a name: lower-case words joined by - or _"
    if isinstance(spec, Spec):
        own = origin.distribution == OWN_DISTRIBUTION
        presets = () if own else (_preset_faults,)
        for faults in (_class_faults, *presets, _attack_faults):
            yield from (f"'{spec.name}': {fault}" for fault in faults(spec))


def _class_faults(spec: Spec) -> Iterator[str]:
    several = isinstance(spec, (AttackSpec, LearnerSpec)) and spec.members
    if not several and not FACTORY.fullmatch(spec.factory):
        yield f"factory must read 'package.module:Class'; it reads '{spec.factory}'"
    if not (isinstance(spec.config, type) and issubclass(spec.config, BaseModel)):
        yield f"config must be a pydantic model class; it is {spec.config!r}"
    # A defense at no stage would be left out of its stack in silence.
    if isinstance(spec, DefenseSpec) and spec.stage not in set(Stage):
        yield f"stage must be one of {', '.join(Stage)}; it is {spec.stage!r}"


def _preset_faults(spec: Spec) -> Iterator[str]:
    for name, preset in {"default": {}, **spec.presets}.items():
        try:
            spec.config.model_validate(preset)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            yield f"preset '{name}' does not fit its config: {where}: {first['msg']}"


def _attack_faults(spec: Spec) -> Iterator[str]:
    """Alternatives read one release each; preparations see none, and take options that exist."""
    if not isinstance(spec, AttackSpec):
        return
    if not spec.members:
        yield from _needs_faults(spec)
    fields = spec.config.model_fields
    for made in spec.preparations:
        if beyond := sorted(made.channels - PRIOR_CHANNELS):
            yield f"preparation '{made.name}' asks for {', '.join(beyond)}"
        if unknown := sorted(set(made.options) - set(fields)):
            yield f"preparation '{made.name}' takes unknown {', '.join(unknown)}"
        if not FACTORY.fullmatch(made.factory):
            yield f"preparation '{made.name}' must read 'package.module:function'"
    if spec.effort and (spec.effort not in fields or fields[spec.effort].annotation is not int):
        yield f"effort '{spec.effort}' is no whole number of its config"


def _needs_faults(spec: AttackSpec) -> Iterator[str]:
    if not spec.needs:
        yield "needs names no alternative"
    for needs in spec.needs:
        if not isinstance(needs, frozenset) or not needs <= set(Channel):
            yield f"needs must be a tuple of sets of channels; it has {needs!r}"
        try:
            release_kind(needs)
        except ValueError as error:
            yield str(error)


@cache
def _label(distribution: Distribution | None) -> tuple[str, str]:
    """A distribution's name and version; asking it parses its metadata every time."""
    return (distribution.name, distribution.version) if distribution else ("unknown", "unknown")


def _origin(point: EntryPoint) -> Origin:
    name, version = _label(point.dist)
    return Origin(name, version, point.name, point.module)


def is_stranger(point: EntryPoint) -> bool:
    """Whether a distribution other than ours declares it."""
    return _origin(point).distribution != OWN_DISTRIBUTION


def label_of(point: EntryPoint) -> str:
    """How one process names an entry point to another."""
    return f"{_origin(point).distribution}:{point.name}"


def _precedence(point: EntryPoint) -> tuple[bool, str, str]:
    """Built-ins first, then distributions by name: nobody takes another's name."""
    return is_stranger(point), _origin(point).distribution, point.name


def _import(registry: Registry, point: EntryPoint) -> ModuleType | None:
    try:
        with redirect_stdout(sys.stderr):  # what a stranger prints is no part of any JSON
            module: ModuleType = point.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001  a stranger's import may raise anything
        registry.note(_origin(point), "cannot be imported:", error)
        return None
    return module


def _is_marked(value: object) -> bool:
    return hasattr(value, MARKER)


def _misnamed(module: ModuleType) -> Iterator[str]:
    """Hooks that pluggy would pass over in silence: misspelt, or without the marker."""
    known = {f"harness_{kind}" for kind in KINDS}
    for name, value in vars(module).items():
        if not callable(value):
            continue
        marked = _is_marked(value)
        if marked and name not in known:
            yield f"there is no hook '{name}'.{nearest(name, known)}"
        elif name in known and not marked:
            yield f"'{name}' lacks @hookimpl, so it would not be called"


def _declarations(
    manager: pluggy.PluginManager, module: ModuleType
) -> Iterator[tuple[str, Callable[..., Any]]]:
    for caller in manager.get_hookcallers(module) or []:
        for implementation in caller.get_hookimpls():
            if implementation.plugin is module and caller.has_spec():
                yield caller.name.removeprefix("harness_"), implementation.function


def _declare(registry: Registry, kind: str, hook: Callable[[], Any], origin: Origin) -> None:
    try:
        specs = list(hook())
    except Exception as error:  # noqa: BLE001  a stranger's hook may raise anything
        registry.note(origin, f"harness_{kind} raised", error)
        return
    for spec in specs:
        try:
            registry.add(kind, spec, origin)
        except Exception as error:  # noqa: BLE001  fields of any type, validators of any error
            registry.note(origin, f"harness_{kind} declared {spec!r}:", error)


def _register(registry: Registry, manager: pluggy.PluginManager, point: EntryPoint) -> None:
    origin = _origin(point)
    module = _import(registry, point)
    if module is None or manager.is_registered(module):
        return
    registry.problems += [Problem(origin, fault) for fault in _misnamed(module)]
    try:
        manager.register(module, name=f"{origin.distribution}:{origin.entry_point}")
    except pluggy.PluginValidationError as error:
        registry.problems.append(Problem(origin, f"breaks a hook's signature: {error}"))
        return
    for kind, hook in _declarations(manager, module):
        _declare(registry, kind, hook, origin)


class _Manager(pluggy.PluginManager):
    """Asks pluggy only of what bears the marker; pluggy itself inspects every name of a module."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        """What the marker of a hook says, or None."""
        marked = _is_marked(vars(plugin).get(name))
        return super().parse_hookimpl_opts(plugin, name) if marked else None


def build_registry(
    points: Iterable[EntryPoint], refused: Mapping[str, str] = MappingProxyType({})
) -> Registry:
    """A registry of the plugins behind these entry points, but for those `refused`, by label."""
    manager = _Manager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    built = Registry()
    for point in sorted(points, key=_precedence):
        if fault := refused.get(label_of(point)):
            built.problems.append(Problem(_origin(point), fault))
        else:
            _register(built, manager, point)
    return built


@cache
def registry() -> Registry:
    """The registry of what is installed."""
    points = entry_points(group=GROUP)
    return build_registry(points, _refused(points))


def _refused(points: Iterable[EntryPoint]) -> dict[str, str]:
    """Strangers' modules that must not be imported, and why; this process's children know it."""
    if not any(map(is_stranger, points)):
        return {}
    if REFUSED not in os.environ:
        command = [sys.executable, "-m", "harness.sandbox.trial"]
        os.environ[REFUSED] = subprocess.run(
            command, stdout=subprocess.PIPE, check=True, text=True
        ).stdout
    try:
        refused: dict[str, str] = json.loads(os.environ[REFUSED])
    except ValueError:
        raise UsageError(f"{REFUSED} is not what the harness sets it to: unset it.") from None
    return refused


def load_factory(spec: Spec, origin: Origin) -> type[Any]:
    """Import the class that does a plugin's work; PluginError names the culprit."""
    from pkgutil import resolve_name

    try:
        factory: type[Any] = resolve_name(spec.factory)
    except (Exception, SystemExit) as error:  # a stranger's import may raise anything
        raise PluginError(
            f"{origin}: '{spec.name}' cannot be loaded from {spec.factory}: "
            f"{type(error).__name__}: {error}"
        ) from error
    return factory


def release_kind(needs: frozenset[Channel]) -> ReleaseKind:
    """The kind of release that a set of needs reads; an attack reads exactly one."""
    kinds = {RELEASE_CHANNELS[channel] for channel in needs if channel in RELEASE_CHANNELS}
    if len(kinds) != 1:
        wanted = ", ".join(sorted(RELEASE_CHANNELS))
        raise ValueError(f"needs must name exactly one of {wanted}; got {sorted(needs)}")
    return kinds.pop()
