"""What protection costs in accuracy, on seeds that no learner was developed on.

    python benchmarks/accuracy.py pixels      # singmix on CIFAR-10, 1000 images, every learner
    python benchmarks/accuracy.py vgg16       # singmix on VGG16's features, closed forms
    python benchmarks/accuracy.py gradprune   # p = 0, .9, .99, .999 on a small victim

Learners were developed on seed 0, on which boards stand too. Needs `harness assets fetch fashion
cifar10 lpips-vgg16`. What is stored already is not run again; the features take VGG16 16 to 54 ms
an image on one core, once.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from harness import evaluate
from harness.store.record import RunRecord

Row = tuple[str, RunRecord]

TAUS = ("1", "1e-2", "1e-4", "1e-6")
FRESH = (7, 8, 9)
"""Seeds of splits, weights, partners, noise and learners."""


def trained(defense: str, **options: Any) -> RunRecord:
    return evaluate(defense=defense, only="utility", **options)


def gradprune(threads: int) -> Iterator[Row]:
    small = {"dataset": "fashion", "victim": "lenet5[epochs=5]", "repeats": 3}
    sizes = {"private_size": 5000, "public_size": 1000, "test_size": 10_000}
    for p in ("0", "0.9", "0.99", "0.999"):
        record = trained(f"gradprune[p={p}]", threads=threads, **small, **sizes)
        yield f"gradprune[p={p}]", record


def pixels(threads: int) -> Iterator[Row]:
    """The boards' setting at 1000 images, once."""
    sizes = {"private_size": 1000, "public_size": 5000, "test_size": 10_000}
    asked = {"dataset": "cifar10", "victim": "cnn", "preset": "standard", **sizes}
    for tau in ("1e-2", "1e-4"):
        for seed in FRESH:
            defense = f"singmix[tau={tau}]"
            record = trained(defense, threads=threads, seed=seed, precision="float32", **asked)
            yield f"{defense}, seed {seed}", record


def vgg16(threads: int) -> Iterator[Row]:
    """Features of 96-pixel images, 512 x 3 x 3 values each."""
    features = {"dataset": "cifar10", "space": "vgg16", "victim": "paper-head"}
    asked = {"learner": "closed", "public_size": 5000, "test_size": 4000, "seed": FRESH[0]}
    for n in (1000, 10_000):
        for tau in TAUS:
            defense = f"singmix[tau={tau}]"
            record = trained(defense, private_size=n, threads=threads, **features, **asked)
            yield f"{defense}, {n} images", record


def facts(row: Row) -> dict[str, Any]:
    name, record = row
    assert record.utility is not None, record.error
    means = {way: a.mean for way, a in record.utility.own_first}
    intervals = {way: a.interval for way, a in record.utility.own_first}
    return {
        "defense": name,
        "accuracy": means,
        "interval": intervals,
        "unprotected": record.utility.reference_accuracy,
        "record": record.id,
    }


def line(row: dict[str, Any]) -> str:
    ways = (_way(way, mean, row["interval"][way]) for way, mean in row["accuracy"].items())
    return f"{row['defense']:<28}{row['unprotected']:>12.3f}  " + ", ".join(ways)


def _way(way: str, mean: float, interval: tuple[float, float] | None) -> str:
    reach = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
    return f"{way} {mean:.3f}{reach}"


STUDIES = {"pixels": pixels, "vgg16": vgg16, "gradprune": gradprune}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=sorted(STUDIES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    arguments = parser.parse_args()
    if not arguments.json:
        print(f"{'accuracy':<28}{'unprotected':>12}  by learner, or by way of asking a victim")
    for found in STUDIES[arguments.study](arguments.threads):
        row = facts(found)
        print(json.dumps(row) if arguments.json else line(row), flush=True)
