"""Making a submission: what it takes, what is there already, and putting it together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.api.errors import UsageError
from harness.asking.registry import registry
from harness.asking.request import expand, make_request, validated
from harness.boards.folder import BoardFolder
from harness.boards.freezing import check_frozen
from harness.boards.protocol import NAME
from harness.control import ControlReport, run_controls
from harness.running.record import record_key
from harness.running.run import Observer
from harness.scheduling.matrix import Foreseen, State, foresee
from harness.store.paths import disk_errors
from harness.store.provenance import plugin_source
from harness.store.record import Records
from harness.submissions.cells import Chosen, choose, fitting, places, settled
from harness.submissions.folder import (
    Authorship,
    Plugin,
    Standing,
    Submission,
    SubmissionFolder,
    handed_in,
    protocol_of,
)


@dataclass(frozen=True)
class Draft:
    """A submission to be made: what, for which board, in which tracks, and where it will lie."""

    chosen: Chosen
    board: BoardFolder
    tracks: tuple[str, ...]
    folder: SubmissionFolder
    name: str
    root: Path


def prepare(
    what: str,
    board: BoardFolder,
    root: Path,
    *,
    kind: Any = None,
    tracks: Sequence[str] = (),
    name: str | None = None,
    out: Path | None = None,
) -> Draft:
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
    both = dict.fromkeys((*(there.tracks if there else ()), *wanted))
    return Draft(chosen, board, tuple(both), folder, called, root)


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


def authorship_of(draft: Draft, given: Mapping[str, str | None]) -> Authorship:
    """Paper, authors and licence, as given or as said before; UsageError names what is missing."""
    before = draft.folder.description.model_dump() if draft.folder.there else {}
    found = {name: given.get(name) or before.get(name) for name in Authorship.model_fields}
    missing = [f"--{name}" for name in found if not found[name]]
    if missing:
        raise UsageError(
            f"A submission says whose it is; missing: {', '.join(missing)}. For example --paper "
            '"arXiv:2101.00001" --authors "A. Author, B. Author" --license CC-BY-4.0; what is not '
            'published has --paper "none".'
        )
    return validated(Authorship, found, "A submission cannot say that")


def ahead(draft: Draft) -> list[Foreseen]:
    """Every cell of a submission, and whether its record is there with all that belongs to it."""
    board, chosen = draft.board.board, draft.chosen
    cells = settled(places(board, chosen.kind, chosen.what, draft.tracks), registry())
    sources = {plugin_source(plugin) for plugin in chosen.plugins}
    return [_checked(draft.folder, sources, e) for e in foresee(cells, draft.root, draft.folder)]


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


def adopt(draft: Draft, foreseen: Iterable[Foreseen]) -> None:
    """Take over what the cache has; what is to run again is dropped here and there."""
    records = Records(draft.root)
    for each in foreseen:
        if each.record is None:
            records.forget(record_key(each.plan))
            if each.instead:
                draft.folder.drop(each.instead)
        elif not draft.folder.records.path(each.record.id).exists():
            draft.folder.keep(each.record, each.instead)
            picture = records.gallery(each.record.id)
            if picture.exists():
                draft.folder.keep_gallery(each.record.id, picture.read_bytes())


def controls(draft: Draft, observer: Observer) -> Standing:
    """Run the positive controls of an attack and keep the reports."""
    if draft.chosen.kind == "defense":
        return "no attack"
    if not draft.chosen.plugins[0].spec.controls:
        return "none declared"
    request = make_request(**draft.board.board.options)
    options: dict[str, Any] = {"preset": request.preset, "threads": request.threads}
    reports: list[ControlReport] = []
    for text in expand(draft.chosen.what):
        reports.append(run_controls(text, observer, root=draft.root, **options))
        draft.folder.keep_control(reports[-1])
    return "passed" if all(report.passed for report in reports) else "failed"


def describe(
    draft: Draft, authors: Authorship, foreseen: Sequence[Foreseen], control: Standing | None = None
) -> Submission:
    """Write what the submission is now; cells without a record are counted as missing.

    Without `control`, the positive controls of an attack are not run yet.
    """
    kept = sorted(draft.folder.kept(), key=lambda record: record.id)
    there = {record.id for record in kept if draft.folder.complete(record)}
    found = Submission(
        name=draft.name,
        kind=draft.chosen.kind,
        what=draft.chosen.what,
        **authors.model_dump(),
        board=draft.board.board.name,
        protocol_sha256=protocol_of(draft.board.board),
        tracks=draft.tracks,
        control=control or ("not run" if draft.chosen.kind == "attack" else "no attack"),
        missing=sum(not (each.record and each.record.id in there) for each in foreseen),
        records=tuple(record.id for record in kept),
        plugins=_plugins(draft.chosen),
    )
    draft.folder.describe(found)
    draft.folder.drop_strays(kept)
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
