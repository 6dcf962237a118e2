"""What a user asks for, checked: one schema for the command line, TOML files and records.

Plugins are named in a language of their own: `gradprune[p=0.9]+mixup[k=4]`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from harness.api.errors import UsageError, nearest
from harness.api.specs import Spec
from harness.asking import Options

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Part = TypeVar("Part", bound=BaseModel)

JOINT = re.compile(r"\+(?![^\[]*\])")
"""The `+` outside brackets: `1e+2` inside them is a number."""
TERM = re.compile(r"\s*(?P<name>[A-Za-z0-9_-]+)\s*(?:\[(?P<options>[^\[\]]*)\])?\s*")

OF_PARTIES = ("parties", "partition", "party")
"""Options that a request of one owner does not name."""
OF_UPDATES = ("local_steps", "local_lr", "local_images")
"""Options that only a request of updates names."""
FEWEST = 2
"""Images of a party, at least: one alone has no partner to be mixed with."""
FOLLOWING = ("missing", "too_short")
"""Faults of a file that a misspelt key leaves behind."""


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
        self._check_local()
        if self.parties > 1 and FEWEST * self.parties > self.sizes.private:
            raise ValueError(
                f"parties={self.parties} need {FEWEST} images each at least, and there are "
                f"{self.sizes.private}; lower parties or raise private_size"
            )
        if self.parties == 1 and self.partition != Options.partition:
            raise ValueError(
                f"partition={self.partition} deals images out to several parties, and there is "
                "one; raise parties"
            )
        if self.party is not None and not self.party < self.parties > 1:
            raise ValueError(f"party={self.party} is none of {self.parties}, counted from 0")
        return self

    def _check_local(self) -> None:
        """ValueError where a party could not train as asked."""
        asked = [n for n in OF_UPDATES if getattr(self, n) != getattr(Options, n)]
        if self.release != "updates":
            if asked:
                raise ValueError(
                    f"{asked[0]} is of parties that train locally and send updates; ask for "
                    "release=updates"
                )
            return
        images, size = self.together, self.batch_size
        if images % size or images > self.local_steps * size:
            raise ValueError(
                f"local_images={images} is no whole number of batches of {size} that "
                f"{self.local_steps} steps get through; raise local_steps or change local_images"
            )
        if images > self.sizes.private:
            raise ValueError(
                f"local_images={images} is more than the private images there are "
                f"({self.sizes.private}); lower local_images or raise private_size"
            )

    @model_serializer(mode="wrap")
    def _as_asked(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What goes without saying is not said: old requests keep their names."""
        values: dict[str, Any] = handler(self)
        unsaid = (() if self.parties > 1 else OF_PARTIES) + (
            () if self.release == "updates" else OF_UPDATES
        )
        return {k: v for k, v in values.items() if k not in unsaid}

    @property
    def together(self) -> int:
        """Images that one released gradient, or one party's update, is of."""
        return self.local_images or self.batch_size

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
        raise UsageError("; ".join(map(_reason, error.errors()))) from None


def _check_names(values: Mapping[str, Any], place: str = "") -> None:
    for name in values:
        if name not in Request.model_fields:
            hint = nearest(name, Request.model_fields)
            raise UsageError(f"Unknown option '{name}'{place}.{hint}")


def _reason(fault: ErrorDetails) -> str:
    """A fault in words: ours where it is ours, else pydantic's with what was written."""
    where = f"{'.'.join(map(str, fault['loc']))}: " if fault["loc"] else ""
    if fault["type"] == "value_error":
        return f"{where}{fault['ctx']['error']}"
    return f"{where}{fault['msg']}, not {fault['input']!r}"


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
        found = error.errors()
        misspelt = any(each["type"] == "extra_forbidden" for each in found)
        told = [each for each in found if not (misspelt and each["type"] in FOLLOWING)]
        told.sort(key=lambda each: each["type"] != "extra_forbidden")
        faults = "; ".join(_misfit(model, each) for each in told)
        raise UsageError(f"{fault}: {faults}{'' if faults.endswith('?') else '.'}") from None


def _misfit(model: type[BaseModel], fault: ErrorDetails) -> str:
    """What is wrong where; of a key that the model does not have, the nearest one."""
    *above, last = fault["loc"] or ("",)
    if fault["type"] == "extra_forbidden":
        where = f" in {'.'.join(map(str, above))}" if above else ""
        hint = nearest(str(last), _part_at(model, above).model_fields)
        return f"unknown key '{last}'{where}.{hint}".removesuffix(".")
    where = ".".join(map(str, fault["loc"]))
    message = fault["msg"].removeprefix("Value error, ").removesuffix(".")
    return f"{where}: {message}" if where else message


def _part_at(model: type[BaseModel], path: Iterable[int | str]) -> type[BaseModel]:
    """The model of a part, by the names of fields and the numbers of items that lead there."""
    for name in path:
        if isinstance(name, str):
            kind = model.model_fields[name].annotation
            model = next(each for each in (kind, *get_args(kind)) if _is_model(each))
    return model


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


@dataclass(frozen=True)
class Selection:
    """One plugin as written: its name and its options, still text."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def written(self) -> str:
        """The same in one text, as plainly as it can be written."""
        inside = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}[{inside}]" if inside else self.name


@dataclass(frozen=True)
class Resolved:
    """One plugin as it will run: its declaration, and its config with every default filled."""

    spec: Any
    config: BaseModel

    @property
    def name(self) -> str:
        """The plugin's name."""
        name: str = self.spec.name
        return name

    @property
    def written(self) -> str:
        """Name and config in one text: two uses of one plugin differ by it."""
        return f"{self.name} {self.config.model_dump_json()}"


def parse_stack(text: str) -> tuple[Selection, ...]:
    """Parse a `+`-joined stack; UsageError shows what could not be read."""
    return tuple(parse_one(term, text) for term in JOINT.split(text))


def expand(text: str) -> tuple[str, ...]:
    """Every choice that a grid stands for: `mixup[k=2|4]` is `mixup[k=2]` and `mixup[k=4]`.

    Several grids in one text are multiplied, the last one turning fastest. UsageError for what
    cannot be read.
    """
    parts = [_expanded(selection, text) for selection in parse_stack(text)]
    return tuple("+".join(chosen) for chosen in product(*parts))


def _expanded(selection: Selection, whole: str) -> list[str]:
    values = [[piece.strip() for piece in v.split("|")] for v in selection.options.values()]
    if any(not piece for choices in values for piece in choices):
        raise UsageError(f"Cannot read a grid in '{whole}': write option=value|value.")
    return [
        Selection(selection.name, dict(zip(selection.options, chosen, strict=True))).written
        for chosen in product(*values)
    ]


def parse_one(term: str, whole: str | None = None) -> Selection:
    """Parse `name` or `name[key=value,…]`."""
    match = TERM.fullmatch(term)
    if not match:
        raise UsageError(
            f"Cannot read '{term.strip()}' in '{whole or term}': "
            "write name or name[option=value,option=value]."
        )
    return Selection(match["name"], _options(match["options"] or "", term))


def _options(text: str, term: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise UsageError(f"Cannot read '{part}' in '{term.strip()}': write option=value.")
        if key in options:
            raise UsageError(f"'{key}' is given twice in '{term.strip()}'.")
        options[key] = value
    return options


def resolve(spec: Spec, selection: Selection, preset: str) -> Resolved:
    """Fill a config: defaults, then the preset, then what was written."""
    options = dict(selection.options)
    chosen = options.pop("preset", None)
    if chosen is not None and chosen not in spec.presets:
        raise UsageError(f"'{spec.name}' has no preset '{chosen}'.{nearest(chosen, spec.presets)}")
    _check_options(spec, options)
    values = {**spec.presets.get(chosen or preset, {}), **_typed(spec, options)}
    try:
        config = spec.config.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(map(_fault, error.errors()))
        raise UsageError(f"'{spec.name}': {faults}. See: harness describe {spec.name}") from None
    if lost := _not_finite(config):  # a stranger's model need not be a Config, which refuses them
        raise UsageError(
            f"'{spec.name}': {lost}: Input should be a finite number. "
            f"See: harness describe {spec.name}"
        )
    return Resolved(spec, config)


def _not_finite(config: BaseModel) -> str:
    """The first option that is NaN or infinite, as `name=value`; no record can hold one."""
    for name, value in config.model_dump().items():
        if any(not isfinite(each) for each in _floats(value)):
            return f"{name}={value!r}"
    return ""


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, Mapping):
        yield from (each for part in value.values() for each in _floats(part))
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from (each for part in value for each in _floats(part))


def _typed(spec: Spec, options: Mapping[str, str]) -> dict[str, Any]:
    """`none` means no value, where the option may have none."""
    fields = spec.config.model_fields
    optional = {key for key in options if NoneType in get_args(fields[key].annotation)}
    return {
        key: None if key in optional and value.lower() == "none" else value
        for key, value in options.items()
    }


def _check_options(spec: Spec, options: Mapping[str, str]) -> None:
    known = {*spec.config.model_fields, "preset"}
    for key in options:
        if key not in known:
            raise UsageError(f"'{spec.name}' has no option '{key}'.{nearest(key, known)}")


def _fault(fault: ErrorDetails) -> str:
    """What one option, or several together, should have been."""
    if not fault["loc"]:
        return str(fault["msg"]).removeprefix("Value error, ")
    return f"{'.'.join(map(str, fault['loc']))}={fault['input']!r}: {fault['msg']}"
