"""The README's first screen and the results of the open boards, from their records.

    python benchmarks/front.py [--write]

Prints them; with --write puts them between their marks in README.md and, of docs/results, in
boards.md, clusters.md and parties.md. A test holds that they stand there. A sentence of README's
first paragraph is made too, where records bear it out: that a private release teaches more than
heuristics do, and from how many images.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from harness.asking.request import parse_stack
from harness.boards.answering import lacking
from harness.boards.cells import cells_of
from harness.boards.folder import BoardFolder
from harness.results.bracket import bracketed
from harness.results.build import board_view
from harness.results.headline import in_short, key_findings
from harness.results.identified import FEWER
from harness.results.material import gathered
from harness.results.numbers import (
    NONE,
    code,
    counted,
    gained,
    off_scale,
    percent,
    share,
    signed,
)
from harness.results.trust import CERTAIN
from harness.results.view import (
    BoardView,
    Bracket,
    Identified,
    Leak,
    Learned,
    Number,
    RowView,
    TrackView,
)
from harness.store.bounds import Budget

ROOT = Path(__file__).parents[1]
PIXELS, FEATURES = "cifar10-v2", "features-v2"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "results" / "boards.md"
CLUSTERS, PARTIES = (PAGE.with_name(f"{name}.md") for name in ("clusters", "parties"))
GENIE = ROOT / "benchmarks" / "genie.json"
"""What `python benchmarks/genie.py --out` wrote: options, and decibels by where, tau and rounds."""
BEGIN = "<!-- Made by `python benchmarks/front.py --write`: do not edit. -->"
END = "<!-- End of what is made. -->"
FOUND, SO_FAR = "<!-- From records: -->", "<!-- Until here. -->"
"""Around the sentence in README's first paragraph."""
METRIC, LINEAR = "snr_db", "lmmse"
SUMS = "dpmeans"
"""The private release that heuristics are held against."""
HEURISTICS = ("mixup", "instahide", "noise", "singmix")
"""Defenses that prove no budget of what they release, whatever noise they add."""
OF_NOISE = ("noise", "calibrate")
"""Options by which a row is another's twin under normal noise."""
NOT_ASKED = "not asked"
"""What stands where no attack that names images has run."""
CURVE = "curve.png"


@dataclass
class Line:
    """One defense, each image released in so many rounds: what leaks, and what is learned.

    `older`: something of its records is older than what is installed. `attack` is whose `leak` it
    is: the best linear one, or where that does not read such a release the strongest.
    """

    defense: str
    rounds: int
    leak: Leak | None = None
    attack: str = LINEAR
    bracket: Bracket | None = None
    budget: Budget | None = None
    named: Identified | None = None
    learned: dict[int, Learned] = field(default_factory=dict)
    older: bool = False


def main() -> None:
    """Print both texts, or put them where they belong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    for path, whole in (pages() if write else {}).items():
        path.write_text(whole, encoding="utf-8")
    for text in () if write else texts().values():
        print(text, end="\n\n")
    for path, made in pictures().items() if write else ():
        path.write_bytes(made.read_bytes())


def pictures() -> dict[Path, Path]:
    """The page's plots, and what they are copies of: the site shows only what lies below docs."""
    made = {name: ROOT / "leaderboards" / name / CURVE for name in (FEATURES, PIXELS)}
    return {PAGE.parent / f"{name}-{CURVE}": path for name, path in made.items() if path.is_file()}


def texts() -> dict[Path, str]:
    """What stands between the marks of each file."""
    pixels, features = (_view(name) for name in (PIXELS, FEATURES))
    return {
        README: first_screen(pixels, features),
        PAGE: results(pixels, features),
        CLUSTERS: gains(pixels),
        PARTIES: parties(features),
    }


def pages() -> dict[Path, str]:
    """All files, with what stands between their marks."""
    made = {path: put(path.read_text(encoding="utf-8"), text) for path, text in texts().items()}
    sentence = finding(_view(FEATURES))
    made[README] = put(made[README], sentence, FOUND, SO_FAR, " " if sentence else "")
    return made


@cache
def _view(name: str) -> BoardView:
    return board_view(gathered(BoardFolder(ROOT / "leaderboards" / name)))


def put(whole: str, text: str, begin: str = BEGIN, end: str = END, between: str = "\n\n") -> str:
    """A file's text with this between its marks."""
    before, _, rest = whole.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{between}{text}{between}{end}{after}"


def first_screen(pixels: BoardView, features: BoardView) -> str:
    """Pictures, the table of features, and what the board of pixels found."""
    blocks: list[str] = []
    if any(line.learned for line in _brief(lines_of(features))):
        if (ROOT / "leaderboards" / FEATURES / CURVE).is_file():
            blocks.append(
                "![What is learned from CIFAR-10 in ResNet-50's features]"
                f"(leaderboards/{FEATURES}/{CURVE})"
            )
        blocks += [table(features, brief=True), reading(features, brief=True)]
    if any(row.rank for row in pixels.rows):
        blocks += [
            f"![CIFAR-10: accuracy against leakage](leaderboards/{PIXELS}/front.png)",
            " ".join(in_short(pixels)),
        ]
    return "\n\n".join([*blocks, *_stages(pixels, features)])


def reading(view: BoardView, *, brief: bool) -> str:
    """How to read the table, as far as it says so itself."""
    return " ".join(_in_brief(view) if brief else _in_full(view))


def _in_brief(view: BoardView) -> Iterator[str]:
    lines = _brief(lines_of(view))
    others = " (or the attack named)" if _others(lines) else ""
    yield (
        f"`lmmse`: what the best linear attack for the stated noise{others} gains over the best "
        f"guess, mean dB over {_all_judged(view)} images."
    )
    if view.name == FEATURES and genie():
        yield (
            "Genie: told every partner of an image, as nobody is; another "
            "measure (pooled, over the mean image, Gaussian noise) and no ceiling."
        )
    fewer = any(line.named and line.named.fewer_rounds for line in lines)
    yield (
        "Named: how often an attack that holds the private images among as many others puts a true "
        f"one first{', in one of the rounds' * fewer}; above chance, images are not safe, whatever "
        "decibels say."
    )
    yield _of_learners(lines, brief=True)
    yield from _of_age(lines)


def _in_full(view: BoardView) -> Iterator[str]:
    lines = lines_of(view)
    others = "; where it reads no such release, of the attack that is named" * _others(lines)
    yield (
        "Leakage is what `lmmse`, the best linear attack for the stated noise, gains over the best "
        f"guess: dB image by image, the mean over {_all_judged(view)} private images{others}."
    )
    if view.name == FEATURES and genie():
        yield _of_genie()
    yield (
        "Named is how often an attack that holds the private images among as many others puts a "
        "true one first: above chance, images are not safe, whatever decibels say. What is named "
        f"in one round is named in all; {NOT_ASKED}: no such attack has run."
    )
    yield _of_learners(lines, brief=False)
    yield from _of_bounds(lines)


def _all_judged(view: BoardView) -> str:
    return " or ".join(dict.fromkeys(_judged(each.protocol) for each in _alone(view)))


def _others(lines: Iterable[Line]) -> bool:
    """Whether others attack what `lmmse` does not read."""
    return any(line.leak and line.attack != LINEAR for line in lines)


def _of_bounds(lines: Sequence[Line]) -> Iterator[str]:
    """What stands in the columns of what is proven."""
    if any(line.bracket for line in lines):
        yield (
            "Reached … ceiling is pooled SNR: of the attacks that a ceiling bounds, the one that "
            "comes nearest to it, and what no such attack exceeds; in brackets where the ceiling "
            "says nothing."
        )
    if any(line.budget for line in lines):
        yield (
            "ε is of differential privacy, at the δ and for the neighbouring data named there: of "
            "two kinds it does not compare."
        )


def _of_age(lines: Sequence[Line]) -> Iterator[str]:
    """How many rows are older, and which mark tells the fewer ones."""
    older = sum(line.older for line in lines)
    what = "partly of an earlier source, version or options"
    if older == len(lines) > 0:
        yield f"All rows are older: {what}."
    elif 2 * older > len(lines):
        yield f"Rows are older, but for those with ‡: {what}."
    elif older:
        yield f"Rows with ‡ are older: {what}."


def _mark(line: Line, lines: Sequence[Line]) -> str:
    """The mark of `_of_age`: that of whichever are fewer, older rows or the others."""
    older = sum(each.older for each in lines)
    return " ‡" if line.older is not (2 * older > len(lines)) else ""


def _of_genie() -> str:
    """That its figures are another measure, and of what."""
    asked = genie_options()
    return (
        "The genie is told every partner of an image, as nobody is: another measure, and no "
        "ceiling. Its squared errors are pooled and held against those of the mean image, of "
        f"{asked['targets']} other images under Gaussian noise, with a Gaussian prior; over all "
        f"values, and in brackets over the first {asked['components']} principal components of "
        "public images."
    )


def _judged(protocol: Mapping[str, str]) -> str:
    """Of how many images leakage is told: `200 of 1000`."""
    private = protocol.get("private_size", "all")
    return f"{protocol.get('targets', private)} of {private}"


def _of_learners(found: Sequence[Line], *, brief: bool) -> str:
    """Whose accuracy it is, as far as several tried."""
    points = [point for line in found for point in line.learned.values()]
    sizes = sorted({p.private_size for p in points})
    bare = [n for n in sizes if not any(_network(p) for p in points if p.private_size == n)]
    alone = dict.fromkeys(name for p in points if len(_tried(p)) == 1 for name in _tried(p))
    without = f" (no network at {_numbers(bare)}{'' if brief else ' images'})" if bare else ""
    mark = f"; † one learner alone tried: {_names(alone)}" if alone else ""
    chance = "" if brief else ": the strongest learner here found nothing"
    low = f"; * not surely above chance{chance}" if not brief or _at_chance(points) else ""
    unit = "%" if brief else "per cent"
    return f"Accuracy is the best of several learners', in {unit}{without}{low}{mark}."


def _at_chance(points: Iterable[Learned]) -> bool:
    return any(point.at_chance for point in points)


def _numbers(sizes: Iterable[int]) -> str:
    return _and(f"{n:,}" for n in sizes)


def _names(learners: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in learners)


def _tried(point: Learned) -> list[str]:
    """The learners that told an accuracy."""
    return [each.name for each in point.learners if each.accuracy]


def _network(point: Learned) -> bool:
    return any(name.partition("[")[0] == "network" for name in _tried(point))


def results(pixels: BoardView, features: BoardView) -> str:
    """The table with its intervals, and what either board found."""
    blocks: list[str] = []
    for view in (features, pixels):
        blocks += [f"## {view.title}", *_stages(view)]
        if PAGE.parent / f"{view.name}-{CURVE}" in pictures():
            blocks.append(
                f"![{view.title}: what is learned, over the number of private images]"
                f"({view.name}-{CURVE})"
            )
        if lines_of(view):
            blocks += [table(view, brief=False), reading(view, brief=False)]
        if any(row.rank for row in view.rows):
            blocks.append(" ".join(key_findings(view)))
        blocks += _claims(view)
    return "\n\n".join(blocks)


def gains(view: BoardView) -> str:
    """What attacks that cluster gain in several rounds, a column for each, and the linear one's."""
    (track,) = (each for each in view.tracks if "rounds" in each.name)
    rows = [row for row in track.rows if row.protected and row.cells]
    attacks = list(dict.fromkeys(cell.attack for row in rows for cell in row.cells))
    head = ["defense", *(code(attack.partition("[")[0]) for attack in attacks)]
    found = [{cell.attack: cell.leak(METRIC) for cell in row.cells} for row in rows]
    lines = [
        [code(row.defense), *(_gain(leaks.get(attack)) for attack in attacks)]
        for row, leaks in zip(rows, found, strict=True)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def _gain(leak: Leak | None) -> str:
    return gained(leak) if leak else NONE


def parties(view: BoardView) -> str:
    """What leaks of several owners' images, and what is learned of the union."""
    head = ["images of ten parties", "defense", "gain", "learned"]
    lines = [
        [
            code(track.protocol["partition"]),
            code(row.defense),
            _gain(row.cells[0].leak(METRIC)) + f", {code(row.cells[0].attack)}",
            *(_accuracy(point, brief=False) for point in row.curve),
        ]
        for track in view.tracks
        if _of_parties(track)
        for row in track.rows
        if row.protected and row.cells
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def _alone(view: BoardView) -> list[TrackView]:
    """The tracks of one owner."""
    return [track for track in view.tracks if not _of_parties(track)]


def _of_parties(track: TrackView) -> bool:
    return int(track.protocol.get("parties", "1")) > 1


def _stages(*views: BoardView) -> Iterator[str]:
    """How far boards are filled."""
    for view in views:
        to_run = lacking(view.missing, view.again)
        held = f"{counted(view.records, 'record')}{f', {to_run}' if to_run else ''}"
        yield f"`{view.name}` is {view.stage}: {held}."


def _claims(view: BoardView) -> Iterator[str]:
    """What papers say of accuracy, beside ours."""
    for each in view.claims:
        if each.metric == "accuracy" and each.measured:
            images = counted(each.private_size or 0, "image")
            rounds = counted(each.rounds or 1, "round")
            yield (
                f"The paper's {percent(each.claimed)} under `{each.defense}` ({each.note}) stands "
                f"beside {share(each.measured)} here, from {images} in {rounds}."
            )


@dataclass(frozen=True)
class Contest:
    """At so many images: the private release that proves most of those that win, and the others.

    `best` learns most of the heuristics that do not give their images away, `open` are those that
    do and learn no less. None wins unless its accuracy is surely above all of the former.
    """

    images: int
    winner: RowView | None
    best: RowView
    open: tuple[RowView, ...]


def finding(view: BoardView) -> str:
    """Where noisy class sums teach more than heuristics that are released once; "" nowhere.

    A heuristic that teaches more is left out where an attack names nearly all of its images or
    brings them back, and is named then: whoever takes it protects nothing.
    """
    once = [track for track in _alone(view) if track.protocol.get("rounds", "1") == "1"]
    rows = [row for track in once for row in track.rows if row.protected]
    sizes = sorted({each.private_size for row in rows for each in row.lines.get(1, ())})
    held = list(filter(None, (_contest(rows, n) for n in sizes)))
    won = [each for each in held if each.winner]
    if not won:
        return ""
    lost = [each for each in held if not each.winner]
    # Whom the first to win leaves out, all may: with more images none is named less.
    out = {row.defense for row in won[0].open}
    won = [each for each in won if {row.defense for row in each.open} <= out]
    parts = [_won(won[0]), *map(_too, won[1:]), *map(_lost, lost)]
    return f"{'; '.join(parts)}."


def _contest(rows: Iterable[RowView], n: int) -> Contest | None:
    """None where either side has no accuracy from so many images."""
    there = [row for row in rows if _taught(row, n)]
    sums = [row for row in there if row.budget and _names_of(row) == {SUMS}]
    against = [row for row in there if _names_of(row) <= {*HEURISTICS}]
    kept = [row for row in against if not _given_away(row)]
    if not (sums and kept):
        return None
    best = max(kept, key=lambda row: _learned_of(row, n).value)
    most = max(_learned_of(row, n).high for row in kept)
    winners = [row for row in sums if _learned_of(row, n).low > most]
    winner = min(winners, key=lambda row: row.budget.epsilon if row.budget else 0, default=None)
    least = _learned_of(winner, n).low if winner else 0.0
    beyond = [row for row in against if row not in kept and _learned_of(row, n).high >= least]
    return Contest(n, winner, best, tuple(beyond))


def _names_of(row: RowView) -> set[str]:
    return {each.name for each in parse_stack(row.defense)}


def _taught(row: RowView, n: int) -> Number | None:
    """The accuracy from so many images in one round."""
    return next((e.accuracy for e in row.lines.get(1, ()) if e.private_size == n), None)


def _learned_of(row: RowView, n: int) -> Number:
    found = _taught(row, n)
    assert found is not None, "whoever takes part has an accuracy"
    return found


def _given_away(row: RowView) -> bool:
    """Whether an attack names nearly every image among candidates, or brings it back."""
    leak = row.leak(METRIC)
    back = leak is not None and leak.gain.value >= off_scale(leak.unit)
    return back or (row.identified is not None and row.identified.top1.value >= CERTAIN)


def _won(each: Contest) -> str:
    winner, n = each.winner, each.images
    assert winner is not None
    assert winner.budget is not None
    budget = winner.budget
    given = _and(code(row.defense) for row in each.open) if each.open else ""
    but = f" but {given}, whose images are named or brought back" if given else ""
    return (
        f"Noisy class sums (`{SUMS}`) that prove ε = {budget.epsilon:g} (δ = {budget.delta:g}) "
        f"teach {percent(_learned_of(winner, n).value)} from {n:,} images, more than every "
        f"heuristic measured there, released once (at best {_best(each)}){but}"
    )


def _too(each: Contest) -> str:
    budget = each.winner.budget if each.winner else None
    assert budget is not None
    return f"from {each.images:,} too (ε = {budget.epsilon:g})"


def _lost(each: Contest) -> str:
    return f"from {each.images:,} not (at best {_best(each)})"


def _best(each: Contest) -> str:
    return f"{code(each.best.defense)}, {percent(_learned_of(each.best, each.images).value)}"


def _and(names: Iterable[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last


def lines_of(view: BoardView) -> list[Line]:
    """Every defense and number of rounds of a board, of all its tracks of one owner."""
    found: dict[tuple[str, int], Line] = {}
    for track in _alone(view):
        own = int(track.protocol.get("rounds", "1"))
        for row in (row for row in track.rows if row.protected):
            for rounds, points in row.lines.items():
                line = found.setdefault((row.defense, rounds), Line(row.defense, rounds))
                line.learned |= {each.private_size: each for each in points}
                if rounds == own:
                    _add(line, row)
                line.older = line.older or bool(row.older)
    names = _named(view.name) if found else []
    ordered = sorted(found.values(), key=lambda line: (names.index(line.defense), line.rounds))
    for line in ordered:
        line.named = line.named or _in_fewer(line, ordered)
    return ordered


def _in_fewer(line: Line, every: Iterable[Line]) -> Identified | None:
    """What was named of the same defense in fewer rounds, which these rounds contain."""
    for each in every:
        if each.named and each.defense == line.defense and each.rounds < line.rounds:
            rounds = each.named.fewer_rounds or each.rounds
            return each.named.model_copy(update={"fewer_rounds": rounds})
    return None


def _named(board: str) -> list[str]:
    """A board's defenses in its file's order."""
    cells = cells_of(BoardFolder(ROOT / "leaderboards" / board).board)
    return [*dict.fromkeys(cell.request.defense for cell in cells)]


def _add(line: Line, row: RowView) -> None:
    """What leaks of a row, as far as it is not known yet."""
    if line.leak is None:
        cell = next((each for each in row.cells if each.attack == LINEAR), None)
        line.leak = cell.leak(METRIC) if cell else row.leak(METRIC)
        line.attack = LINEAR if cell else (line.leak.strongest if line.leak else "")
    line.named = line.named or row.identified
    line.bracket = line.bracket or row.bracket
    line.budget = line.budget or row.budget


def _brief(lines: Sequence[Line]) -> list[Line]:
    """Those for a page with little room, which say most.

    Without twins under normal noise, which learn as much, and without those of accuracy alone where
    the same defense has others that were attacked.
    """
    attacked = {line.defense for line in lines if line.leak}
    lines = [line for line in lines if line.leak or line.defense not in attacked]
    kinds = [_without_noise(line.defense) for line in lines]
    first = {
        kind: line.defense for kind, line in zip(kinds, lines, strict=True) if not _normal(line)
    }
    return [
        line
        for kind, line in zip(kinds, lines, strict=True)
        if not _normal(line) or kind not in first
    ]


def _normal(line: Line) -> bool:
    """Whether a row is that of normal noise where its defense has another of its own."""
    return any("noise" in each.options for each in parse_stack(line.defense))


def _without_noise(defense: str) -> str:
    """A stack but for what kind of noise it adds: the same for twins."""
    stack = parse_stack(defense)
    kept = [{n: v for n, v in each.options.items() if n not in OF_NOISE} for each in stack]
    return repr([(each.name, own) for each, own in zip(stack, kept, strict=True)])


def table(view: BoardView, *, brief: bool) -> str:
    """A line for each defense and number of rounds, a column for each number of images."""
    lines = _brief(lines_of(view)) if brief else lines_of(view)
    sizes = sorted({n for line in lines for n in line.learned})
    told = genie() if view.name == FEATURES else {}
    bounded, spent = (
        not brief and any(getattr(line, name) for line in lines) for name in ("bracket", "budget")
    )
    head = ["defense", "released", "`lmmse`, dB", *(["genie, dB"] if told else []), "named"]
    head += [*(["reached … ceiling, dB"] if bounded else []), *(["ε"] if spent else [])]
    between = len(head)
    head += [f"{n:,} images" for n in sizes]
    rows = [
        [
            f"`{line.defense}`{_mark(line, lines) if brief else ', older' if line.older else ''}",
            "once" if line.rounds == 1 else f"{line.rounds} times",
            _leak(line, brief),
            *([_genie(told, line)] if told else []),
            _named_first(line.named, brief),
            *([bracketed(line.bracket) if line.bracket else NONE] if bounded else []),
            *([_spent(line.budget)] if spent else []),
            *(_accuracy(line.learned.get(n), brief) for n in sizes),
        ]
        for line in lines
    ]
    # Where fewer learners were tried, the reference is theirs too: the best one stands.
    points = [e for each in _alone(view) for row in each.rows for e in row.curve if e.reference]
    points.sort(key=lambda e: e.reference.value)
    bare = {e.private_size: e.reference for e in points}
    plain = ["unprotected", *[NONE] * (between - 1)]
    rows.append([*plain, *(_share(bare.get(n), brief) for n in sizes)])
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _spent(budget: Budget | None) -> str:
    """`2 (δ = 1e-05, replace one image by another of its class)`."""
    if budget is None:
        return NONE
    return f"{budget.epsilon:.3g} (δ = {budget.delta:g}, {budget.adjacency})"


def _leak(line: Line, brief: bool) -> str:
    """What its attack gains; of another than the column's with its name."""
    leak = line.leak
    if leak is None:
        return NONE
    told = signed(leak.gain.value, leak.unit) if brief else gained(leak)
    return told if line.attack == LINEAR else f"{told}, {code(line.attack)}"


def _named_first(found: Identified | None, brief: bool) -> str:
    """How often a true image comes first among candidates, and whose doing that is."""
    if found is None:
        return NOT_ASKED
    if brief:
        return percent(found.top1.value)
    told = f"{share(found.top1)}, `{found.attack}`"
    return told if found.fewer_rounds is None else f"{told}, {FEWER}"


def _accuracy(found: Learned | None, brief: bool) -> str:
    if found is None or found.accuracy is None:
        return NONE
    by = "" if brief or not found.learner else f", `{found.learner}`"
    marks = ("*" if found.at_chance else "") + ("†" if len(_tried(found)) == 1 else "")
    return _share(found.accuracy, brief) + marks + by


def _share(number: Number | None, brief: bool) -> str:
    if number is None:
        return NONE
    return f"{100 * number.value:.1f}" if brief else share(number)


Genie = dict[str, dict[str, dict[str, float]]]


def genie() -> Genie:
    """Decibels by where they are counted, by tau and by rounds; none where nobody ran it."""
    return {name: part for name, part in _told().items() if name != "options"}


def genie_options() -> dict[str, Any]:
    """What the genie was asked; nothing where nobody ran it."""
    found: dict[str, Any] = _told().get("options", {})
    return found


def _told() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GENIE.read_bytes()) if GENIE.exists() else {}
    return found


def _genie(told: Genie, line: Line) -> str:
    """Of singularized mixup as it is, and of nothing else."""
    _, opened, inside = line.defense.partition("singmix[tau=")
    tau = inside.removesuffix("]") if opened else ""
    try:
        whole, first = (each[f"{float(tau):g}"][str(line.rounds)] for each in told.values())
    except (ValueError, KeyError):
        return NONE
    return f"{whole:.1f} ({first:.1f})"


if __name__ == "__main__":
    main()
