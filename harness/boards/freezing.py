"""What a board is made of, named by content: so that nobody fills it with something else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.api.errors import UsageError
from harness.asking.plan import Cell, plan
from harness.asking.selector import parse_stack
from harness.boards.cells import cells_of
from harness.boards.protocol import FILE, Board, read_board
from harness.store.canonical import sha256_of
from harness.store.paths import disk_errors, write_atomically

if TYPE_CHECKING:
    from harness.api.assets import Asset
    from harness.asking.registry import Registry
    from harness.asking.request import Request
    from harness.asking.selector import Resolved
    from harness.store.record import RunRecord

HEADING = "[frozen]"
COMMENT = (
    "# Written by `harness leaderboard freeze`: name, version and options of all that is used."
)
SHOWN = 3
"""Differences that a message lists."""

Frozen = dict[str, str]
"""By kind and text as written, the hash of what that is."""


def frozen(board: Board, registry: Registry) -> Frozen:
    """All that a board's cells are made of, as it is installed here. UsageError for what is not."""
    found: Frozen = {}
    seen: set[str] = set()
    for cell in cells_of(board):
        asked = cell.request.model_copy(update={"seed": 0})
        if (key := asked.model_dump_json()) not in seen:
            seen.add(key)
            found |= _of_cell(plan(asked, registry))
    return dict(sorted(found.items()))


def _of_cell(cell: Cell) -> Frozen:
    plugins = list(_resolved(cell))
    metrics = [metric for metric in cell.metrics if metric.name not in cell.unavailable]
    held = [asset for _, resolved in plugins for asset in _assets(resolved)]
    held += [asset for metric in metrics for asset in metric.assets]
    return {
        **{name: _use(resolved) for name, resolved in plugins},
        **{f"metric {m.name}": _hash(m.name, m.version, {}) for m in metrics},
        **{f"asset {asset.name}": _data(asset) for asset in held},
    }


def _resolved(cell: Cell) -> Iterator[tuple[str, Resolved]]:
    """Every plugin of a cell but its metrics, by kind and text."""
    request = cell.request
    yield from _named("defense", request.preset, _terms(request.defense), cell.defenses)
    yield from _named("attack", request.preset, [request.attack], [cell.attack])
    members = {text: each.attack for text, each in cell.members.items()}
    yield from _named("attack", request.preset, members, members.values())
    yield from _named("dataset", request.preset, [request.dataset], [cell.dataset])
    if request.public and cell.public:
        yield from _named("dataset", request.preset, [request.public], [cell.public])
    yield from _named("victim", request.preset, [request.victim], [cell.victim])
    yield from _named("space", request.preset, [request.space], [cell.space])


def _named(
    kind: str, preset: str, texts: Iterable[str], uses: Iterable[Any]
) -> Iterator[tuple[str, Any]]:
    for text, use in zip(texts, uses, strict=True):
        yield f"{kind} {text} ({preset})", use


def _terms(stack: str) -> list[str]:
    """The defenses of a stack, each as written."""
    return [
        each.name + (f"[{_options(each.options)}]" if each.options else "")
        for each in parse_stack(stack)
    ]


def _options(options: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in options.items())


def _use(resolved: Resolved) -> str:
    return _hash(resolved.name, resolved.spec.version, resolved.config.model_dump(mode="json"))


def _hash(name: str, version: str, config: Mapping[str, Any]) -> str:
    return sha256_of({"name": name, "version": version, "config": dict(config)})


def _assets(resolved: Resolved) -> tuple[Asset, ...]:
    return tuple(getattr(resolved.spec, "assets", ()))


def _data(asset: Asset) -> str:
    return sha256_of({file.name: file.digest for file in asset.files})


def check_frozen(board: Board, registry: Registry) -> None:
    """UsageError where a board cannot be filled with what is installed here.

    Because it was frozen and made of something else, or is ranked by a metric that is not here.
    """
    board.check_ranking(registry.entries["metrics"])
    if not board.frozen:
        return
    changed = differences(board.frozen, frozen(board, registry))
    if changed:
        raise UsageError(
            f"Board '{board.name}' is frozen, and here is not what it is made of: "
            f"{_listed(changed)}. Install the version that the board was made with, or make a new "
            "board: its numbers would not compare."
        )


def differences(was: Frozen, now: Frozen) -> list[str]:
    """What is not the same in both, in words."""
    return [
        f"{name} {'is new' if name not in was else 'is gone' if name not in now else 'is another'}"
        for name in sorted(was.keys() | now.keys())
        if was.get(name) != now.get(name)
    ]


def _listed(faults: list[str]) -> str:
    more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "; ".join(faults[:SHOWN]) + more


def strange(board: Board, record: RunRecord) -> list[str]:
    """The plugins of a record that are not what the board froze under their names."""
    if len(record.defense) != len(_terms(record.request.defense)):
        return [f"defense {record.request.defense}"]
    used = dict(_used(record))
    names = sorted(used.keys() & board.frozen.keys())
    return [name for name in names if used[name] != board.frozen[name]]


def _used(record: RunRecord) -> Iterator[tuple[str, str]]:
    request: Request = record.request
    uses = [
        *_named("defense", request.preset, _terms(request.defense), record.defense),
        *_named("attack", request.preset, [request.attack], [record.attack]),
        *_named("dataset", request.preset, [request.dataset], [record.dataset]),
        *_named("victim", request.preset, [request.victim], [record.victim]),
        *_named("space", request.preset, [request.space], [record.space]),
    ]
    for name, use in uses:
        yield name, _hash(use.name, use.version, use.config)


def freeze(folder: Path, registry: Registry) -> Frozen:
    """Write what a board is made of to the end of its file; all before it stays as it is."""
    path = folder / FILE
    board = read_board(folder)
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
