"""What speaks against a number: flags, controls that were not passed, cells without a result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from harness.results.material import Group, Kept, Line, Reported
from harness.results.view import ONLY_WEAK, CellView, Leak, Notice, Standing
from harness.store.provenance import canonical_json
from harness.store.record import Used

TO_KNOW = frozenset(
    {
        "unranked",
        "beyond_the_guarantee",
        "foreign_public",
        "undefined_targets",
        "null_fallback",
        "companion_failed",
        "learner_failed",
    }
)
"""Flags that explain a number and do not speak against it."""
OF_WEAKNESS = frozenset(
    {"below_null", "constant_output", "knows_less_does_better", "public_images"}
)
"""Flags that say that an attack failed: where another one stands, the row stands."""
UNCONTROLLED = {
    "failed": ("control_failed", "did not break what they must break"),
    "not run": (
        "control_not_run",
        "nobody has seen them break anything as they are configured here",
    ),
}
"""By what became of an attack's controls, the flag that says so."""
CERTAIN = 0.99
"""Top-1 from which an identification is as good as complete."""


class Controls:
    """What became of plugins' positive controls: the board's reports, then those handed in.

    A submission's report speaks for records that came with it, of an attack of that very source,
    and only where the board has no report of its own.
    """

    def __init__(self, reports: Iterable[Reported]) -> None:
        self._passed: dict[tuple[str, str, str], bool] = {}
        for each in reports:
            name = _name(each.report.plugin, exactly=bool(each.origin))
            key = (each.report.kind, each.origin, name)
            self._passed[key] = each.report.passed and self._passed.get(key, True)

    def of(self, kept: Iterable[Kept]) -> Standing:
        """Of one attack in several records: passed only where each of them was."""
        return _standing(self._of(each) for each in kept)

    def _of(self, kept: Kept) -> bool | None:
        used = kept.record.attack
        own = self._passed.get(("attacks", "", _name(used)))
        if own is not None or not kept.origin:
            return own
        return self._passed.get(("attacks", kept.origin, _name(used, exactly=True)))

    def of_learners(self, used: Iterable[Used]) -> Standing:
        """Of one learner as several records have it; the board's own reports alone speak."""
        return _standing(self._passed.get(("learners", "", _name(each))) for each in used)


def _standing(passed: Iterable[bool | None]) -> Standing:
    found = set(passed)
    if False in found:
        return "failed"
    return "passed" if found == {True} else "not run"


def _name(used: Used, *, exactly: bool = False) -> str:
    """A plugin by name, version, distribution and options; `exactly` also by its source."""
    values: dict[str, Any] = used.model_dump(
        mode="json", include={"name", "version", "distribution", "config"}
    )
    return canonical_json(values | ({"source": used.source_sha256} if exactly else {}))


def speaking_against(flags: Iterable[Notice]) -> list[Notice]:
    """Flags that a reader must not pass over."""
    return [flag for flag in flags if flag.name not in TO_KNOW]


def flags_of(group: Group) -> list[Notice]:
    """The flags of all seeds, each once, and one for seeds that came to nothing."""
    found = {flag.name: flag.message for r in reversed(group.records) for flag in r.flags}
    lost = [record for record in group.records if record.status != "ok"]
    if lost and group.ok:
        seeds = ", ".join(str(record.request.seed) for record in lost)
        found["seed_failed"] = f"no result on seed {seeds}: {lost[0].error}"
    if any(kept.doubted for kept in group.kept):
        found["doubted"] = (
            "its result does not count: it is too good to be true, or a hidden rerun did not bear "
            "it out"
        )
    return [Notice(name=name, message=message) for name, message in sorted(found.items())]


def row_flags(
    line: Line,
    cells: Sequence[CellView],
    standing: Sequence[Standing],
    leaks: Mapping[str, Leak],
) -> list[Notice]:
    """All that speaks against a row's numbers; `leaks` are the row's.

    What speaks against a stranger's attack is held against it alone, not against every row it met.
    """
    own = [group.origin in ("", line.origin) for group in line.groups]
    unproven = [group.unproven for group in compress(line.groups, own)]
    cells = list(compress(cells, own))
    return [
        *_of_cells(cells),
        *_only_weak(cells),
        *_uncontrolled(cells, list(compress(standing, own))),
        *_incomplete(cells, unproven),
        *_identified_only(line.groups, leaks),
    ]


def _of_cells(cells: Iterable[CellView]) -> Iterator[Notice]:
    """Flags of attacks, but for those that only say that one of them failed."""
    for cell in cells:
        for flag in speaking_against(cell.flags):
            if flag.name not in OF_WEAKNESS:
                yield Notice(name=flag.name, message=f"{cell.attack}: {flag.message}")


def _only_weak(cells: Iterable[CellView]) -> Iterator[Notice]:
    scored = [cell for cell in cells if cell.status == "ok" and cell.leaks]
    if scored and all(any(flag.name in OF_WEAKNESS for flag in cell.flags) for cell in scored):
        yield Notice(
            name=ONLY_WEAK,
            message="every attack does worse than guessing, so none of them says anything of the "
            "defense",
        )


def _uncontrolled(cells: Sequence[CellView], standing: Sequence[Standing]) -> Iterator[Notice]:
    """Attacks of which nobody knows whether they can break anything."""
    for state, (name, what) in UNCONTROLLED.items():
        met = zip(cells, standing, strict=True)
        attacks = {cell.attack for cell, found in met if cell.status == "ok" and found == state}
        if attacks:
            yield Notice(name=name, message=f"{what}: {', '.join(sorted(attacks))}")


def _incomplete(cells: Sequence[CellView], unproven: Sequence[bool]) -> Iterator[Notice]:
    """Cells without a result that counts, but for those of which what was asked says why."""
    lost = [
        cell.attack
        for cell, doubtful in zip(cells, unproven, strict=True)
        if doubtful or cell.status in ("failed", "timeout", "missing")
    ]
    if lost:
        message = f"{len(lost)} of {len(cells)} attacks have no result: {', '.join(lost)}"
        yield Notice(name="incomplete", message=message)


def _identified_only(groups: Iterable[Group], leaks: Mapping[str, Leak]) -> Iterator[Notice]:
    found = [(each.attack, record) for each in groups for record in each.counted]
    named = [(attack, each.identification) for attack, each in found if each.identification]
    sure = sorted({attack for attack, each in named if each.top1 >= CERTAIN})
    if sure and not any(leak.gain.ci and leak.gain.low > 0 for leak in leaks.values()):
        yield Notice(
            name="identified_not_reconstructed",
            message=f"{', '.join(sure)} identifies nearly every image among candidates, and no "
            "attack shows more of any than a guess does: better reconstructions must exist",
        )
