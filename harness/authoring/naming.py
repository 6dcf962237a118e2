"""What a new plugin and its package are called, and whether they may be."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from harness.api.errors import UsageError
from harness.asking.registry import KINDS, NAME, registry

Kind = Literal["defense", "attack"]

LONGEST = 40


@dataclass(frozen=True)
class Naming:
    """All names that follow from a plugin's, `soft-mix`."""

    kind: Kind
    plugin: str

    @property
    def distribution(self) -> str:
        """What pip calls it: `harness-soft-mix`; also the folder."""
        return f"harness-{self.plugin.replace('_', '-')}"

    @property
    def package(self) -> str:
        """What Python imports: `harness_soft_mix`."""
        return self.distribution.replace("-", "_")

    @property
    def class_name(self) -> str:
        """The class that does the work: `SoftMix`."""
        return "".join(part.capitalize() for part in re.split("[-_]", self.plugin))


def name_plugin(kind: Kind, plugin: str) -> Naming:
    """The names of a new plugin; UsageError where they cannot be, or somebody has them."""
    if not NAME.fullmatch(plugin) or len(plugin) > LONGEST:
        raise UsageError(
            f"'{plugin}' is not a name for a plugin: write up to {LONGEST} lower-case letters and "
            f"digits, words joined by - or _, a letter first.{_suggestion(plugin)}"
        )
    naming = Naming(kind, plugin)
    if keyword.iskeyword(naming.class_name):
        raise UsageError(f"'{plugin}' would make a class named '{naming.class_name}'.")
    _check_free(naming)
    return naming


def _suggestion(plugin: str) -> str:
    """A name that is near and would do, if there is one."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", plugin).lower())
    offer = "-".join(words)[:LONGEST].strip("-")
    return f" '{offer}' would do." if NAME.fullmatch(offer) else ""


def _a(noun: str) -> str:
    return f"an {noun}" if noun.startswith("a") else f"a {noun}"


def _check_free(naming: Naming) -> None:
    """UsageError where an installed plugin, or an installed package, has the name."""
    known = registry()
    for kind in KINDS:
        if naming.plugin in known.entries[kind]:
            origin = known.origin(kind, naming.plugin)
            noun = kind.removesuffix("s").replace("_", " ")
            raise UsageError(
                f"'{naming.plugin}' is taken: {origin} has {_a(noun)} of that name. Choose another."
            )
    if find_spec(naming.package) is not None:
        raise UsageError(
            f"'{naming.plugin}' would make a package '{naming.package}', and there is one. "
            "Choose another name, or uninstall that."
        )
