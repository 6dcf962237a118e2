"""How often a gain is shown where a release holds nothing, and found where it holds .5 dB.

    python benchmarks/nulls.py [--repetitions 200] [--datasets fashion cifar10] [--out FILE]

Each repetition draws private, public and test images of its own, and lets twelve blind attacks
answer, who know public images and the private ones' labels: six name their targets, six leave them
to the judge. They return what attacks return that fail: means, medians and centroids of public
images, some of a smaller pool than the judge's, public images as they are, and what a generator
makes of a class. The judge's own code judges them, and a board's own code makes rows of them, whose
score is that of the strongest attack on each image: of those that name targets, of those that do
not, and of all. Then a gain is planted: the answers of one attack move towards the truth until the
row's mean SNR is .5 dB higher.

A line says in how many repetitions the interval of the gain lies above zero. From nothing, 5 % may;
of planted gains, 90 % are to be found: the exit code is 1 where a row's share is beyond that, and
with fewer repetitions than 200 chance alone may be why. Attacks alone are shown too, each against
its own best null; there a planted gain is harder to find, for it is held against a single guess.

Needs `harness assets fetch fashion cifar10`. 200 repetitions of both take fifteen minutes on one
core. `--out benchmarks/nulls.json` keeps what the table in docs/results/nulls.md is made of.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from harness.api import AssetFolder, Collection, Reconstruction, Scene, Splits
from harness.asking.registry import registry
from harness.assets.lookup import folder
from harness.results.strongest import Worst, intervals, worst_of
from harness.rng import KeyedStream, board_key
from harness.running.load import SplitSizes, load
from harness.scoring.codebook import centroids
from harness.scoring.judgement import Help, Judge, Judgement, NullScores
from harness.scoring.summary import OTHERS, ByImage, Interval, by_image, proportion_interval
from harness.store.paths import cache_root

CPU = torch.device("cpu")
SIZES = SplitSizes(private=100, public=4000, test=1000)
GAIN = 0.5
"""What is planted, in dB."""
FARTHEST, STEPS = 0.6, 8
"""The largest share of the way to the truth, and how often what may do is halved: a gain is planted
to two hundredths of a dB."""
FALSE, FOUND = 0.05, 0.9
"""At most so often may nothing gain, and at least so often are planted gains found."""

Blind = Callable[[Tensor, int, KeyedStream], Tensor]
"""From the public images of a class [m, c, h, w] in [0,1], and the number of its private ones."""


def drawn(pool: Tensor, count: int, stream: KeyedStream) -> Tensor:
    """Public images as they are."""
    return pool[stream.integers(len(pool), count)]


def averaged(pool: Tensor, count: int, stream: KeyedStream) -> Tensor:
    """Means of ten public images."""
    return pool[stream.integers(len(pool), count, 10)].mean(1)


def middle(pool: Tensor, count: int, _: KeyedStream) -> Tensor:
    return pool.median(0).values.expand(count, *pool.shape[1:])


def mean(pool: Tensor, count: int, _: KeyedStream) -> Tensor:
    return pool.mean(0).expand(count, *pool.shape[1:])


def own_centroids(pool: Tensor, count: int, stream: KeyedStream) -> Tensor:
    """The codebook of an attacker who has half of the images."""
    half = pool[stream.permutation(len(pool))[: -(-len(pool) // 2)]]
    found = centroids(half, count, stream)
    return found[torch.arange(count) % len(found)]


def shrunk(pool: Tensor, count: int, stream: KeyedStream) -> Tensor:
    """Centroids a fifth of the way to the mean: nearer to most images than centroids are."""
    return 0.8 * own_centroids(pool, count, stream) + 0.2 * pool.mean(0)


def generated(pool: Tensor, count: int, stream: KeyedStream) -> Tensor:
    """Samples of a Gaussian in ten principal components, drawn in by half."""
    flat = pool.flatten(1)
    centred = flat - flat.mean(0)
    _, vectors = torch.linalg.eigh(centred @ centred.T)
    components = vectors[:, -10:].T @ centred / len(flat) ** 0.5
    draws = stream.normal(count, len(components))
    return (flat.mean(0) + 0.5 * draws @ components).view(count, *pool.shape[1:])


NAMING, UNNAMED, ALL = "naming", "unnamed", "all"
BLIND: Mapping[str, tuple[Blind, ...]] = {
    NAMING: (mean, middle, averaged, drawn, generated, own_centroids),
    UNNAMED: (middle, averaged, drawn, generated, own_centroids, shrunk),
}


@dataclass(frozen=True)
class Scenery:
    """One repetition: the judge, and what his nulls score where he is asked to match or not."""

    judge: Judge
    plain: NullScores
    helped: NullScores

    @classmethod
    def of(cls, splits: Splits, stream: KeyedStream) -> Scenery:
        """The judge of all private images, by SNR alone."""
        targets = len(splits.private)
        decoys, labels = splits.test[:targets].unit().images, splits.private.labels
        scene = Scene(
            splits.scale, CPU, AssetFolder({}), decoys, splits.public, labels, len(splits.classes)
        )
        known = registry()
        spec = known.spec("metrics", "snr_db")
        metric = known.build("metrics", "snr_db", scene)
        judge = Judge(splits, targets, {"snr_db": (spec, metric)}, stream.stream(of="judge"), CPU)
        plain = judge.score_nulls()
        return cls(judge, plain, judge.score_nulls(Help(targets)))

    def judged(self, images: Tensor, named: bool) -> Judgement:
        """`images` [n, c, h, w] in [0,1]; named, or in an order of no meaning."""
        n, scale = len(images), self.judge.truth.scale
        targets = torch.arange(n) if named else None
        answer = Reconstruction(images=scale.standardise(images), targets=targets)
        return self.judge.judge(answer, nulls=self.plain if named else self.helped)


def answer(blind: Blind, splits: Splits, stream: KeyedStream) -> Tensor:
    """[n, c, h, w] in [0,1] from public images and labels alone."""
    public, labels = splits.public, splits.private.labels
    found = torch.empty(len(labels), *splits.shape)
    for label in sorted(set(labels.tolist())):
        own = (labels == label).nonzero().flatten()
        pool = public.images[public.labels == label]
        found[own] = blind(pool, len(own), stream.stream(label=label))
    return found


def columns(found: Judgement) -> ByImage:
    """As a record keeps them."""
    told = (found.per_image, found.guesses, found.misplaced, found.easier)
    lists = ({name: each.flatten().tolist() for name, each in part.items()} for part in told)
    return by_image(found.privacy, *lists)["snr_db"]


Row = Mapping[str, ByImage]
"""What records keep of a row's attacks, by their names."""


def row_of(found: Row) -> Worst:
    """What a board makes of these attacks."""
    return worst_of(list(found.items()))


def mean_of(found: Row) -> float:
    """The mean score of the strongest attack on each image."""
    return float(row_of(found).best.mean())


def shown(row: Worst) -> bool:
    """Whether the interval of a row's gain lies above zero."""
    _, gain = intervals([{0: {"snr_db": row}}])[row]
    return gain is not None and gain[0] > 0


def shown_alone(found: Judgement) -> bool:
    """Likewise of an attack alone."""
    gain = found.privacy["snr_db"].gain_ci
    return gain is not None and gain[0] > 0


def over_guess(found: Judgement) -> float:
    """By how many dB an attack is above the best guess."""
    score = found.privacy["snr_db"]
    guesses = [value for name, value in score.nulls.items() if name != OTHERS]
    return (score.mean or 0) - max(guesses)


def planted(
    scenery: Scenery, found: Judgement, named: bool, gain: Callable[[Judgement], float]
) -> Judgement:
    """The answers of an attack moved towards the truth until the `gain` is `GAIN`."""
    truth, low, high = scenery.judge.truth.private.unit().images, 0.0, FARTHEST
    for _ in range(STEPS):
        share = (low + high) / 2
        moved = scenery.judged(found.images + share * (truth - found.images), named)
        low, high = (share, high) if gain(moved) < GAIN else (low, share)
    return moved


def rows_of_nothing(scenery: Scenery, stream: KeyedStream) -> dict[str, dict[str, Judgement]]:
    """By kind of row, its attacks."""
    found: dict[str, dict[str, Judgement]] = {}
    for kind, attacks in BLIND.items():
        found[kind] = {}
        for blind in attacks:
            drawn_by = stream.stream(attack=blind.__name__, kind=kind)
            images = answer(blind, scenery.judge.truth, drawn_by)
            found[kind][f"{kind} {blind.__name__}"] = scenery.judged(images, kind == NAMING)
    return {**found, ALL: {name: each for row in found.values() for name, each in row.items()}}


def repetition(collection: Collection, sizes: SplitSizes, stream: KeyedStream) -> dict[str, bool]:
    """By what there is to find, and in which row, whether a gain was shown."""
    splits = load(collection, None, sizes, stream.stream(of="splits"))
    splits = replace(splits, public=splits.public.unit())
    scenery = Scenery.of(splits, stream)
    judged = rows_of_nothing(scenery, stream)
    kept = {name: columns(each) for name, each in judged[ALL].items()}
    rows: dict[str, Row] = {kind: {n: kept[n] for n in row} for kind, row in judged.items()}
    found = {f"nothing, row {kind}": shown(row_of(row)) for kind, row in rows.items()}
    found |= {f"nothing, alone {n}": shown_alone(each) for n, each in judged[ALL].items()}
    for kind, named in ((NAMING, True), (UNNAMED, False)):
        name = f"{kind} {generated.__name__}"
        alone = planted(scenery, judged[ALL][name], named, over_guess)
        found[f"planted, alone {name}"] = shown_alone(alone)
        for of in (kind, ALL):

            def above(moved: Judgement, row: Row = rows[of], who: str = name) -> float:
                return mean_of({**row, who: columns(moved)}) - mean_of(row)

            moved = planted(scenery, judged[ALL][name], named, above)
            end = row_of({**rows[of], name: columns(moved)})
            found[f"planted in {name}, row {of}"] = shown(end)
    return found


@dataclass(frozen=True)
class Share:
    """In how many repetitions a gain was shown."""

    dataset: str
    what: str
    hits: int
    repetitions: int

    @property
    def interval(self) -> Interval:
        """Wilson's."""
        return proportion_interval(self.hits, self.repetitions) or (0.0, 1.0)

    @property
    def held(self) -> bool:
        """Whether a row may be as it should; attacks alone are for information."""
        share = self.hits / self.repetitions
        nothing = self.what.startswith("nothing")
        return "alone" in self.what or (share <= FALSE if nothing else share >= FOUND)

    @property
    def percent(self) -> str:
        """With its interval."""
        low, high = self.interval
        return f"{self.hits / self.repetitions:.1%} ({low:.1%} to {high:.1%})"

    @property
    def line(self) -> str:
        """For people."""
        return f"{self.dataset:<14}{self.what:<48}{self.percent}"


ROWS = {
    f"nothing, row {NAMING}": "nothing, six attacks that name their targets",
    f"nothing, row {UNNAMED}": "nothing, six that do not",
    f"nothing, row {ALL}": "nothing, all twelve",
    f"planted in {NAMING} generated, row {NAMING}": "0.5 dB by one that names its targets, of six",
    f"planted in {UNNAMED} generated, row {UNNAMED}": "0.5 dB by one that does not, of six",
    f"planted in {NAMING} generated, row {ALL}": "0.5 dB by one that names them, of all twelve",
    f"planted in {UNNAMED} generated, row {ALL}": "0.5 dB by one that does not, of all twelve",
}
"""What the table has a line for, in its words."""


def table(found: list[Share]) -> str:
    """Rows' shares of repetitions in per cent, a column for each dataset."""
    datasets = list(dict.fromkeys(share.dataset for share in found))
    by = {(share.what, share.dataset): share for share in found}
    lines = [
        f"| what there is to find | {' | '.join(datasets)} |",
        "|---" * (1 + len(datasets)) + "|",
    ]
    for what, words in ROWS.items():
        shown = (by[what, dataset].percent for dataset in datasets)
        lines.append(f"| {words} | {' | '.join(shown)} |")
    return "\n".join(lines)


def shares(
    name: str, collection: Collection, sizes: SplitSizes, repetitions: int
) -> Iterator[Share]:
    """Of so many repetitions, what was shown how often."""
    hits: Counter[str] = Counter()
    for i in range(repetitions):
        stream = KeyedStream(board_key(i)).stream(of="nulls", dataset=name)
        hits.update({k: int(v) for k, v in repetition(collection, sizes, stream).items()})
        print(f"\r{name}: {i + 1} of {repetitions}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    yield from (Share(name, what, count, repetitions) for what, count in hits.items())


def collection_of(name: str) -> Collection:
    """All images of a dataset that was fetched."""
    known = registry()
    spec = known.spec("datasets", name)
    dataset = known.build("datasets", name, spec.config())
    found: Collection = dataset.load(folder(spec.assets, cache_root()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--datasets", nargs="+", default=["fashion", "cifar10"])
    parser.add_argument("--json", action="store_true", help="one line of JSON a row")
    parser.add_argument("--out", type=Path, help="where to keep all rows")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    held, kept = True, []
    for name in asked.datasets:
        for share in shares(name, collection_of(name), SIZES, asked.repetitions):
            held &= share.held
            kept.append(asdict(share))
            values = {**asdict(share), "interval": share.interval, "held": share.held}
            print(json.dumps(values) if asked.json else share.line, flush=True)
    if asked.out:
        lines = ",\n".join(f" {json.dumps(each)}" for each in kept)
        asked.out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
