"""What each protection costs in accuracy, beside what its paper or its theory says.

    python benchmarks/accuracy.py instahide   # inside, k=4, on Fashion-MNIST, three trainings
    python benchmarks/accuracy.py gradprune   # p = 0, .9, .99, .999 on a small victim
    python benchmarks/accuracy.py singmix     # on VGG16 features of CIFAR-10, one release

Needs `harness assets fetch fashion cifar10 lpips-vgg16`. What is stored already is not run again;
the features take VGG16 16 to 54 ms an image on one core, once.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from harness import evaluate
from harness.store.record import RunRecord

Row = tuple[str, RunRecord]

TAUS = ("1e0", "1e-2", "1e-4", "1e-6")


def trained(defense: str, **options: Any) -> RunRecord:
    return evaluate(defense=defense, only="utility", **options)


def instahide(threads: int) -> Iterator[Row]:
    """One release of each image, and ten, of which each epoch reads the next."""
    fashion = {"dataset": "fashion", "victim": "cnn", "preset": "standard", "repeats": 3}
    sizes = {"private_size": 5000, "public_size": 1000, "test_size": 10_000}
    for rounds in (1, 10):
        for defense in ("mixup[k=4]", "instahide[k=1]", "instahide[k=4]"):
            record = trained(defense, rounds=rounds, threads=threads, **fashion, **sizes)
            yield f"{defense}, {rounds} rounds", record


def gradprune(threads: int) -> Iterator[Row]:
    small = {"dataset": "fashion", "victim": "lenet5[epochs=5]", "repeats": 3}
    sizes = {"private_size": 5000, "public_size": 1000, "test_size": 10_000}
    for p in ("0", "0.9", "0.99", "0.999"):
        record = trained(f"gradprune[p={p}]", threads=threads, **small, **sizes)
        yield f"gradprune[p={p}]", record


def singmix(threads: int) -> Iterator[Row]:
    features = {"dataset": "cifar10", "space": "vgg16", "victim": "paper-head"}
    sizes = {"private_size": 10_000, "public_size": 2000, "test_size": 2000}
    for tau in TAUS:
        yield (
            f"singmix[tau={tau}]",
            trained(f"singmix[tau={tau}]", threads=threads, **features, **sizes),
        )


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


STUDIES = {"instahide": instahide, "gradprune": gradprune, "singmix": singmix}

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
