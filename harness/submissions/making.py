"""Making a submission: what it takes, what is there already, and putting it together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.api.errors import UsageError
from harness.asking import PresetName
from harness.asking.registry import registry
from harness.asking.request import make_request, validated
from harness.asking.selector import expand
from harness.boards.folder import BoardFolder
from harness.boards.freezing import check_frozen
from harness.boards.protocol import NAME
from harness.control import ControlReport, run_controls
from harness.running.record import record_key
from harness.running.run import Observer
from harness.scheduling.matrix import Foreseen, State, foresee
from harness.store.identity import plugin_source
from harness.store.paths import disk_errors
from harness.store.record import Records, RunRecord, Used
from harness.submissions.cells import Chosen, check_tracks, choose, fitting, places, settled
from harness.submissions.folder import (
    Plugin,
    Said,
    Standing,
    Submission,
    SubmissionFolder,
    protocol_of,
    write_submission,
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

    @property
    def preset(self) -> PresetName:
        """What the board's options go by."""
        return make_request(**self.board.board.options).preset


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
    check_tracks(protocol, tracks)
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
    folder = SubmissionFolder(path, root, releases=chosen.kind == "defense")
    undertaking = Undertaking(chosen, board, tuple(wanted), folder, called, root)
    _check_place(undertaking)
    before = folder.description.tracks if folder.there else ()
    return replace(undertaking, tracks=tuple(dict.fromkeys((*before, *wanted))))


def _check_place(asked: Undertaking) -> None:
    """UsageError where a folder holds another submission, or something else."""
    path = asked.folder.path
    with disk_errors(path):
        occupied = path.is_file() or (path.is_dir() and any(path.iterdir()))
    if not occupied:
        return
    if not asked.folder.there:
        raise UsageError(f"{path} is there and is no submission; choose another with --out.")
    there = asked.folder.description
    if (there.what, there.kind, there.board) != (
        asked.chosen.what,
        asked.chosen.kind,
        asked.board.board.name,
    ):
        raise UsageError(
            f"{path} holds a submission of '{there.what}' to '{there.board}'; choose another place "
            "with --name or --out."
        )


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
    return [_checked(asked, each) for each in foresee(cells, asked.root, asked.folder)]


def _checked(asked: Undertaking, each: Foreseen) -> Foreseen:
    """A record of other code, or one whose reconstruction is gone, is none."""
    record = each.record
    if record is None or (_same_code(asked, record) and asked.folder.obtainable(record)):
        return each
    state: State = "unavailable" if each.lacks else "missing"
    return replace(each, record=None, state=state, reason=each.lacks, instead=record.id)


def _same_code(asked: Undertaking, record: RunRecord) -> bool:
    sources = {plugin_source(plugin) for plugin in asked.chosen.plugins}
    return {used.source_sha256 for used in handed_in(asked.chosen.kind, record)} <= sources


def handed_in(kind: str, record: RunRecord) -> tuple[Used, ...]:
    """The plugins of a record that its submission is about."""
    return record.defense if kind == "defense" else (record.attack,)


def adopt(asked: Undertaking, foreseen: Iterable[Foreseen]) -> None:
    """Take over what the cache has; what is to run again is dropped here and there."""
    records = Records(asked.root)
    for each in foreseen:
        if each.record is None:
            records.forget(record_key(each.plan))
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
    threads = make_request(**asked.board.board.options).threads
    reports: list[ControlReport] = []
    for text in expand(asked.chosen.what):
        options = {"preset": asked.preset, "threads": threads}
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
        authors=said.authors,
        paper=said.paper,
        license=said.license,
        board=asked.board.board.name,
        protocol_sha256=protocol_of(asked.board.board),
        tracks=asked.tracks,
        control=control,
        missing=sum(not (each.record and each.record.id in there) for each in foreseen),
        records=tuple(record.id for record in kept),
        plugins=_plugins(asked.chosen),
    )
    write_submission(asked.folder.path, found)
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
