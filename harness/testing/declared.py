"""Checks of what a plugin declares. None of them needs torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from harness.api.specs import AttackSpec, Spec
from harness.testing.result import Violation

if TYPE_CHECKING:
    from harness.testing.subject import Subject

TEXTS = ("version", "summary", "reference")
STRANGE = "no_option_has_this_name"
LISTING = (
    "import importlib, sys; importlib.import_module(sys.argv[1]); print('torch' in sys.modules)"
)
IMPORT_SECONDS = 120.0


def complete(subject: Subject) -> str:
    """Texts that people read, options that explain themselves, and of an attack a control."""
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


def light(subject: Subject) -> str:
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
