"""From a board and a stranger's plugin to the cells that it has to run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from harness.api.errors import UsageError, nearest
from harness.api.knowledge import ReleaseKind
from harness.api.specs import Stage
from harness.asking.plan import plan
from harness.asking.registry import Registry
from harness.asking.request import Resolved, expand, make_request, parse_stack, resolve
from harness.boards.cells import BoardCell, attacked
from harness.boards.protocol import OF_ATTACKERS, Board, Track
from harness.submissions.folder import Kind

Place = tuple[tuple[BoardCell, ...], ...]
"""Alternatives in order of preference, of which one has to be run: each the cells of its seeds."""

TERMS = tuple(sorted(OF_ATTACKERS))
"""Options that differ between attacks of a track."""
HOME = (
    (Stage.STATISTICS, ReleaseKind.STATISTICS),
    (Stage.GRADIENT, ReleaseKind.GRADIENTS),
    (Stage.TRAINING, ReleaseKind.FEATURES),
    (Stage.ENCODING, ReleaseKind.ENCODINGS),
)
"""What a stack is made to guard, by the last stage it has a part in."""


@dataclass(frozen=True)
class Chosen:
    """What is handed in: the plugins that `what` selects, at every strength."""

    kind: Kind
    what: str
    plugins: tuple[Resolved, ...]

    @property
    def slug(self) -> str:
        """A name for it, such as folders have."""
        names = dict.fromkeys(plugin.name for plugin in self.plugins)
        return re.sub(r"[^a-z0-9]+", "-", "-".join(names).lower()).strip("-")


def choose(what: str, kind: Kind | None, preset: str, known: Registry) -> Chosen:
    """The defense or attack that a text selects; UsageError where it is neither, or may be both."""
    texts = expand(what)
    names = [selection.name for selection in parse_stack(texts[0])]
    kinds = [k for k in _kinds(names, known) if kind in (None, k)]
    if len(kinds) > 1:
        raise UsageError(f"'{what}' is a defense and an attack: say which with --kind.")
    if not kinds:
        raise UsageError(_neither(what, names, kind, known))
    plugins = [
        resolve(known.spec(f"{kinds[0]}s", selection.name), selection, preset)
        for text in texts
        for selection in parse_stack(text)
    ]
    return Chosen(kinds[0], what, tuple({plugin.written: plugin for plugin in plugins}.values()))


def _kinds(names: list[str], known: Registry) -> list[Kind]:
    attacks = {spec.name for spec in known.specs("attacks") if not spec.members}
    offered: dict[Kind, set[str]] = {
        "defense": {spec.name for spec in known.specs("defenses")},
        "attack": attacks if len(names) == 1 else set(),
    }
    return [kind for kind, there in offered.items() if there.issuperset(names)]


def _neither(what: str, names: list[str], kind: Kind | None, known: Registry) -> str:
    kinds = [f"{kind}s"] if kind else ["defenses", "attacks"]
    offered = {spec.name for each in kinds for spec in known.specs(each)}
    strange = [name for name in names if name not in offered]
    if not strange:
        return f"'{what}' cannot be handed in: it has to be one defense, one stack or one attack."
    there = " or ".join(each.removesuffix("s") for each in kinds)
    return (
        f"There is no {there} '{strange[0]}' here.{nearest(strange[0], offered)} A package of your "
        "own has to be installed: pip install -e ."
    )


def places(board: Board, kind: Kind, what: str, tracks: Iterable[str]) -> list[Place]:
    """Every place of a submission, each once.

    A defense meets every attack of a track as that track's own defenses do. An attack meets every
    defense of a track, under the first terms of the track that let it work.
    """
    met = _attacks_of if kind == "defense" else _defenses_of
    found: dict[tuple[str, ...], Place] = {}
    for name in tracks:
        track = board.track(name)
        for text in expand(what):
            for place in met(board, track, text):
                found.setdefault((name, *(c.identity for cells in place for c in cells)), place)
    return list(found.values())


def _attacks_of(board: Board, track: Track, defense: str) -> list[Place]:
    """The places of a defense, one for each attack and its terms."""
    parts = tuple(part.model_copy(update={"defenses": ()}) for part in track.cells)
    alone = track.model_copy(update={"defenses": (defense,), "cells": parts})
    return [(cells,) for cells in _by(("attack", *TERMS), _cells_of(board, alone))]


def _defenses_of(board: Board, track: Track, attack: str) -> list[Place]:
    """The places of an attack, one for each defense; the plainest terms come first."""
    mine = {}
    for cell in _cells_of(board, track):
        options = {**cell.options, "attack": attack}
        own = BoardCell(track.name, options, make_request(**options))
        mine[own.identity] = own
    return [
        tuple(sorted(_by(TERMS, cells), key=lambda same: len(same[0].options)))
        for cells in _by(("defense",), mine.values())
    ]


def _cells_of(board: Board, track: Track) -> list[BoardCell]:
    return attacked(board.model_copy(update={"tracks": (track,)}))


def _by(names: Iterable[str], cells: Iterable[BoardCell]) -> list[tuple[BoardCell, ...]]:
    """Cells put together where these options are the same, in their order."""
    found: dict[tuple[Any, ...], list[BoardCell]] = {}
    for cell in cells:
        found.setdefault(tuple(getattr(cell.request, name) for name in names), []).append(cell)
    return [tuple(together) for together in found.values()]


def fitting(board: Board, chosen: Chosen, known: Registry) -> list[str]:
    """The tracks that a plugin belongs in.

    A defense belongs where what it guards is released: a training defense where features are. An
    attack belongs where what it reads of at least one defense is what the track releases.
    """
    kinds = _kinds_of_tracks(board, known)
    if chosen.kind == "defense":
        stages = {plugin.spec.stage for plugin in chosen.plugins}
        home = next(kind for stage, kind in HOME if stage in stages)
        return [track.name for track in board.tracks if home in kinds[track.name]]
    return [
        track.name
        for track in board.tracks
        if any(
            planned.main and planned.kind in kinds[track.name]
            for place in places(board, "attack", chosen.what, [track.name])
            for cells in place
            for planned in (plan(cell.request, known) for cell in cells)
        )
    ]


def _kinds_of_tracks(board: Board, known: Registry) -> dict[str, set[ReleaseKind]]:
    """By track, what is released in those of its cells that can be."""
    found: dict[str, set[ReleaseKind]] = {track.name: set() for track in board.tracks}
    for cell in attacked(board):
        planned = plan(cell.request, known)
        if planned.main:
            found[cell.track].add(planned.kind)
    return found


def settled(found: Iterable[Place], known: Registry) -> list[BoardCell]:
    """The cells to run: of each place the first alternative that can be, else the first.

    Those of the first seed come first, so that a submission is of use before it is complete.
    """
    chosen: list[BoardCell] = []
    for place in found:
        able = (cells for cells in place if plan(cells[0].request, known).reason is None)
        chosen += next(able, place[0])
    return sorted(chosen, key=lambda cell: cell.request.seed)
