"""What a board is made of, named by content: so that nobody fills it with something else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.api.assets import Asset
from harness.api.errors import UsageError
from harness.asking.plan import Cell, plan
from harness.asking.registry import OWN_DISTRIBUTION, Registry
from harness.asking.request import Request, Resolved, parse_stack
from harness.boards.cells import cells_of
from harness.boards.protocol import FILE, Board, read_board
from harness.store.paths import disk_errors, write_atomically
from harness.store.provenance import is_of_today, plain_config, plugin_source, sha256_of
from harness.store.record import RunRecord, Used

HEADING = "[frozen]"
COMMENT = (
    "# Written by `harness leaderboard freeze`: name, version, options and source of what is used."
)
SHOWN = 3
"""Differences that a message lists."""

Frozen = dict[str, str]
"""By kind and text as written, the hash of what that is."""


def frozen(board: Board, registry: Registry) -> Frozen:
    """All that a board's cells are made of, as it is installed here. UsageError for what is not.

    Nor is a board frozen whose networks each machine would train as it likes.
    """
    found: Frozen = {}
    asked = (cell.request.model_copy(update={"seed": 0}) for cell in cells_of(board))
    for request in dict.fromkeys(asked):
        if request.precision == "auto":
            raise UsageError(
                f"Board '{board.name}' leaves the precision of training to the machine. Write "
                'precision = "float32" or "bfloat16" below [options] before it is frozen.'
            )
        found |= _of_cell(plan(request, registry))
    return dict(sorted(found.items()))


def _of_cell(cell: Cell) -> Frozen:
    request = cell.request
    plugins: dict[str, Resolved] = dict(_used(request, cell.defenses, cell))
    plugins |= {_name("attack", text, request): m.attack for text, m in cell.members.items()}
    if request.public and cell.public:
        plugins[_name("dataset", request.public, request)] = cell.public
    metrics = [metric for metric in cell.metrics if metric.name not in cell.unavailable]
    held: list[Asset] = [
        asset for each in plugins.values() for asset in getattr(each.spec, "assets", ())
    ]
    held += [asset for metric in metrics for asset in metric.assets]
    return {
        **{
            name: _hash(each.name, each.spec.version, plain_config(each), plugin_source(each))
            for name, each in plugins.items()
        },
        **{f"metric {m.name}": _hash(m.name, m.version, {}) for m in metrics},
        **{
            f"asset {asset.name}": sha256_of({file.name: file.digest for file in asset.files})
            for asset in held
        },
    }


def _used(request: Request, defenses: Iterable[Any], of: Cell | RunRecord) -> Iterator[Any]:
    """What a cell or record uses of each kind, by kind and text."""
    for text, each in zip(_terms(request.defense), defenses, strict=True):
        yield _name("defense", text, request), each
    for kind in ("attack", "dataset", "victim", "space"):
        yield _name(kind, getattr(request, kind), request), getattr(of, kind)
    taught = isinstance(of, RunRecord) or (of.learns and request.only != "privacy")
    for text, learner in of.learners.items() if taught else ():
        yield _name("learner", text, request), learner


def _name(kind: str, text: str, request: Request) -> str:
    return f"{kind} {text} ({request.preset})"


def _terms(stack: str) -> list[str]:
    """The defenses of a stack, each as written."""
    return [each.written for each in parse_stack(stack)]


def _hash(name: str, version: str, config: Mapping[str, Any], source: str = "") -> str:
    told = {"name": name, "version": version, "config": dict(config)}
    return sha256_of(told | ({"source": source} if source else {}))


def check_frozen(board: Board, registry: Registry) -> None:
    """UsageError where a board cannot be filled with what is installed here.

    Because it was frozen and made of something else, or is ranked by a metric that is not here.
    """
    board.check_ranking(registry.entries["metrics"])
    if not board.held_to:
        return
    changed = differences(board.held_to, frozen(board, registry))
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    if changed:
        raise UsageError(
            f"Board '{board.name}' is frozen, and here is not what it is made of: "
            f"{'; '.join(changed[:SHOWN])}{more}. Install the version that the board was made "
            "with, or make a new board: its numbers would not compare."
        )


def differences(was: Frozen, now: Frozen) -> list[str]:
    """What is not the same in both, in words."""
    return [
        f"{name} {'is new' if name not in was else 'is gone' if name not in now else 'is another'}"
        for name in sorted(was.keys() | now.keys())
        if was.get(name) != now.get(name)
    ]


def strange(board: Board, record: RunRecord) -> list[str]:
    """The plugins of a record that are not what the board froze under their names."""
    if len(record.defense) != len(_terms(record.request.defense)):
        return [f"defense {record.request.defense}"]
    used = {
        name: _hash(each.name, each.version, each.config, each.source_sha256)
        for name, each in _used(record.request, record.defense, record)
    }
    names = sorted(used.keys() & board.held_to.keys())
    return [name for name in names if used[name] != board.held_to[name]]


def older(record: RunRecord, registry: Registry) -> list[str]:
    """Built-in plugins of a record whose source is another one here than where it was made.

    Of a stranger's plugins nothing is said: what a board shows does not depend on whose packages
    are installed.
    """
    found = {
        used.name
        for kind, used in _plugins(record)
        if used.distribution == OWN_DISTRIBUTION and _changed(kind, used, registry)
    }
    return sorted(found)


def foreign(record: RunRecord, registry: Registry) -> list[tuple[str, str]]:
    """Built-in plugins that a record has from somewhere else, by name, and from where."""
    found = {
        (used.name, used.distribution)
        for kind, used in _plugins(record)
        if used.distribution != OWN_DISTRIBUTION
        and used.name in registry.entries[kind]
        and registry.origin(kind, used.name).distribution == OWN_DISTRIBUTION
    }
    return sorted(found)


def _plugins(record: RunRecord) -> Iterator[tuple[str, Used]]:
    """Every plugin that had a part in a record, with its kind."""
    attacks = [] if record.request.only == "utility" else [record.attack]
    attacks += [member.attack for member in record.members.values()]
    kinds: dict[str, Iterable[Used | None]] = {
        "defenses": record.defense,
        "attacks": attacks,
        "datasets": (record.dataset, record.public),
        "victims": (record.victim,),
        "spaces": (record.space,),
        "learners": record.learners.values(),
    }
    yield from ((kind, used) for kind, several in kinds.items() for used in several if used)


def _changed(kind: str, used: Used, registry: Registry) -> bool:
    here = registry.entries[kind].get(used.name)
    return here is None or not is_of_today(here.spec, used.source_sha256)


def freeze(folder: Path, registry: Registry) -> Frozen:
    """Write what a board is made of to the end of its file; all before it stays as it is.

    UsageError while it is open.
    """
    path = folder / FILE
    board = read_board(folder)
    if board.open:
        raise UsageError(
            f"Board '{board.name}' is open: take `stage` out of {path}, then freeze it."
        )
    with disk_errors(path):
        text = path.read_text(encoding="utf-8")
    found = frozen(board, registry)
    kept = text.partition(f"\n{COMMENT}\n")[0].rstrip("\n")
    lines = [
        f"{json.dumps(name, ensure_ascii=False)} = {json.dumps(found[name])}" for name in found
    ]
    whole = "\n".join([kept, "", COMMENT, HEADING, *lines, ""])
    _check_written(whole, board, found, path)
    write_atomically(path, whole.encode())
    return found


def _check_written(text: str, board: Board, found: Frozen, path: Path) -> None:
    """UsageError where the file holds a table of its own after the place of ours."""
    import tomllib

    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} cannot be frozen: remove its [frozen] table ({error}).") from None
    if Board.model_validate(values) != board.model_copy(update={"frozen": found}):
        raise UsageError(f"{path} cannot be frozen: its [frozen] table must be its last.")
