"""The plugin that is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.api.errors import UsageError
from harness.api.specs import DefenseSpec, Spec
from harness.asking.registry import Origin, load_factory
from harness.asking.selector import Resolved, parse_one, resolve
from harness.description import entry_of

SECONDS = 60.0
"""How long an attack may take on the kit's images, where the user says nothing else."""


@dataclass(frozen=True)
class Subject:
    """A plugin as it was written, `blur[strength=2]`, with what that resolved to.

    `seconds` is the budget that an attack is told, and what any other check may take.
    """

    kind: str
    text: str
    plugin: Resolved
    origin: Origin
    seconds: float = SECONDS

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.plugin.name

    @property
    def spec(self) -> Any:
        """Its declaration."""
        return self.plugin.spec

    @property
    def group(self) -> str:
        """Which checks it gets: its kind, and of a defense its stage: `encoding defenses`."""
        if isinstance(self.spec, DefenseSpec):
            return f"{self.spec.stage} {self.kind}"
        return self.kind

    def build(self) -> Any:
        """The plugin at work, new."""
        return load_factory(self.spec, self.origin)(self.plugin.config)


def find(text: str, kind: str | None = None, seconds: float = SECONDS) -> Subject:
    """The plugin that `text` selects; UsageError if there is none, or if it does no work."""
    selection = parse_one(text)
    kind, entry = entry_of(selection.name, kind)
    if not isinstance(entry.spec, Spec):
        raise UsageError(f"'{selection.name}' only declares channels: there is nothing to check.")
    plugin = resolve(entry.spec, selection, "quick")
    return Subject(kind, text, plugin, entry.origin, seconds)
