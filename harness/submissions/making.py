"""Making a submission: what it takes, what is there already, and putting it together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.api.errors import UsageError
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.asking.selector import expand
from harness.asking.toml import validated
from harness.boards.folder import BoardFolder
from harness.boards.freezing import check_frozen
from harness.boards.protocol import NAME
from harness.control import ControlReport, run_controls
from harness.running.keys import plugin_source
from harness.running.observer import Observer
from harness.scheduling.matrix import Foreseen, State, foresee
from harness.store.paths import disk_errors
from harness.store.records import Records
from harness.submissions.cells import Chosen, choose, fitting, places, settled
from harness.submissions.folder import (
    Plugin,
    Said,
    Standing,
    Submission,
    SubmissionFolder,
    handed_in,
    protocol_of,
)


@dataclass(frozen=True)
class Undertaking:
    """A submission to be made: what, for which board, in which tracks, and where it will lie."""

    chosen: Chosen
    board: BoardFolder
    tracks: tuple[str, ...]
    folder: SubmissionFolder
    name: str
    root: Path


def undertake(
    what: str,
    board: BoardFolder,
    root: Path,
    *,
    kind: Any = None,
    tracks: Sequence[str] = (),
    name: str | None = None,
    out: Path | None = None,
) -> Undertaking:
    """What is to be made; UsageError where it cannot be, or where something else lies there."""
    protocol, known = board.board, registry()
    for each in tracks:
        protocol.track(each)
    check_frozen(protocol, known)
    preset = make_request(**protocol.options).preset
    chosen = choose(what, kind, preset, known)
    wanted = tracks or fitting(protocol, chosen, known)
    if not wanted:
        raise UsageError(
            f"No track of board '{protocol.name}' is for '{what}': none releases what it works "
            "on. Name tracks with --track to have their cells run all the same."
        )
    called = name or chosen.slug
    if not re.fullmatch(NAME, called):
        raise UsageError(f"A submission is named in small letters, digits and '-', not '{called}'.")
    path = out or board.path / "submissions" / called
    folder = SubmissionFolder(path, root, chosen.kind)
    there = _there(folder, chosen, protocol.name)
    before = there.tracks if there else ()
    both = tuple(dict.fromkeys((*before, *wanted)))
    return Undertaking(chosen, board, both, folder, called, root)


def _there(folder: SubmissionFolder, chosen: Chosen, board: str) -> Submission | None:
    """What is there already; UsageError where it is another submission, or something else."""
    path = folder.path
    with disk_errors(path):
        occupied = path.is_file() or (path.is_dir() and any(path.iterdir()))
    if not occupied:
        return None
    if not folder.there:
        raise UsageError(f"{path} is there and is no submission; choose another with --out.")
    there = folder.description
    if (there.what, there.kind, there.board) != (chosen.what, chosen.kind, board):
        raise UsageError(
            f"{path} holds a submission of '{there.what}' to '{there.board}'; choose another place "
            "with --name or --out."
        )
    return there


def told(asked: Undertaking, given: Mapping[str, str | None]) -> Said:
    """Paper, authors and licence, as given or as said before; UsageError names what is missing."""
    before = asked.folder.description.model_dump() if asked.folder.there else {}
    found = {name: given.get(name) or before.get(name) for name in Said.model_fields}
    missing = [f"--{name}" for name in found if not found[name]]
    if missing:
        raise UsageError(
            f"A submission says whose it is; missing: {', '.join(missing)}. For example --paper "
            '"arXiv:2101.00001" --authors "A. Author, B. Author" --license CC-BY-4.0; what is not '
            'published has --paper "none".'
        )
    return validated(Said, found, "A submission cannot say that")


def ahead(asked: Undertaking) -> list[Foreseen]:
    """Every cell of a submission, and whether its record is there with all that belongs to it."""
    board, chosen = asked.board.board, asked.chosen
    cells = settled(places(board, chosen.kind, chosen.what, asked.tracks), registry())
    sources = {plugin_source(plugin) for plugin in chosen.plugins}
    return [_checked(asked.folder, sources, e) for e in foresee(cells, asked.root, asked.folder)]


def _checked(folder: SubmissionFolder, sources: set[str], each: Foreseen) -> Foreseen:
    """A record of other code, or one whose reconstruction is gone, is none."""
    record = each.record
    if record is None:
        return each
    ran = {used.source_sha256 for used in handed_in(folder.kind, record)}
    if ran <= sources and folder.obtainable(record):
        return each
    state: State = "unavailable" if each.lacks else "missing"
    return replace(each, record=None, state=state, reason=each.lacks, instead=record.id)


def adopt(asked: Undertaking, foreseen: Iterable[Foreseen]) -> None:
    """Take over what the cache has; what is to run again is dropped here and there."""
    records = Records(asked.root)
    for each in foreseen:
        if each.record is None:
            records.forget(each.keys.record)
            if each.instead:
                asked.folder.drop(each.instead)
        elif not asked.folder.records.path(each.record.id).exists():
            asked.folder.keep(each.record, each.instead)
            picture = records.gallery(each.record.id)
            if picture.exists():
                asked.folder.keep_gallery(each.record.id, picture.read_bytes())


def controls(asked: Undertaking, observer: Observer) -> Standing:
    """Run the positive controls of an attack and keep the reports."""
    if asked.chosen.kind == "defense":
        return "no attack"
    if not asked.chosen.plugins[0].spec.controls:
        return "none declared"
    request = make_request(**asked.board.board.options)
    options: dict[str, Any] = {"preset": request.preset, "threads": request.threads}
    reports: list[ControlReport] = []
    for text in expand(asked.chosen.what):
        reports.append(run_controls(text, observer, root=asked.root, **options))
        asked.folder.keep_control(reports[-1])
    return "passed" if all(report.passed for report in reports) else "failed"


def describe(
    asked: Undertaking, said: Said, foreseen: Sequence[Foreseen], control: Standing
) -> Submission:
    """Write what the submission is now; cells without a record are counted as missing."""
    kept = sorted(asked.folder.kept(), key=lambda record: record.id)
    there = {record.id for record in kept if asked.folder.complete(record)}
    found = Submission(
        name=asked.name,
        kind=asked.chosen.kind,
        what=asked.chosen.what,
        **said.model_dump(),
        board=asked.board.board.name,
        protocol_sha256=protocol_of(asked.board.board),
        tracks=asked.tracks,
        control=control,
        missing=sum(not (each.record and each.record.id in there) for each in foreseen),
        records=tuple(record.id for record in kept),
        plugins=_plugins(asked.chosen),
    )
    asked.folder.describe(found)
    asked.folder.drop_strays(kept)
    return found


def _plugins(chosen: Chosen) -> tuple[Plugin, ...]:
    """Each plugin once, whatever its options."""
    kind, known = f"{chosen.kind}s", registry()
    return tuple(
        Plugin(
            name=plugin.name,
            version=plugin.spec.version,
            distribution=known.origin(kind, plugin.name).distribution,
            source_sha256=plugin_source(plugin),
        )
        for plugin in {plugin.name: plugin for plugin in chosen.plugins}.values()
    )
