"""The README's first screen and the results of the open boards, from their records.

    python benchmarks/front.py [--write]

Prints both; with --write puts them between their marks in README.md and docs/results/boards.md. A
test holds that they stand there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.boards.answering import lacking
from harness.boards.cells import cells_of
from harness.boards.folder import BoardFolder
from harness.results.build import board_view
from harness.results.headline import in_short, key_findings
from harness.results.identified import FEWER
from harness.results.material import gathered
from harness.results.numbers import NONE, counted, gained, percent, share, signed
from harness.results.view import BoardView, Identified, Leak, Learned, Number, RowView

ROOT = Path(__file__).parents[1]
PIXELS, FEATURES = "cifar10-v2", "features-v2"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "results" / "boards.md"
GENIE = ROOT / "benchmarks" / "genie.json"
"""What `python benchmarks/genie.py --out` wrote: options, and decibels by where, tau and rounds."""
BEGIN = "<!-- Made by `python benchmarks/front.py --write`: do not edit. -->"
END = "<!-- End of what is made. -->"
METRIC, LINEAR = "snr_db", "lmmse"
NOT_ASKED = "not asked"
"""What stands where no attack that names images has run."""
CURVE = "curve.png"


@dataclass
class Line:
    """One defense, each image released in so many rounds: what leaks, and what is learned.

    `older`: something of its records is older than what is installed.
    """

    defense: str
    rounds: int
    leak: Leak | None = None
    named: Identified | None = None
    learned: dict[int, Learned] = field(default_factory=dict)
    older: bool = False


def main() -> None:
    """Print both texts, or put them where they belong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    for path, text in texts().items():
        if write:
            path.write_text(put(path.read_text(encoding="utf-8"), text), encoding="utf-8")
        else:
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
    return {README: first_screen(pixels, features), PAGE: results(pixels, features)}


def _view(name: str) -> BoardView:
    return board_view(gathered(BoardFolder(ROOT / "leaderboards" / name)))


def put(whole: str, text: str) -> str:
    """A file's text with this between its marks."""
    before, _, rest = whole.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def first_screen(pixels: BoardView, features: BoardView) -> str:
    """Pictures, the table of features, and what the board of pixels found."""
    blocks: list[str] = []
    if any(line.learned for line in lines_of(features)):
        if (ROOT / "leaderboards" / FEATURES / CURVE).is_file():
            blocks.append(
                "![What is learned from CIFAR-10 in ResNet-50's features, over the number of "
                f"private images](leaderboards/{FEATURES}/{CURVE})"
            )
        blocks += [table(features, brief=True), reading(features, brief=True)]
    if any(row.rank for row in pixels.rows):
        blocks += [
            "![Accuracy of the best learner against what the strongest attack gains over guessing: "
            f"CIFAR-10](leaderboards/{PIXELS}/front.png)",
            " ".join(in_short(pixels)),
        ]
    return "\n\n".join([*blocks, *_stages(pixels, features)])


def reading(view: BoardView, *, brief: bool) -> str:
    """How to read the table, as far as it says so itself."""
    judged = " or ".join(dict.fromkeys(_judged(track.protocol) for track in view.tracks))
    genies = [_of_genie(brief)] if view.name == FEATURES and genie() else []
    named = "" if brief else f" What is named in one round is named in all; {NOT_ASKED}: no such "
    return " ".join(
        [
            "Leakage is what `lmmse`, the best linear attack for the stated noise, gains over the "
            f"best guess: dB image by image, the mean over {judged} private images.",
            *genies,
            "Named is how often an attack that holds the private images among as many others puts "
            "a true one first: above chance, images are not safe, whatever decibels say."
            f"{named and named + 'attack has run.'}",
            _of_learners(lines_of(view)),
        ]
    )


def _of_genie(brief: bool) -> str:
    """That its figures are another measure; in full, of what."""
    asked = genie_options()
    opening = "The genie is told every partner of an image, as nobody is: another measure"
    if brief:
        return f"{opening} (pooled, over the mean image, under Gaussian noise) and no ceiling."
    return (
        f"{opening}, and no ceiling. Its squared errors are pooled and held against those of the "
        f"mean image, of {asked['targets']} other images under Gaussian noise, with a Gaussian "
        f"prior; over all values, and in brackets over the first {asked['components']} principal "
        "components of public images."
    )


def _judged(protocol: Mapping[str, str]) -> str:
    """Of how many images leakage is told: `200 of 1000`."""
    private = protocol.get("private_size", "all")
    return f"{protocol.get('targets', private)} of {private}"


def _of_learners(found: Sequence[Line]) -> str:
    """Whose accuracy it is, as far as several tried."""
    points = [point for line in found for point in line.learned.values()]
    sizes = sorted({p.private_size for p in points})
    bare = [n for n in sizes if not any(_network(p) for p in points if p.private_size == n)]
    alone = dict.fromkeys(name for p in points if len(_tried(p)) == 1 for name in _tried(p))
    without = f" (no network at {_numbers(bare)} images)" if bare else ""
    mark = f"; † one learner alone tried: {_names(alone)}" if alone else ""
    return (
        f"Accuracy is the best of several learners', in per cent{without}; * not surely above "
        f"chance: the strongest learner here found nothing{mark}."
    )


def _numbers(sizes: Iterable[int]) -> str:
    *rest, last = (f"{n:,}" for n in sizes)
    return f"{', '.join(rest)} and {last}" if rest else last


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


def lines_of(view: BoardView) -> list[Line]:
    """Every defense and number of rounds of a board, of all its tracks."""
    found: dict[tuple[str, int], Line] = {}
    for track in view.tracks:
        own = int(track.protocol.get("rounds", "1"))
        for row in (row for row in track.rows if row.protected):
            for rounds, points in row.lines.items():
                line = found.setdefault((row.defense, rounds), Line(row.defense, rounds))
                line.learned |= {each.private_size: each for each in points}
                line.leak = line.leak or (_of_linear(row) if rounds == own else None)
                line.named = line.named or (row.identified if rounds == own else None)
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


def _of_linear(row: RowView) -> Leak | None:
    """What the best linear attack gains."""
    return next((each.leak(METRIC) for each in row.cells if each.attack == LINEAR), None)


def table(view: BoardView, *, brief: bool) -> str:
    """A line for each defense and number of rounds, a column for each number of images."""
    lines = lines_of(view)
    sizes = sorted({n for line in lines for n in line.learned})
    told = genie() if view.name == FEATURES else {}
    head = ["defense", "released", "`lmmse`, dB", *(["genie, dB"] if told else []), "named"]
    head += [f"{n:,} images" for n in sizes]
    rows = [
        [
            f"`{line.defense}`{', older' if line.older else ''}",
            "once" if line.rounds == 1 else f"{line.rounds} times",
            _leak(line.leak, brief),
            *([_genie(told, line)] if told else []),
            _named_first(line.named, brief),
            *(_accuracy(line.learned.get(n), brief) for n in sizes),
        ]
        for line in lines
    ]
    # Where fewer learners were tried, the reference is theirs too: the best one stands.
    points = [e for row in view.rows for e in row.curve if e.reference]
    points.sort(key=lambda e: e.reference.value)
    bare = {e.private_size: e.reference for e in points}
    plain = ["unprotected", NONE, NONE, *([NONE] if told else []), NONE]
    rows.append([*plain, *(_share(bare.get(n), brief) for n in sizes)])
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _leak(leak: Leak | None, brief: bool) -> str:
    if leak is None:
        return NONE
    return signed(leak.gain.value, leak.unit) if brief else gained(leak)


def _named_first(found: Identified | None, brief: bool) -> str:
    """How often a true image comes first among candidates, and whose doing that is."""
    if found is None:
        return NOT_ASKED
    told = percent(found.top1.value) if brief else f"{share(found.top1)}, `{found.attack}`"
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
