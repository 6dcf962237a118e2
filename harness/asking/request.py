"""What a user asks for, checked: one schema for the command line, TOML files and records."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from harness.api.errors import UsageError, nearest
from harness.asking import Options

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Part = TypeVar("Part", bound=BaseModel)


class Sizes(BaseModel):
    """How many images each split holds at most."""

    model_config = ConfigDict(frozen=True)

    private: int
    public: int
    test: int


SIZES: dict[str, Sizes] = {
    "quick": Sizes(private=1000, public=4000, test=2000),
    "standard": Sizes(private=1000, public=20_000, test=10_000),
    "paper": Sizes(private=10_000, public=40_000, test=10_000),
}
SECONDS: dict[str, float] = {"quick": 600.0, "standard": 3600.0, "paper": 86_400.0}


class Request(Options, BaseModel):
    """One evaluation as asked for. Sizes left out come from the preset."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="after")
    def _targets_fit(self) -> Request:
        split = "test" if self.targets_from == "heldout" else "private"
        available: int = getattr(self.sizes, split)
        if self.targets and self.targets > available:
            raise ValueError(
                f"targets={self.targets} is more than the {split} images there are "
                f"({available}); raise {split}_size or lower targets"
            )
        if self.batch_size > self.sizes.private:
            raise ValueError(
                f"batch_size={self.batch_size} is more than the private images there are "
                f"({self.sizes.private}); lower batch_size or raise private_size"
            )
        return self

    @property
    def sizes(self) -> Sizes:
        """Sizes as asked, filled from the preset."""
        default = SIZES[self.preset]
        return Sizes(
            private=self.private_size or default.private,
            public=self.public_size or default.public,
            test=self.test_size or default.test,
        )

    @property
    def time_limit(self) -> float:
        """Seconds the attack may take."""
        return self.seconds or SECONDS[self.preset]


def make_request(**values: Any) -> Request:
    """A validated request; UsageError says what is wrong and offers the nearest name."""
    _check_names(values)
    try:
        return Request.model_validate(values)
    except ValidationError as error:
        faults = (f"{_where(fault['loc'])}{_reason(fault)}" for fault in error.errors())
        raise UsageError("; ".join(faults)) from None


def _check_names(values: Mapping[str, Any], place: str = "") -> None:
    for name in values:
        if name not in Request.model_fields:
            hint = nearest(name, Request.model_fields)
            raise UsageError(f"Unknown option '{name}'{place}.{hint}")


def _where(location: tuple[int | str, ...]) -> str:
    return f"{'.'.join(map(str, location))}: " if location else ""


def _reason(fault: ErrorDetails) -> str:
    """A fault in words: ours where it is ours, else pydantic's with what was written."""
    if fault["type"] == "value_error":
        return str(fault["ctx"]["error"])
    return f"{fault['msg']}, not {fault['input']!r}"


def read_config(path: Path) -> dict[str, Any]:
    """The options in a TOML file: their names are checked, their values are not."""
    options = read_toml(path, f"There is no file {path}.")
    _check_names(options, f" in {path}")
    return options


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
