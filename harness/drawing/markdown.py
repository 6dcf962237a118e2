"""A board's README: its tables, how to read them, and how to get them again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import TextWrapper

from harness.boards.answering import AGAIN, MISSING, lacking
from harness.boards.signing import signature
from harness.drawing.curves import curves_of, row_curves
from harness.results.bracket import bracketed
from harness.results.headline import key_findings
from harness.results.identified import FEWER
from harness.results.numbers import (
    NONE,
    as_written,
    code,
    counted,
    gained,
    metric_name,
    percent,
    plain,
    reach,
    share,
    signed,
)
from harness.results.ranks import RULE
from harness.results.view import (
    WEAK,
    AttackView,
    BoardView,
    CellView,
    ClaimView,
    Leak,
    Learned,
    LearnerView,
    Number,
    RowView,
    TrackView,
)
from harness.scoring.verdict import ABSOLUTE

FRONT, CURVE = "front.png", "curve.png"
MADE = "<!-- Made by `harness leaderboard build` from the records here: do not edit. -->"
REFERENCE, CLAIMS, NO_SCORE = "ref", "see page", "no score"
SPECIAL = re.compile(r"[\\`*_\[\]<>&#~$@]|:(?=//)|(?<=www)\.|^[-+]")
"""What Markdown would take for more than text; a bar, which parts columns, tables see to."""
LISTED = re.compile(r"^(\d+)([.)])")
"""What would begin a list."""
WHY = {"failed": "failed", "timeout": "time", "not_applicable": "cannot be", "missing": "not run"}
"""What stands in a table where a cell has no number."""

READING = (
    "**Gain** is what the strongest attack on each image scores beyond the best guess that uses no "
    "release, signed so that positive leaks more. In a row, the guess is what the strongest of the "
    "same attacks' answers is worth where other images of the class are true: as many tries, as "
    "much help by matching, and as lucky. Where the best guess without a release has a higher "
    "mean, that counts. In a cell it is the one null that is best on average.",
    "**Intervals** are 95%, and of two kinds. Of one seed: a bootstrap over images (of accuracies: "
    "Wilson's over test images); how another seed would do is not in it, so rows of one seed look "
    "surer than they are. Of several: Student's t over the seeds' means, or the seeds' own "
    "intervals pooled, whichever is wider. A row's leak is taken over those seeds on which most of "
    "its attacks ran; on others the strongest may be missing. The column `seeds` says how many "
    "the accuracy is of, and behind it how many the leak, where these are others.",
    f"**Rank.** {RULE} Two rows of different ranks may overlap all the same: a third one beats the "
    "one and not the other. A row that lacks cells has no rank, nor one of which every "
    "attack does worse than guessing. In others a gain below zero counts as none: who does "
    "worse than guessing could have guessed. Where a defense hides signs, it is ranked by "
    "the images as they are or by their absolute values, whichever leaks more (marked |x|).",
    "**Accuracy** is that of the best of several learners, which had the released bytes, the "
    "defense's law and public images. It was chosen on one half of the test images, and its "
    "accuracy is of the other half. What the owner trains itself, as for features and gradients of "
    "a model, is one victim.",
    "**Chance** beside an accuracy: its interval does not lie above what naming one class always "
    "gives. It means no more than that the strongest learner here found nothing.",
    "**Named** says how often the best attack that identifies puts a true image first among "
    "candidates, beside chance. Whoever has such a list needs no reconstruction: a row whose "
    "images are named leaks, whatever its gain is. Squares mark such rows in the picture. A "
    "release of many rounds contains one of fewer, so a row in which nobody asked has what was "
    'found there, marked "from fewer rounds".',
    "**Private images.** Accuracy grows with how many images are released, and how often; what "
    "leaks of one image does not grow with their number. So accuracy is also shown at other "
    "numbers than the one at which leakage was judged.",
    "**The reference** (`ref`) protects nothing: it is shown, and neither counted nor ranked. "
    "Every accuracy is also given as a share of the best that the same learners, or the same "
    "victim, reach on unprotected images; where the reference row is a training of its own, as for "
    "features, its share need not be 100%. The dashed line of the picture is that accuracy, over "
    "as many seeds as any row has.",
    "**Attacks.** One beats another where it surely gains more on average over the defenses that "
    "both met; ranks are layers, as above. One that surely gains against no defense has none. The "
    "mean is over all defenses that an attack met, so two means compare only where these are the "
    "same; within a rank it gives the order.",
    "**Verified** means: every attack of the row has a result, has passed its positive control as "
    "it is configured here, and no flag speaks against the numbers. Reasons stand on the page and "
    "in the CSV. **Older** is a row of a board that is still open, some of whose records were made "
    "by an earlier source, version or options of what is named on the page. Cells of other "
    "versions or options are to run again.",
    "That an attack gains nothing does not make a defense safe: another attack may do better.",
)
"""How to read a board, point by point."""
BRACKETED = (
    "**Reached … ceiling** is pooled SNR in dB: of the attacks that a ceiling bounds, the one that "
    "comes nearest to it, and what no such attack exceeds on average; in brackets where it is "
    "vacuous. It bounds neither the best of several attacks image by image nor the mean of "
    "decibels that rows are ranked by. Where there is none, the page says why."
)
"""Likewise, where a row has a ceiling or a reason why it has none."""
LEGEND = (
    (NONE, "the board does not have this cell"),
    (CLAIMS, "the attack brings no images back; what it found out stands on the page"),
    (NO_SCORE, "nothing that this metric could judge"),
    ("|x|", "of absolute values"),
    ("?", "unverified"),
)
"""What stands in a table of cells, and what it means."""

Units = Mapping[str, str]
"""By metric."""


def readme(view: BoardView) -> str:
    """The whole file."""
    blocks = [MADE, f"# {view.title}", view.about, *_stage(view), *_opening(view)]
    for track in view.tracks:
        blocks += _track(track, view)
    blocks += _claims(view.claims, view.units)
    point = TextWrapper(100, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
    points = (*READING, *([BRACKETED] if any(map(_bounded, view.rows)) else []))
    blocks += ["## How to read this", "\n".join(map(point.fill, points)), *_again(view)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _text(words: str) -> str:
    """Somebody's words on one line, where they mean nothing but themselves."""
    return LISTED.sub(r"\1\\\2", SPECIAL.sub(r"\\\g<0>", " ".join(words.split())))


def _stage(view: BoardView) -> list[str]:
    if view.stage == "frozen":
        return []
    return ["**Open:** rows and columns may still come, and numbers are not final."]


def _opening(view: BoardView) -> list[str]:
    to_run = lacking(view.missing, view.again)
    held = f"{counted(view.records, 'record')}{f', {to_run}' if to_run else ''}"
    files = (
        f"{held}. The [page](index.html) opens every row; "
        "[leaderboard.csv](leaderboard.csv) has every number. "
        f"This board is {signature(view.signer)}."
    )
    ranked = any(row.rank for row in view.rows)
    picture = f"![Accuracy against leakage]({FRONT})" if ranked else ""
    curves = f"![Accuracy over private images]({CURVE})" if curves_of(view) else ""
    return [" ".join(key_findings(view)), picture, curves, files]


def _track(track: TrackView, view: BoardView) -> list[str]:
    metrics = [m for m in view.metrics if any(row.leak(m) for row in track.rows)]
    blocks = [f"## {track.title}", track.about, _not_whole(track)]
    if metrics:
        blocks.append(_rows(track, metrics))
    blocks += [*_over_images(track), *_learners(track)]
    if any(cell.records for row in track.rows for cell in row.cells):
        blocks += ["### Every attack", *_cells(track, metrics)]
    else:
        attacks = dict.fromkeys(cell.attack for row in track.rows for cell in row.cells)
        defenses = (row.defense for row in track.rows)
        blocks.append(f"Not run yet: {_list(defenses)}; against {_list(attacks)}.")
    if track.attacks and metrics:
        blocks += ["### Attacks", _attacks(track.attacks, metrics, view.units)]
    return blocks


def _not_whole(track: TrackView) -> str:
    """What a track that has begun still lacks."""
    missing = sum(row.missing for row in track.rows)
    if not missing or not any(cell.records for row in track.rows for cell in row.cells):
        return ""
    have = "has" if missing == 1 else "have"
    return (
        f"**Not whole:** {counted(missing, 'cell')} of this track {have} not been run, and rows "
        "that lack any have no rank: an attack that is still to run may be the strongest."
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are too."""
    rows = [head, ["---"] * len(head), *lines]
    safe = ([text.replace("|", "\\|").replace("\n", " ") for text in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in safe)


def _bounded(row: RowView) -> bool:
    """Whether a ceiling was asked for."""
    return bool(row.bracket or row.unbounded)


def _rows(track: TrackView, metrics: Sequence[str]) -> str:
    heads = [f"{metric_name(metric)} gain" for metric in metrics]
    told = any(row.identified for row in track.rows)
    head = ["rank", "defense", "seeds", "accuracy", "of unprotected", *heads]
    bounded = any(map(_bounded, track.rows))
    more = [*(["named"] if told else []), *(["reached … ceiling"] if bounded else [])]
    head += ["strongest attack", *more, "verified"]
    return _table(head, [_row(row, metrics, told, bounded) for row in track.rows])


def _row(row: RowView, metrics: Sequence[str], told: bool, bounded: bool) -> list[str]:
    first = row.leak(metrics[0])
    unranked = NONE if row.protected else REFERENCE
    return [
        str(row.rank.get(metrics[0], unranked)),
        _named(row),
        _seeds(row, first),
        _share(row.accuracy) + (", chance" if row.at_chance else ""),
        _share(row.retained),
        *(f"{gained(leak)}{_face(leak)}" if leak else NONE for leak in map(row.leak, metrics)),
        code(first.strongest) if first else NONE,
        *([_named_images(row)] if told else []),
        *([bracketed(row.bracket) if row.bracket else NONE] if bounded else []),
        _standing(row),
    ]


def _standing(row: RowView) -> str:
    """Whether a row is verified, and what else is against its numbers."""
    against = [WEAK if row.only_weak else "", "older" if row.older else ""]
    return ", ".join(filter(None, ["yes" if row.verified else "no", *against]))


def _named_images(row: RowView) -> str:
    """How often the best attack that identifies puts a true image first, and by chance."""
    found = row.identified
    if found is None:
        return NONE
    told = f"{share(found.top1)}, chance {percent(found.top1_chance)}"
    if found.fewer_rounds is not None:
        told = f"{told}, {FEWER}"
    return f"**{told}**, {code(found.attack)}" if found.sure else told


def _over_images(track: TrackView) -> list[str]:
    """Accuracies by private images, a line for each defense and number of rounds."""
    if row_curves(track.rows) is None:
        return []
    sizes = sorted({e.private_size for row in track.rows for e in row.curve if e.accuracy})
    several = len({rounds for row in track.rows for rounds in row.lines}) > 1
    lines = [
        [_named(row), *([str(rounds)] if several else []), *(_point(points, n) for n in sizes)]
        for row in track.rows
        for rounds, points in row.lines.items()
    ]
    bare = {e.private_size: e for row in track.rows for e in row.curve if e.reference}
    plain = ["unprotected", *([NONE] if several else []), *(_bare(bare.get(n)) for n in sizes)]
    head = ["defense", *(["rounds"] if several else []), *(f"{n:,} images" for n in sizes)]
    return ["### Accuracy over private images", _table(head, [*lines, plain])]


def _point(points: Sequence[Learned], n: int) -> str:
    found = next((each for each in points if each.private_size == n), None)
    if found is None or found.accuracy is None:
        return NONE
    by = f", {code(found.learner)}" if found.learner else ""
    return share(found.accuracy) + (", chance" if found.at_chance else by)


def _bare(found: Learned | None) -> str:
    return _share(found.reference if found else None)


def _learners(track: TrackView) -> list[str]:
    """Every learner's accuracy in each row, and what it was chosen by; why some have none."""
    rows = [row for row in track.rows if row.learner]
    if not rows:
        return []
    names = list(dict.fromkeys(each.name for row in rows for each in row.learners))
    reasons: dict[str, int] = {}
    lines = []
    for row in rows:
        found = {each.name: each for each in row.learners}
        lines.append([_named(row), *(_learner(found.get(name), reasons) for name in names)])
    notes = "\n".join(f"{number}. {_text(reason)}" for reason, number in reasons.items())
    legend = (
        "Accuracy, and in brackets what a learner was chosen by; bold: the chosen one; ‡: its "
        "positive controls were not passed."
    )
    return ["### Learners", legend, _table(["defense", *map(code, names)], lines), notes]


def _learner(found: LearnerView | None, reasons: dict[str, int]) -> str:
    if found is None:
        return NONE
    if found.accuracy is None:
        return f"left out: {reasons.setdefault(found.reason, len(reasons) + 1)}"
    chosen_by = "" if found.validation is None else f" ({percent(found.validation)})"
    text = percent(found.accuracy.value)
    mark = "" if found.control in (None, "passed") else "‡"
    return (f"**{text}**" if found.chosen else text) + mark + chosen_by


def _seeds(row: RowView, leak: Leak | None) -> str:
    """How many seeds a row's accuracy is of, and its leak where these are others."""
    learned, leaked = len(row.seeds), len(leak.seeds) if leak else 0
    if not learned:
        return NONE
    return f"{learned}, leak {leaked}" if leaked not in (0, learned) else str(learned)


def _named(row: RowView) -> str:
    return code(row.defense) + (f" ({_text(row.origin)})" if row.origin else "")


def _share(number: Number | None) -> str:
    return share(number) if number else NONE


def _face(leak: Leak) -> str:
    return " |x|" if leak.metric.endswith(ABSOLUTE) else ""


def _cells(track: TrackView, metrics: Sequence[str]) -> list[str]:
    """A table of gains by the first metric, defenses against attacks, and why some have none."""
    heads = list(dict.fromkeys((c.attack, c.threat_model) for row in track.rows for c in row.cells))
    several = len({model for _, model in heads}) > 1
    names = [code(attack) + (f" ({_text(model)})" if several else "") for attack, model in heads]
    reasons: dict[str, int] = {}
    lines = []
    for row in track.rows:
        cells = {(cell.attack, cell.threat_model): cell for cell in row.cells}
        found = [_cell(cells.get(key), metrics, reasons) for key in heads]
        lines.append([_named(row), *found])
    notes = "\n".join(f"{number}. {_text(reason)}" for reason, number in reasons.items())
    return [_legend(metrics, lines), _table(["defense", *names], lines), notes]


def _legend(metrics: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """What the table is of, and what its signs mean, as far as it has them."""
    ends = " ".join(cell for line in lines for cell in line[1:]) + " "
    signs = [f"{mark}: {meaning}" for mark, meaning in LEGEND if f"{mark} " in ends]
    what = [f"Gain in {metric_name(metrics[0])}"] if metrics else []
    what += ["(1), (2), …: why there is no number, below"] if " (1)" in ends else []
    text = "; ".join([*what, *signs])
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _cell(cell: CellView | None, metrics: Sequence[str], reasons: dict[str, int]) -> str:
    if cell is None:
        return NONE
    if cell.status != "ok":
        number = reasons.setdefault(cell.reason, len(reasons) + 1)
        return f"{WHY[cell.status]} ({number})"
    leak = cell.leak(metrics[0]) if metrics else None
    if leak is None:
        return CLAIMS if cell.findings else NO_SCORE
    return signed(leak.gain.value, leak.unit) + _face(leak) + ("" if cell.verified else " ?")


def _attacks(attacks: Sequence[AttackView], metrics: Sequence[str], units: Units) -> str:
    heads = [f"mean {metric_name(metric)} gain" for metric in metrics]
    head = ["rank", "attack", "attacker", *heads, "defenses", "strongest on", "control"]
    return _table(head, [_attack(each, metrics, units) for each in attacks])


def _attack(each: AttackView, metrics: Sequence[str], units: Units) -> list[str]:
    rank = each.rank.get(metrics[0])
    return [
        NONE if rank is None else str(rank),
        code(each.attack),
        _text(each.threat_model),
        *(_mean(each.gain.get(metric), units.get(metric, "")) for metric in metrics),
        str(each.cells),
        counted(each.strongest_of, "image"),
        each.control,
    ]


def _mean(number: Number | None, unit: str) -> str:
    text = f"{signed(number.value, unit)} {reach(number.ci, unit, True)}" if number else NONE
    return text.strip()


def _claims(claims: Sequence[ClaimView], units: Units) -> list[str]:
    if not claims:
        return []
    head = ["defense", "attack", "metric", "claimed", "measured here", "source", "note"]
    lines = [_claim(each, units.get(each.metric, "")) for each in claims]
    return ["## What papers claim", _table(head, lines)]


def _claim(each: ClaimView, unit: str) -> list[str]:
    found = each.measured
    measured = f"{plain(found.value, unit)} {reach(found.ci, unit)}" if found else "not measured"
    return [
        code(each.defense),
        code(each.attack) if each.attack else NONE,
        metric_name(each.metric) + _numbers(each),
        as_written(each.claimed),
        measured.strip(),
        _text(each.source),
        _text(each.note),
    ]


def _numbers(each: ClaimView) -> str:
    """From how many images and rounds an accuracy of a curve is."""
    if each.private_size is None:
        return ""
    return f" from {counted(each.private_size, 'image')}, {counted(each.rounds or 1, 'round')}"


def _again(view: BoardView) -> list[str]:
    commands = {
        f"harness matrix --board {view.name}": "run what is missing",
        f"harness leaderboard check {view.name}": "see that these files follow from the records",
        f"harness verify leaderboards/{view.name}": "see what holds; kept answers are judged again",
    }
    width = max(map(len, commands))
    lines = [f"{line:<{width}}  # {what}" for line, what in commands.items()]
    return [
        "## How to get this again",
        "\n".join(["```sh", *lines, "```"]),
        "Every record's own command stands on the page, beside it.",
    ]


def index(views: Sequence[BoardView]) -> str:
    """The README over all boards."""
    head = ["board", "stage", "what it is of", "what was found first", "rows", "records"]
    head += [MISSING, AGAIN, "signed by"]
    lines = [
        [
            f"[{view.name}]({view.name}/README.md)",
            "defined" if view.status == "defined" else view.stage,
            view.title,
            key_findings(view)[0],
            *map(str, (len(view.rows), view.records, view.missing, view.again)),
            view.signer or "unsigned",
        ]
        for view in views
    ]
    blocks = [MADE, "# Boards", _table(head, lines), "The same as [pages](index.html)."]
    return "\n\n".join(blocks) + "\n"
