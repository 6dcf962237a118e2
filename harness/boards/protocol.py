"""What a board fixes: `board.toml`, read and checked."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from harness.api.errors import UsageError, nearest
from harness.asking.request import Request, read_toml, validated
from harness.store.paths import disk_errors
from harness.store.reading import check_text, strange_file

FILE = "board.toml"
NAME = r"^[a-z0-9][a-z0-9-]*$"

Name = Annotated[str, Field(pattern=NAME, max_length=60)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Options = dict[str, str | int | float | bool]
Stage = Literal["open", "frozen"]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]

RANKING = ("snr_db", "ssim", "lpips_vgg")
"""Metrics that a board ranks by where it names none and they were scored."""
OF_ATTACKERS = frozenset({"threat_model", "seconds", "megabytes", "twice"})
"""Options that some attacks of a track may have for themselves: they leave the release as it is."""
OF_LEARNERS = frozenset({"learner", "repeats", "seconds", "megabytes"})
"""Options that accuracies of a track may have for themselves: they too leave the release."""
OF_BOARDS = frozenset(Request.model_fields) - {"defense", "attack", "seed", "device"}
"""Options of a request, but for those that a board sets in other places, or not at all."""


class Attacks(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Attacks that meet the defenses of a track, and how.

    `defenses` are those of the track if it is empty; `options` may set only what leaves the
    release as it is (threat model, budget).
    """

    attacks: tuple[str, ...] = Field(min_length=1)
    defenses: tuple[str, ...] = ()
    seeds: Seeds = (0,)
    options: Options = {}

    @model_validator(mode="after")
    def _leave_the_release(self) -> Attacks:
        _check_options(self.options, OF_ATTACKERS, "of attacks")
        return self


class Utility(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Accuracies alone, at so many private images and rounds, each of one with each of the other.

    What leaks of one image is judged at the track's own numbers; what is learned grows with these.
    `rounds` are the track's own if there are none, `defenses` likewise. `options` may set only
    what leaves the release as it is (learners, budget).
    """

    private_size: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    rounds: tuple[Annotated[int, Field(ge=1)], ...] = ()
    defenses: tuple[str, ...] = ()
    seeds: Seeds = (0,)
    options: Options = {}

    @model_validator(mode="after")
    def _leave_the_release(self) -> Utility:
        _check_options(self.options, OF_LEARNERS, "of utility")
        return self


class Track(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Rows that can be compared: one kind of release, made in one way, of the same images."""

    name: Name
    title: str
    about: str = ""
    defenses: tuple[str, ...] = Field(min_length=1)
    cells: tuple[Attacks, ...] = Field(min_length=1)
    utility: tuple[Utility, ...] = ()
    options: Options = {}

    @model_validator(mode="after")
    def _known_options(self) -> Track:
        _check_options(self.options, OF_BOARDS, f"of track '{self.name}'")
        parts: list[Attacks | Utility] = [*self.cells, *self.utility]
        for part in parts:
            if strange := sorted({*part.defenses} - {*self.defenses}):
                raise ValueError(
                    f"parts of track '{self.name}' name defenses that the track does not have: "
                    f"{', '.join(strange)}"
                )
        return self


class Claim(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """A number that a paper states, to stand beside ours where settings compare.

    An accuracy has no `attack`; it may be one from so many private images and rounds.
    """

    defense: str
    attack: str = ""
    metric: str
    value: float
    private_size: int | None = None
    rounds: int | None = None
    source: str
    note: str = ""


class Board(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """A protocol, frozen or still open.

    `frozen` names by their content what the cells are made of, as `harness leaderboard freeze`
    wrote it: data, plugins with their options, metrics. An `open` board is held to no such list:
    rows and columns may come, and rows of older source are marked. A board that is `defined` has
    no numbers.
    `ranked_by` are the metrics that rows get ranks by, the first one first: any that are scored.
    `confirmed` are ids of records whose attack found at work that it does not apply, that are too
    good to be true, or that were made of other source than is installed: who keeps the board has
    run them again, and found the same. `refuted` are ids of records that a hidden rerun did not
    bear out: they count no more. `earlier` are ids of records of earlier versions of the record
    that it keeps.
    """

    name: Name
    title: str
    about: str = ""
    status: Literal["measured", "defined"] = "measured"
    stage: Stage = "frozen"
    options: Options
    tracks: tuple[Track, ...] = Field(min_length=1)
    ranked_by: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    confirmed: tuple[Digest, ...] = ()
    refuted: tuple[Digest, ...] = ()
    earlier: tuple[Digest, ...] = ()
    frozen: dict[str, str] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Board:
        _check_options(self.options, OF_BOARDS, "of the board")
        if len({track.name for track in self.tracks}) < len(self.tracks):
            raise ValueError("two tracks have the same name")
        for track in self.tracks:
            metrics = str({**self.options, **track.options}.get("metrics", "all"))
            if metrics != "all":
                self.check_ranking([name.strip() for name in metrics.split(",")])
        return self

    @property
    def open(self) -> bool:
        """Whether rows and columns may still come."""
        return self.stage == "open"

    @property
    def held_to(self) -> dict[str, str]:
        """What its records must be made of; nothing while it is open."""
        return {} if self.open else self.frozen

    @property
    def ranking(self) -> tuple[str, ...]:
        """The metrics that rows are ranked by, where they are scored by them."""
        return self.ranked_by or RANKING

    def check_ranking(self, known: Collection[str]) -> None:
        """UsageError where the board is ranked by a metric that is none of the `known`."""
        for name in self.ranked_by:
            if name not in known:
                hint = nearest(name, known)
                raise UsageError(f"Board '{self.name}' has no score '{name}' to rank by.{hint}")

    def track(self, name: str) -> Track:
        """A track by name; UsageError unless the board has it."""
        known = {track.name: track for track in self.tracks}
        if name not in known:
            raise UsageError(f"Board '{self.name}' has no track '{name}'.{nearest(name, known)}")
        return known[name]


def _check_options(options: Options, allowed: frozenset[str], where: str) -> None:
    if strange := sorted({*options} - allowed):
        hint = nearest(strange[0], allowed)
        raise ValueError(f"options {where} cannot be {', '.join(strange)}.{hint}")


def read_board(folder: Path) -> Board:
    """The board in a folder; UsageError says what is wrong with its file."""
    path = folder / FILE
    values = read_description(path, f"There is no board at {folder}: it has no {FILE}.")
    return validated(Board, values, f"{path} is no board")


def read_description(path: Path, absent: str) -> dict[str, Any]:
    """What a plain TOML file says; UsageError where it cannot be read, `absent` where none is."""
    with disk_errors(path):
        if os.path.lexists(path) and (fault := strange_file(path)):
            raise UsageError(f"{path} {fault}.")
    values = read_toml(path, absent)
    try:
        check_text(values, free=True)
    except ValueError as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    return values
