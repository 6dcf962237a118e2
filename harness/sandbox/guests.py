"""A stranger's plugin of the owner's side, at work in a process of its own.

What it is asked comes from the owner as a file; what it answers leaves as tensors and JSON values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.api import CellFailed, EncodingDefense, HarnessError, PiecewiseDefense, Round
from harness.api.errors import where_raised
from harness.asking.registry import registry
from harness.store.artifacts import save_tensors

ASKED, SAID, TENSORS = "asked", "said.json", "said.safetensors"
TENSOR, REFUSED, ANSWER = "tensor", "refused", "answer"


class Host:
    """Has one plugin at work, and its round of encoding where one has begun."""

    def __init__(self) -> None:
        self._plugin: Any = None
        self._name = ""
        self._round: Round | None = None

    def answer(self, job: Mapping[str, Any]) -> None:
        """Call the method that a file names with what it holds, and write down what it says."""
        method, arguments = torch.load(job["asked"], weights_only=False)  # written by the owner
        own: dict[str, Callable[..., Any]] = {
            "build": self._build,
            "begin": self._begin,
            "rows": self._rows,
        }
        tensors: dict[str, Tensor] = {}
        said: dict[str, Any]
        try:
            call = own[method] if method in own else getattr(self._plugin, method)
            said = {ANSWER: packed(call(*arguments), tensors)}
        except HarnessError as error:
            said = {REFUSED: [type(error).__name__, str(error)]}
        except Exception as error:  # noqa: BLE001  a stranger's plugin may raise anything
            raised = f"'{self._name}' raised {type(error).__name__}: {error}"
            said = {REFUSED: [CellFailed.__name__, f"{raised} ({where_raised(error)})"]}
        out = Path(job["out"])
        save_tensors(tensors, out / TENSORS)
        (out / SAID).write_text(json.dumps(said), encoding="utf-8")

    def _build(self, kind: str, name: str, argument: Any) -> list[bool]:
        """Whether it encodes in pieces, and whether it encodes what is asked about."""
        self._name = name
        self._plugin = registry().build(kind, name, argument)
        encodes = isinstance(self._plugin, EncodingDefense)
        return [isinstance(self._plugin, PiecewiseDefense), encodes and self._plugin.infers]

    def _begin(self, *arguments: Any) -> tuple[tuple[int, ...], Mapping[str, Any]]:
        self._round = self._plugin.begin(*arguments)
        return self._round.shape, self._round.resolved

    def _rows(self, index: Tensor) -> Any:
        assert self._round is not None
        return self._round.rows(index)


HOST = Host()
"""That of this process."""


def packed(value: Any, tensors: dict[str, Tensor]) -> Any:
    """What `json` can write of a value; its tensors are put by and named."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value
        return {TENSOR: name}
    if is_dataclass(value):
        return {part.name: packed(getattr(value, part.name), tensors) for part in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): packed(each, tensors) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [packed(each, tensors) for each in value]
    return value


def unpacked(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse, of dataclasses their fields by name; KeyError where a tensor is missing."""
    if isinstance(value, dict):
        if value.keys() == {TENSOR} and isinstance(value[TENSOR], str):
            return tensors[value[TENSOR]]
        return {name: unpacked(each, tensors) for name, each in value.items()}
    if isinstance(value, list):
        return [unpacked(each, tensors) for each in value]
    return value
