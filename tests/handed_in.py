"""A small board with records and a submission to it, made by hand: nothing has run, no torch."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from board_records import reached

from harness.asking.plan import plan, resolved
from harness.asking.registry import registry
from harness.boards.cells import BoardCell, cells_of
from harness.boards.folder import BoardFolder
from harness.boards.protocol import FILE as BOARD_FILE
from harness.control import ControlReport
from harness.rng import KeyedStream, board_key
from harness.scoring.ceilings import Proof
from harness.scoring.summary import OTHERS, Values, by_image, guess_name, summarise
from harness.scoring.utility import Right, summed_up
from harness.store.record import RunRecord, Stored, Used
from harness.submissions.cells import places
from harness.submissions.folder import (
    Plugin,
    Submission,
    SubmissionFolder,
    protocol_of,
)

TOML = """
name = "small"
title = "A small board"

[options]
dataset = "fashion-mini"
preset = "standard"
private_size = 40
targets = 8
metrics = "snr_db,ssim"
threads = 1
precision = "float32"

[[tracks]]
name = "once"
title = "Encodings"
defenses = ["none", "mixup[k=2]"]
cells = [{ attacks = ["linear", "identity"] }, { attacks = ["linear"], seeds = [1] }]
"""
CELLS = 6
TARGETS = 8


def used(text: str, kind: str = "attacks") -> Used:
    """A plugin as it runs here."""
    known = registry()
    return Used.of(known, kind, resolved(kind, text, "standard", known))


def scores(seed: int) -> dict[str, Values]:
    """Two metrics of eight images, and their nulls."""
    draw = np.random.default_rng(seed)
    nulls = {"mean_image": draw.normal(1, 1, TARGETS), "class_mean": draw.normal(3, 1, TARGETS)}
    alike = {"m": np.full(TARGETS, 0.1), OTHERS: draw.uniform(-0.1, 0.1, TARGETS)}
    decibels = draw.normal(9, 2, TARGETS)
    nulls[OTHERS] = draw.normal(0, 1, TARGETS)
    return {
        "snr_db": Values(decibels, nulls, "higher", "dB"),
        "ssim": Values(draw.uniform(0.5, 0.9, TARGETS), alike, "higher"),
    }


def measured(seed: int) -> dict[str, Any]:
    """What a record says of such scores: summed up by the judge's own arithmetic."""
    values = scores(seed)
    stream = KeyedStream(board_key(seed)).stream(stage="judge").stream(use="bootstrap")
    privacy = summarise(values, stream)
    attack = {name: each.attack.tolist() for name, each in values.items()}
    nulls = {name: {n: c.tolist() for n, c in each.nulls.items()} for name, each in values.items()}
    misplaced = {name: own.pop(OTHERS) for name, own in nulls.items()}
    guess = {name: own[guess_name(privacy[name])] for name, own in nulls.items()}
    right = Right(inference="plain", counts={"plain": 30}, chance=0.1, n=40)
    return {
        "privacy": privacy,
        "by_image": by_image(privacy, attack, guess, misplaced, nulls=nulls),
        "utility": summed_up([right], [right]),
    }


def record_of(cell: BoardCell, returned: bytes = b"", released: bytes = b"") -> RunRecord:
    """A record that answers a cell; `returned` is what its attack brought back."""
    request = cell.request
    known = registry()
    planned = plan(request, known)
    kept = {"attack": returned, "release": released}
    return RunRecord(
        status="ok",
        request=request,
        defense=tuple(Used.of(known, "defenses", each) for each in planned.defenses),
        attack=Used.of(known, "attacks", planned.attack),
        dataset=Used.of(known, "datasets", planned.dataset),
        victim=Used.of(known, "victims", planned.victim),
        space=Used.of(known, "spaces", planned.space),
        learners={
            name: Used.of(known, "learners", each) for name, each in planned.learners.items()
        },
        threat_model=request.threat_model,
        release_kind=planned.kind,
        channels_used=tuple(sorted(planned.channels)),
        splits={"private": 40, "targets": TARGETS},
        seeds={"seed": request.seed, "owner_key": "derived from the seed"},
        device="cpu",
        threads=1,
        artifacts={
            name: Stored(key="k", sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
            for name, data in kept.items()
        },
        ceilings={name: Proof(reason="nothing is proven here") for name in planned.ceilings},
        timing={"attack": 1.0},
        created="2026-01-01T00:00:00+00:00",
        **measured(request.seed),
    ).sealed()


def report(attack: str = "linear", value: float = 50.0) -> ControlReport:
    """What became of an attack's controls, each of them so many decibels."""
    results = reached(attack, value)
    return ControlReport(
        written=attack,
        attack=used(attack),
        preset="quick",
        seed=0,
        results=results,
        passed=all(result.passed for result in results),
    ).sealed()


def make_board(path: Path) -> BoardFolder:
    """The board, every cell with a record, and a control's report."""
    path.mkdir(parents=True)
    (path / BOARD_FILE).write_text(TOML, encoding="utf-8")
    folder = BoardFolder(path)
    for cell in cells_of(folder.board):
        folder.keep(record_of(cell))
    folder.keep_control(report())
    return folder


def submit(board: BoardFolder, what: str = "mixup[k=4]") -> SubmissionFolder:
    """A defense handed in to it, with everything that belongs to it."""
    folder = SubmissionFolder(board.path / "submissions" / "mine", kind="defense")
    found = places(board.board, "defense", what, ["once"])
    cells = [cell for (same,) in found for cell in same]
    records = [record_of(cell, returned(cell), b"released") for cell in cells]
    for cell, record in zip(cells, records, strict=True):
        folder.reconstruction(record).parent.mkdir(parents=True, exist_ok=True)
        folder.reconstruction(record).write_bytes(returned(cell))
        folder.release(record).parent.mkdir(exist_ok=True)
        folder.release(record).write_bytes(b"released")
        folder.keep(record)
    plugin = used("mixup", "defenses").model_dump(include=set(Plugin.model_fields))
    folder.describe(described(board, what, records, Plugin(**plugin)))
    return folder


def returned(cell: BoardCell) -> bytes:
    """What stands for the answer to a cell."""
    return f"the answer to {cell.identity}".encode()


def described(
    board: BoardFolder, what: str, records: list[RunRecord], plugin: Plugin
) -> Submission:
    """What a submission of these records says of itself."""
    return Submission(
        name="mine",
        kind="defense",
        what=what,
        authors="A. Stranger",
        paper='"quoted" \\ – ünïcode',
        license="CC0-1.0",
        board="small",
        protocol_sha256=protocol_of(board.board),
        tracks=("once",),
        missing=0,
        records=tuple(sorted(record.id for record in records)),
        plugins=(plugin,),
    )
