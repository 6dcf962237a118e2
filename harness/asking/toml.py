"""TOML files that people write: what is wrong with one becomes a sentence."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from harness.api.errors import UsageError

Part = TypeVar("Part", bound=BaseModel)


def read_toml(path: Path, absent: str) -> dict[str, Any]:
    """What a file holds; UsageError where it cannot be read, `absent` where there is none."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(absent) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from None


def validated(model: type[Part], values: Mapping[str, Any], fault: str) -> Part:
    """Values as such a model; UsageError says what is wrong with which of them."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, f['loc']))}: {f['msg']}" for f in error.errors())
        raise UsageError(f"{fault}: {'; '.join(faults)}.") from None
