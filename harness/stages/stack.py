"""The defenses of one cell, built and in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.api import EncodingDefense, GradientDefense, TrainingDefense


@dataclass(frozen=True)
class Stack:
    """At most one encoding defense and any number of the others, by name."""

    encoding: tuple[str, EncodingDefense[Any]] | None = None
    training: tuple[tuple[str, TrainingDefense[Any]], ...] = ()
    gradient: tuple[tuple[str, GradientDefense[Any]], ...] = ()
