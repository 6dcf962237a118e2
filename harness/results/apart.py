"""What sets records apart: the options that differ among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def differing(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names whose values are not everywhere the same, in the order in which they first come."""
    names = dict.fromkeys(name for each in options for name in each)
    return [name for name in names if len({str(each.get(name)) for each in options}) > 1]


def written(options: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """`name=value` of each; those that are unset only where nothing else is to be said."""
    parts = {name: f"{name}={_short(options[name])}" for name in names if name in options}
    return [part for name, part in parts.items() if options[name] is not None] or list(
        parts.values()
    )


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
