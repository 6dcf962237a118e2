"""The check that a plugin works where its tensors are, on a machine that may have a CPU alone.

Torch's `meta` device stands in for an accelerator: what mixes its tensors with the CPU's fails
there as it would on a GPU. It has no values, so that a plugin is followed as far as it asks for
none.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from harness.api import (
    AssetFolder,
    AssetUnavailable,
    Attack,
    NotApplicable,
    Progress,
    Samples,
    View,
)
from harness.asking.registry import load_factory
from harness.rng import KeyedStream
from harness.sandbox.folder import Frame, open_view, read_frame
from harness.sandbox.jobs import PREPARED
from harness.testing.attack import run_with
from harness.testing.encoding import KEY
from harness.testing.encoding import material as images_of
from harness.testing.gradient import material as gradients
from harness.testing.kit import known
from harness.testing.result import Unanswered, Violation
from harness.testing.space import assets_of
from harness.testing.victim import INPUT, build
from harness.testing.workbench import Hand

if TYPE_CHECKING:
    from harness.testing.subject import Subject

META = torch.device("meta")
ACCELERATOR = re.compile(r"(cuda|mps|xpu|hip)(:\d+)?")
MISPLACED = (
    "is not on the expected device meta",
    "to be on the same device",
    "can't convert meta device type tensor to numpy",
)


def disciplined(subject: Subject) -> str:
    """No device is named, and none is mixed with another."""
    named = list(_named(subject))
    if named:
        raise Violation(f"it names a device: {'; '.join(named)}")
    try:
        PROBES[subject.group](subject)
    except (Unanswered, AssetUnavailable, NotApplicable):
        raise
    except Followed:
        pass
    except Exception as error:  # noqa: BLE001  without values a plugin may raise anything
        return _as_far_as(error, _line_of(error, subject))
    return "names no device, and mixes none"


def _as_far_as(error: Exception, line: str) -> str:
    """How far a plugin could be followed; Violation if it ended where devices are mixed."""
    message = str(error)
    if any(part in message for part in MISPLACED):
        raise Violation(f"it mixes devices ({line}): {message}") from error
    return f"names no device; mixes none as far as {line}, where it asks for values"


def _line_of(error: BaseException, subject: Subject) -> str:
    """The last line of the plugin's package that an error came through."""
    package = subject.spec.factory.partition(":")[0].partition(".")[0]
    trace, found = error.__traceback__, "its first line"
    while trace:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            found = f"{Path(frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _named(subject: Subject) -> Iterator[str]:
    """Accelerators in the source of the plugin's own modules, as `file.py:12 'cuda'`."""
    module = subject.spec.factory.partition(":")[0]
    __import__(module)
    package = module.rpartition(".")[0] or module
    for name, loaded in sorted(sys.modules.items()):
        if name in (package, module) or name.startswith(f"{package}."):
            path = Path(getattr(loaded, "__file__", None) or "")
            found = _in_source(path) if path.suffix == ".py" else ()
            yield from (f"{path.name}:{line} {what}" for line, what in found)


def _in_source(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call):
            given = (*node.args, *(keyword.value for keyword in node.keywords))
            yield from (
                (part.lineno, ast.unparse(node)) for part in (node.func, *given) if _is(part)
            )


def _is(node: ast.expr) -> bool:
    """Whether this names an accelerator: `"cuda:0"`, or a method or function of it."""
    if isinstance(node, ast.Constant):
        return bool(ACCELERATOR.fullmatch(str(node.value)))
    parts = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else []
    return any(ACCELERATOR.fullmatch(part) for part in parts)


def _moved(value: Any) -> Any:
    """A channel's content, without its values."""
    if isinstance(value, Tensor | nn.Module):
        return value.to(META)
    if isinstance(value, Samples):
        return Samples(value.images.to(META), value.labels.to(META))
    if isinstance(value, Mapping):
        return {name: _moved(part) for name, part in value.items()}
    return value


class Followed(Exception):
    """An attack has come to its end on a device without values: there is nothing to judge."""


class Elsewhere(Hand):
    """Shows an attack the release on another device."""

    def do(self, job: Mapping[str, Any], progress: Progress) -> None:
        """Learning is done as ever. Raises Followed when it has reconstructed."""
        if job["action"] != "reconstruct":
            super().do(job, progress)
            return
        folder = Path(job["view"])
        frame = read_frame(folder)
        prepared = _moved(load_file(Path(job["out"]) / PREPARED))
        view = _away(open_view(folder, frame))
        attack_of(frame).reconstruct(view, prepared, frame.budget, progress)
        raise Followed


def attack_of(frame: Frame) -> Attack[Any]:
    """The attack that a view was made for, at work."""
    spec, origin = known().attack(frame.attack.name), known().origin("attacks", frame.attack.name)
    attack: Attack[Any] = load_factory(spec, origin)(
        spec.config.model_validate(frame.attack.config)
    )
    return attack


def _away(view: View) -> View:
    channels = {name: _moved(value) for name, value in view.channels.items()}
    return replace(view, channels=channels, shared=_moved(view.shared), device=META)


def _encode(subject: Subject) -> None:
    private, public = images_of(subject)
    subject.build().encode(_moved(private), _moved(public), KeyedStream(KEY))


def _protect(subject: Subject) -> None:
    subject.build().protect(_moved(gradients()), KeyedStream(KEY))


def _penalise(subject: Subject) -> None:
    hidden, labels = torch.zeros(6, 32, device=META), torch.zeros(6, 3, device=META)
    subject.build().penalty(hidden, labels)


def _classify(subject: Subject) -> None:
    _moved(build(subject))(torch.zeros(2, *INPUT, device=META))


def _embed(subject: Subject) -> None:
    assets: AssetFolder = assets_of(subject)
    subject.build().embed(torch.zeros(2, *INPUT, device=META), assets)


PROBES: Mapping[str, Callable[[Subject], None]] = {
    "encoding defenses": _encode,
    "training defenses": _penalise,
    "gradient defenses": _protect,
    "attacks": lambda subject: run_with(subject, Elsewhere),
    "victims": _classify,
    "spaces": _embed,
}
