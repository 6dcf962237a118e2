"""The plugin that is checked, how a check says what is wrong, and the checks of declarations.

Needs no torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from harness.api.assets import AssetFolder
from harness.api.errors import HarnessError, UsageError
from harness.api.specs import AttackSpec, DefenseSpec, LearnerSpec, Spec
from harness.asking.registry import Origin, registry
from harness.asking.request import Resolved, parse_one, resolve
from harness.assets import folder
from harness.description import entry_of
from harness.store import cache_root

SECONDS = 60.0
"""How long an attack may take on the kit's images, where the user says nothing else."""
TEXTS = ("version", "summary", "reference")
STRANGE = "no_option_has_this_name"
LISTING = (
    "import importlib, sys; importlib.import_module(sys.argv[1]); print('torch' in sys.modules)"
)
IMPORT_SECONDS = 120.0


class Violation(HarnessError):
    """A plugin does not keep its contract; `fix` is the remedy where the check's own is not it."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class Unanswered(HarnessError):
    """A check cannot be asked of this plugin, or not on this machine; says why."""


@dataclass(frozen=True)
class Subject:
    """A plugin as it was written, `blur[strength=2]`, with what that resolved to.

    `seconds` is the budget that an attack or learner is told, and what any other check may take.
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

    @property
    def assets(self) -> AssetFolder:
        """Its assets, verified; AssetUnavailable where they are not here."""
        return folder(self.spec.assets, cache_root())

    def build(self) -> Any:
        """The plugin at work, new."""
        return registry().build(self.kind, self.name, self.plugin.config)


def find(text: str, kind: str | None = None, seconds: float = SECONDS) -> Subject:
    """The plugin that `text` selects; UsageError if there is none, or if it does no work."""
    selection = parse_one(text)
    kind, entry = entry_of(selection.name, kind)
    if not isinstance(entry.spec, Spec):
        raise UsageError(f"'{selection.name}' only declares channels: there is nothing to check.")
    plugin = resolve(entry.spec, selection, "quick")
    return Subject(kind, text, plugin, entry.origin, seconds)


def refusal(error: HarnessError) -> str:
    """What a plugin says of data that it cannot work on; raised again where it is not its own.

    A plugin refuses by raising one of the harness's errors itself. What the engine raises of it,
    of a broken contract or of any other exception, is no refusal.
    """
    if not raised_by_plugin(error):
        raise error
    return f"refuses: {error}"


def raised_by_plugin(error: HarnessError) -> bool:
    """Whether an error comes from a line that is none of the engine's."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    module = str(trace.tb_frame.f_globals.get("__name__", "")) if trace else ""
    return module.partition(".")[0] != "harness"


def is_complete(subject: Subject) -> str:
    """Texts that people read, options that explain themselves, of attacks and learners controls."""
    missing = list(_missing(subject.spec))
    if missing:
        raise Violation(f"it lacks {', '.join(missing)}")
    options = len(subject.spec.config.model_fields)
    return f"complete, with {options} option{'s' if options != 1 else ''}"


def _missing(spec: Spec) -> Iterator[str]:
    yield from (text for text in TEXTS if not str(getattr(spec, text)).strip())
    if "\n" in spec.summary:
        yield "a summary of one line"
    for name, field in spec.config.model_fields.items():
        if not field.description:
            yield f"a description of the option '{name}'"
    if isinstance(spec, AttackSpec) and not (spec.controls or spec.members or spec.companion):
        yield "a control: a cell that the attack is known to break"
    if isinstance(spec, LearnerSpec) and not (spec.controls or spec.members):
        yield "a control: a cell that the learner is known to learn from"


def declares_without_torch(subject: Subject) -> str:
    """`harness list` imports what declares: it must not wait for torch."""
    command = [sys.executable, "-c", LISTING, subject.origin.module]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=IMPORT_SECONDS, check=False
    )
    if done.returncode:
        *_, last = done.stderr.strip().splitlines() or ["no message"]
        raise Violation(f"{subject.origin.module} cannot be imported by itself: {last}")
    if done.stdout.split()[-1:] == ["True"]:
        raise Violation(f"{subject.origin.module} imports torch")
    return f"{subject.origin.module} declares without torch"


def configurable(subject: Subject) -> str:
    """Options survive a record, cannot change on the way, and misspelt ones are refused."""
    model, config = subject.spec.config, subject.plugin.config
    written = config.model_dump(mode="json")
    if model.model_validate(json.loads(json.dumps(written))) != config:
        raise Violation("its config does not come back the same from JSON")
    if not model.model_config.get("frozen"):
        raise Violation("its config is not frozen")
    if _accepts(model, {**written, STRANGE: 1}):
        raise Violation("its config takes options that it does not know")
    wrong = [name for name, values in subject.spec.presets.items() if not _accepts(model, values)]
    if wrong:
        raise Violation(f"presets that its config refuses: {', '.join(wrong)}")
    model.model_json_schema()
    return "goes to JSON and back, is frozen, and refuses what it does not know"


def _accepts(model: type[BaseModel], values: object) -> bool:
    try:
        model.model_validate(values)
    except ValidationError:
        return False
    return True
