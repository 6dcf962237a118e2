"""`evaluate`: one request in; one record out, and its gallery beside it. What is foreseen of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.api.errors import UsageError
from harness.asking.plan import resolved
from harness.asking.request import expand
from harness.running.ceiling import CeilingStage
from harness.running.run import Run, check_machine

if TYPE_CHECKING:
    from harness.running.run import Observer
    from harness.scoring.ceilings import Proof
    from harness.store.record import RunRecord


def evaluate(
    *,
    observer: Observer | None = None,
    cache: Path | None = None,
    owner_key: bytes | None = None,
    force: str | None = None,
    **options: Any,
) -> RunRecord:
    """Evaluate one cell and return its record.

    `options` are those of `harness evaluate` with underscores: `defense`, `attack`, `dataset`,
    `preset`, `seed`, …. Raises UsageError for what cannot be asked and AssetUnavailable for data
    that is not here. A stage that fails comes back as a record whose `status` says so.
    """
    run = Run.open(options, cache=cache, observer=observer, secret=owner_key, force=force)
    if answer := run.answer():
        return answer
    try:
        record = run.record()
    finally:
        run.forget()
    if record.artifacts:
        from harness.drawing.gallery import draw_gallery

        draw_gallery(run.store.root, record)
    return record


@dataclass(frozen=True)
class Foreseen:
    """What one ceiling says of one defense in so many rounds."""

    defense: str
    rounds: int
    ceiling: str
    proof: Proof


def foresee_ceilings(
    defense: str,
    rounds: Sequence[int] = (1,),
    *,
    ceilings: Sequence[str] = (),
    observer: Observer | None = None,
    cache: Path | None = None,
    owner_key: bytes | None = None,
    **options: Any,
) -> Iterator[Foreseen]:
    """What no attack would exceed, before any attack runs: encodings are made, and no more.

    `defense` may be a grid, `options` are those of an evaluation. Without `ceilings` all that are
    installed are asked; UsageError where one was asked for by name and has nothing to say of any
    of these cells.
    """
    silent: list[Foreseen] = []
    spoken: set[str] = set()
    for text, count in product(expand(defense), rounds):
        asked = {**options, "defense": text, "rounds": count, "attack": "suite", "only": "privacy"}
        run = Run.open({**asked, "ceiling": True}, cache=cache, observer=observer, secret=owner_key)
        for ceiling, proof in _proofs(run, ceilings):
            found = Foreseen(text, count, ceiling, proof)
            spoken |= {ceiling} if not proof.reason else set()
            silent += [found] if proof.reason else []
            yield found
    for refused in silent:
        if ceilings and refused.ceiling not in spoken:
            raise UsageError(
                f"'{refused.ceiling}' proves nothing of {refused.defense}: {refused.proof.reason}."
            )


def _proofs(run: Run, ceilings: Sequence[str]) -> Iterator[tuple[str, Proof]]:
    """What each ceiling says of a cell; a cell that cannot be is asked none."""
    cell, known = run.cell, run.registry
    if cell.request.parties > 1:
        raise UsageError("No ceiling is stated for several parties; leave --parties at 1.")
    if ceilings:
        preset = cell.request.preset
        chosen = {text: resolved("ceilings", text, preset, known) for text in ceilings}
        run.cell = cell = replace(cell, ceilings=chosen)
    if cell.reason and cell.main is None:
        raise UsageError(cell.reason)
    check_machine(cell.device)
    with run:
        for text, stage in CeilingStage.every(cell).items():
            yield text, run(stage).proof
