"""What several parties learn together from encodings, and each of them alone from its own images.

    python benchmarks/parties.py --out benchmarks/parties.json
    python benchmarks/parties.py --parties 10 --partition iid --out benchmarks/parties.json
    python benchmarks/parties.py --table --out benchmarks/parties.json

CIFAR-10 in pooled ResNet-50 features (2048 values), 45 000 private images dealt out to 10, 20 and
30 parties. `local`: each learns alone from its own images, unprotected; the mean and the spread
over parties, and party 0, which is all that the paper's Table 4 has. The others learn from what all
parties release: `none` is all images in one place, unprotected. Learners are closed forms:
`classmeans`, and `ridge` where encodings come in one round; of noisy sums `noisymeans`. The better
on half of the test images is reported on the other half, as in records.

What is measured is written at once, and not measured again. Where the maps of `resnet50` lie in the
cache, they are averaged, and no image goes through the network again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.api import Classifier, Lesson, Samples, Splits
from harness.api.plugins import silent
from harness.asking.plan import plan, resolved
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.rng import public_stream
from harness.running.joining import JoinedSource
from harness.running.load import LoadStage
from harness.running.rounds import Rounds
from harness.running.run import Run, settle
from harness.running.samples import Space, features_key, standardised
from harness.running.workplace import law_of
from harness.sandbox.jobs import encoder, statistics
from harness.sandbox.lessons import NoEncodings, not_encoded
from harness.store.artifacts import Store, below
from harness.store.features import FeatureStore, content_names, intact
from harness.store.provenance import code_state
from harness_plugins.learners import components
from harness_plugins.learners.classmeans import learner as classmeans_learner
from harness_plugins.learners.ridge import learner as ridge_learner
from harness_plugins.spaces.pooled.averaging import pooled

PARTIES = (10, 20, 30)
PARTITIONS = ("iid", "dirichlet[alpha=0.1]", "shards[classes=2]", "dirichlet[alpha=1]")
RELEASES: tuple[tuple[str, int], ...] = (
    ("none", 1),
    ("mixup", 1),
    ("dpmeans[epsilon=2]", 1),
    ("singmix[tau=1]", 1),
    ("singmix[tau=1e-2]", 1),
    ("singmix[tau=1e-2]", 20),
    ("singmix[tau=1e-4]", 1),
    ("singmix[tau=1e-4]", 20),
    ("singmix[tau=1]", 20),
)
"""Defense and rounds."""
LOCAL = "local"
MAPS = "resnet50"


@dataclass(frozen=True)
class Asked:
    """What test images are, in two halves: one to choose a learner by, one to report on."""

    images: Tensor
    labels: Tensor
    halves: tuple[Tensor, Tensor]

    def shares(self, learned: Classifier) -> tuple[float, float]:
        """How often a classifier is right on each half."""
        with torch.no_grad():
            found = torch.cat([learned.logits(part) for part in self.images.split(512)]).argmax(1)
        right = (found == self.labels).double()
        return float(right[self.halves[0]].mean()), float(right[self.halves[1]].mean())


def main() -> None:
    """Measure what is missing, a line each."""
    options = _options()
    found = _found(options.out)
    if options.table:
        print("\n".join(table(found["rows"])))
        return
    torch.set_num_threads(options.threads)
    _find_components_once()
    for partition in options.partition:
        for parties in options.parties:
            _measure(options, parties, partition, found)


def _find_components_once() -> None:
    """All learners look at the same public images: their components are found once, not each time.

    That is most of what a party's own learning would take, and there are thirty.
    """
    found: dict[tuple[int, float], components.Components] = {}
    plainly = components.components_of

    def remembered(rows: Tensor, most: int) -> components.Components:
        key = most, float(rows.double().sum())
        if key not in found:
            found[key] = plainly(rows, most)
        return found[key]

    for module in (classmeans_learner, ridge_learner):
        module.components_of = remembered  # type: ignore[attr-defined]


COLUMNS = (
    ("alone", LOCAL, 1),
    ("in one place", "none", 1),
    ("`mixup`", "mixup", 1),
    ("`dpmeans`, ε = 2", "dpmeans[epsilon=2]", 1),
    ("τ = 1", "singmix[tau=1]", 1),
    ("10⁻²", "singmix[tau=1e-2]", 1),
    ("10⁻⁴", "singmix[tau=1e-4]", 1),
    ("τ = 1, T = 20", "singmix[tau=1]", 20),
    ("10⁻², T = 20", "singmix[tau=1e-2]", 20),
    ("10⁻⁴, T = 20", "singmix[tau=1e-4]", 20),
)
"""Title, defense and rounds."""


def table(rows: list[dict[str, Any]]) -> list[str]:
    """What was measured, as a Markdown table: a line for each partition, dashes for the rest."""
    by_cell = {(r["partition"], r["parties"], r["defense"], r["rounds"]): r for r in rows}
    lines = ["| parties | partition | " + " | ".join(title for title, *_ in COLUMNS) + " |"]
    lines.append("|---" * (2 + len(COLUMNS)) + "|")
    for partition in PARTITIONS:
        for parties in PARTIES:
            cells = [by_cell.get((partition, parties, *asked)) for _, *asked in COLUMNS]
            if any(cells):
                shown = " | ".join(map(_shown, cells))
                lines.append(f"| {parties} | `{partition}` | {shown} |")
    return lines


def _shown(row: dict[str, Any] | None) -> str:
    """An accuracy in per cent; of parties alone with the deviation between them."""
    if row is None:
        return "–"
    spread = f" ± {100 * row['deviation']:.1f}" if "deviation" in row else ""
    return f"{100 * row['accuracy']:.1f}{spread}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Several parties, closed learners.")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--space", default="resnet50-pooled")
    parser.add_argument("--parties", type=int, nargs="+", default=list(PARTIES))
    parser.add_argument("--partition", nargs="+", default=list(PARTITIONS))
    parser.add_argument("--rounds", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--private", type=int, default=45_000)
    parser.add_argument("--public", type=int, default=5000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print what is there as Markdown")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/parties.json"))
    return parser.parse_args()


def _found(path: Path) -> dict[str, Any]:
    """What was measured before."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}


def _measure(
    options: argparse.Namespace, parties: int, partition: str, found: dict[str, Any]
) -> None:
    """All that is missing of one partition."""
    wanted = [each for each in [(LOCAL, 1), *RELEASES] if each[1] in options.rounds]
    done = {
        (row["parties"], row["partition"], row["defense"], row["rounds"]) for row in found["rows"]
    }
    missing = [each for each in wanted if (parties, partition, *each) not in done]
    splits: Splits | None = None
    for defense, rounds in missing:
        run = run_of(options, parties, partition, "none" if defense == LOCAL else defense, rounds)
        if splits is None:
            average_maps(options, run)
            splits = run.splits
        run.give(Space.of(run.cell), splits)
        started = time.perf_counter()
        told = _local(run) if defense == LOCAL else _union(run)
        row = {"parties": parties, "partition": partition, "defense": defense, "rounds": rounds}
        row |= {**told, "seconds": round(time.perf_counter() - started, 1)}
        found["rows"].append(row)
        found["options"] = {
            name: getattr(options, name)
            for name in ("dataset", "space", "private", "public", "test", "seed")
        }
        found["code"] = code_state()
        text = ",\n".join(json.dumps(each) for each in found["rows"])
        head = json.dumps({k: v for k, v in found.items() if k != "rows"})[:-1]
        options.out.write_text(f'{head}, "rows": [\n{text}\n]}}\n', encoding="utf-8")
        print(json.dumps(row), flush=True)


def run_of(
    options: argparse.Namespace, parties: int, partition: str, defense: str, rounds: int
) -> Run:
    """The run of a cell of several parties; `options` are this program's."""
    return Run.open(
        {
            "defense": defense,
            "rounds": rounds,
            "parties": parties,
            "partition": partition,
            "dataset": options.dataset,
            "space": options.space,
            "private_size": options.private,
            "public_size": options.public,
            "test_size": options.test,
            "seed": options.seed,
            "only": "utility",
            "learner": "closed",
            "threads": options.threads,
        }
    )


def average_maps(options: argparse.Namespace, run: Run) -> None:
    """Put the pooled features of images into the store whose maps lie there already."""
    if options.space != "resnet50-pooled":
        return
    asked = make_request(**{**run.cell.request.model_dump(), "space": MAPS})
    images = torch.cat([part.images for part in _parts(run(LoadStage.of(run.cell)))])
    shape, store = tuple(images.shape[1:]), Store(run.store.root)
    known = settle(plan(asked, registry()), run.store.root)
    maps = FeatureStore(store, features_key(known), shape).folder
    if not maps.exists():
        return
    where, rows = intact(maps), np.memmap(maps / "rows", np.float16, "r")
    kept = (maps / "shape").read_text(encoding="utf-8").split()[1]
    rows = rows.reshape(-1, *map(int, kept.split("x")))

    def extract(batch: Tensor) -> Tensor:
        found = np.stack([rows[where[name]] for name in content_names(batch)])
        return pooled(torch.from_numpy(found))

    FeatureStore(store, features_key(run.cell), shape).obtain(images, extract)


def _parts(splits: Splits) -> tuple[Samples, Samples, Samples]:
    return splits.private, splits.public, splits.test


def _asked(run: Run) -> Asked:
    test = standardised(run.splits.test, run.splits.scale)
    order = public_stream(run.cell.request.seed).stream(what="halves").permutation(len(test))
    half = len(test) // 2
    return Asked(test.images, test.labels, (order[:half], order[half:]))


def _union(run: Run) -> dict[str, Any]:
    """What is learned from all that the parties release, and how much that is for each."""
    if run.cell.sums:
        lesson, learners, numbers = _sums_lesson(run), ["noisymeans"], _numbers_of_sums(run)
    else:
        source = run(Rounds.of(run.cell))
        assert isinstance(source, JoinedSource)
        once = run.cell.request.rounds == 1
        lesson, learners = _lesson(run, source), ["classmeans", *(["ridge"] if once else [])]
        values = int(np.prod(source.shape)) + len(run.splits.classes)
        numbers = source.rounds * source.rows * values / len(source.parties)
    shares = {name: _learned(run, lesson, name) for name in learners}
    best = max(shares, key=lambda name: shares[name][0])
    return {
        "accuracy": round(shares[best][1], 4),
        "learner": best,
        "accuracies": {name: round(both[1], 4) for name, both in shares.items()},
        "megabytes_per_party": round(numbers * 4 / 1e6, 3),
    }


def _numbers_of_sums(run: Run) -> float:
    sums = run.release.tensors["statistics.sums"]
    return float(sums.numel() + len(sums))


def _local(run: Run) -> dict[str, Any]:
    """Every party alone, with its own images as they are, by one learner for all of them."""
    source = run(Rounds.of(run.cell))
    assert isinstance(source, JoinedSource)
    found = {name: [] for name in ("classmeans", "ridge")}
    for party in source.parties:
        lesson = _lesson(run, party)
        for name, shares in found.items():
            shares.append(_learned(run, lesson, name))
    best = max(found, key=lambda name: sum(validation for validation, _ in found[name]))
    alone = [round(reported, 4) for _, reported in found[best]]
    return {
        "accuracy": round(float(np.mean(alone)), 4),
        "deviation": round(float(np.std(alone, ddof=1)), 4),
        "learner": best,
        "party_0": alone[0],
        "by_party": alone,
        "images": [party.rows for party in source.parties],
    }


def _learned(run: Run, lesson: Lesson, name: str) -> tuple[float, float]:
    """A learner's shares on both halves of the test images."""
    learner = resolved("learners", name, "standard", run.registry)
    torch.manual_seed(0)
    built = run.build("learners", learner.spec, learner.config)
    return _asked(run).shares(built.learn(lesson, run.budget, silent))


def _lesson(run: Run, source: Any) -> Lesson:
    """What a server has of a release: as a learner's process would be handed it."""
    encoding = run.cell.encoding
    law = law_of(encoding, source.resolved) if encoding else None
    return Lesson(release=source, law=encoder(law, len(run.splits.classes)), **_common(run))


def _sums_lesson(run: Run) -> Lesson:
    sums = run.cell.sums
    assert sums
    tensors = below("statistics.", run.release.tensors)
    read = statistics(law_of(sums, {}), tensors)
    law = type(encoder(None, 1))(sums.name, sums.config, not_encoded)
    return Lesson(release=NoEncodings(), law=law, statistics=read, **_common(run))


def _common(run: Run) -> Mapping[str, Any]:
    splits, victim = run.splits, run.cell.victim
    public = standardised(splits.public, splits.scale)
    return {
        "public": Samples(public.images, torch.zeros_like(public.labels)),
        "scale": splits.scale,
        "shape": splits.shape,
        "classes": len(splits.classes),
        "device": run.device,
        "rng": public_stream(run.cell.request.seed).stream(stage="learn"),
        "victim": run.build("victims", victim.spec, victim.config),
    }


if __name__ == "__main__":
    main()
