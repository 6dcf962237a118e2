"""What attacks on encodings get back, by strength of singularized mixup and beyond.

    python benchmarks/attack_tables.py linear           # lmmse and wiener on CIFAR-10, by tau
    python benchmarks/attack_tables.py fashion          # lmmse on Fashion-MNIST
    python benchmarks/attack_tables.py learned          # regression where signs are hidden
    python benchmarks/attack_tables.py network          # the conditioned U-Net beside wiener
    python benchmarks/attack_tables.py identification   # who is in it, from a list of candidates
    python benchmarks/attack_tables.py signs            # InstaHide's signs

Needs `harness assets fetch cifar10 fashion`. What is stored already is not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from mixcon_tables import kept

from harness import evaluate
from harness.store.record import RunRecord

TAUS = ("1e0", "1e-1", "1e-2", "1e-3", "1e-4", "1e-6")
STANDARD: dict[str, Any] = {"preset": "standard", "dataset": "cifar10", "metrics": "snr_db"}
WIDTH = 44

Column = Callable[[RunRecord], float | None]


def snr(record: RunRecord) -> float | None:
    """Mean SNR in dB."""
    return record.privacy["snr_db"].mean


def finding(name: str) -> Column:
    """The value of one finding."""
    return lambda record: record.findings[name].value


def top1(record: RunRecord) -> float | None:
    """Share of questions whose first candidate is a true one."""
    return record.identification.top1 if record.identification else None


def recall(record: RunRecord) -> float | None:
    """Share of an encoding's images among as many first candidates."""
    return record.identification.recall if record.identification else None


def line(title: str, values: Sequence[float | None], digits: int = 2) -> None:
    """One row of a table; a dash where a cell has no value."""
    shown = (f"{'–':>10}" if value is None else f"{value:>10.{digits}g}" for value in values)
    print(f"{title:<{WIDTH}}" + "".join(shown), flush=True)


def decibels(title: str, values: Sequence[float | None]) -> None:
    """One row of decibels."""
    shown = (f"{'–':>10}" if value is None else f"{value:>10.2f}" for value in values)
    print(f"{title:<{WIDTH}}" + "".join(shown), flush=True)


def head(title: str, columns: Sequence[str]) -> None:
    """The columns' names."""
    print(f"\n{title:<{WIDTH}}" + "".join(f"{column:>10}" for column in columns), flush=True)


def by_tau(attack: str, threads: int, noise: str = "sphere", **options: Any) -> list[RunRecord]:
    """One cell for each tau."""
    asked = {**STANDARD, **options, "attack": attack, "only": "privacy", "threads": threads}
    return [evaluate(defense=f"singmix[tau={tau},noise={noise}]", **asked) for tau in TAUS]


def nulls(records: Sequence[RunRecord]) -> None:
    """The nulls that count, each of all strengths."""
    for null in ("mean_image", "class_mean"):
        decibels(f"  null: {null}", [record.privacy["snr_db"].nulls[null] for record in records])


def linear(threads: int) -> None:
    """The best linear attack for the stated noise, with one release of each image and with ten."""
    head("CIFAR-10, 1000 images, mean SNR in dB, tau =", TAUS)
    for attack, rounds in (
        ("lmmse[mean=public]", 1),
        ("lmmse[mean=public]", 10),
        ("lmmse", 1),
        ("wiener[mean=public]", 1),
        ("exact", 1),
    ):
        records = by_tau(attack, threads, rounds=rounds)
        decibels(f"{attack}, T={rounds}", [snr(record) for record in records])
        foretold = [record.diagnostics.get("predicted_snr_db") for record in records]
        if any(value is not None for value in foretold):
            decibels("  foretold by the attack", foretold)
    nulls(records)


def fashion(threads: int) -> None:
    """Fashion-MNIST, where images are nearer to Gaussian in their leading components."""
    head("Fashion-MNIST, 2000 images, SNR in dB, tau =", TAUS)
    sizes = {"dataset": "fashion", "private_size": 2000, "public_size": 30_000}
    for attack in ("lmmse[mean=public]", "lmmse", "linear[preset=paper]"):
        records = by_tau(attack, threads, **sizes)
        decibels(attack, [snr(record) for record in records])
    nulls(records)


def learned(threads: int) -> None:
    """The best learned linear map, where no formula of linear algebra has anything to offer."""
    head("InstaHide once, 1000 images, 20 000 public ones", ("SNR", "null", "gain"))
    for dataset in ("cifar10", "fashion"):
        asked = {**STANDARD, "dataset": dataset, "public_size": 20_000, "only": "privacy"}
        record = evaluate(defense="instahide[k=2]", attack="regression", threads=threads, **asked)
        score = kept(record).privacy["snr_db"]
        decibels(f"regression on {dataset}", [score.mean, score.null, score.gain])


def network(threads: int) -> None:
    """A nonlinear attack from the same start."""
    head("CIFAR-10, 1000 images, mean SNR in dB, tau =", TAUS)
    for attack in ("wiener", "lmmse", "unet", "prior"):
        decibels(f"{attack}, T=1", [snr(record) for record in by_tau(attack, threads)])


def identification(threads: int) -> None:
    """From candidates in hand, and weights from norms alone."""
    few = {"private_size": 50, "preset": "quick", "threat_model": "candidates"}
    head("100 candidates, CIFAR-10, tau =", TAUS)
    many_rows = {**few, "rounds": 10, "metrics": "snr_db"}
    for noise in ("sphere", "gaussian"):
        records = by_tau("sphere[rows=500]", threads, noise, **many_rows)
        line(f"sphere on {noise} noise: partner known", [known(record) for record in records], 3)
        line("  both unknown", [finding("pair_top1")(record) for record in records], 3)
    line("matchedfilter, top-1", [top1(r) for r in by_tau("matchedfilter", threads, **few)])
    for noise in ("sphere", "gaussian"):
        records = by_tau("normchannel", threads, noise, preset="quick")
        line(f"normchannel on {noise} noise: error", [known_weights(r) for r in records])
    head("10 000 candidates, CIFAR-10", ("k=2", "k=4"))
    many = {**STANDARD, "private_size": 5000, "threat_model": "candidates", "only": "privacy"}
    for attack in ("innerproduct[whiten=false]", "innerproduct"):
        records = [
            evaluate(defense=f"mixup[k={k}]", attack=attack, threads=threads, **many)
            for k in (2, 4)
        ]
        line(f"{attack} on mixup: recall of k", [recall(record) for record in records], 3)


known = finding("partner_known_top1")
known_weights = finding("weight_error")


def signs(threads: int) -> None:
    """InstaHide: what signs hide, and how many of them come back."""
    asked = {"preset": "quick", "private_size": 200, "metrics": "snr_db", "threads": threads}
    for dataset in ("fashion", "cifar10"):
        head(f"InstaHide, {dataset}, 200 images", ("SNR", "of |x|", "signs"))
        for k, rounds in ((1, 1), (2, 1), (2, 10), (2, 50)):
            record = evaluate(
                defense=f"instahide[k={k}]",
                attack="unfold",
                dataset=dataset,
                rounds=rounds,
                only="privacy",
                **asked,
            )
            folded = record.privacy["snr_db_abs"].mean
            line(
                f"unfold, k={k}, T={rounds}",
                [snr(record), folded, finding("image_sign_accuracy")(record)],
                3,
            )


TABLES = {
    "linear": linear,
    "fashion": fashion,
    "learned": learned,
    "network": network,
    "identification": identification,
    "signs": signs,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=list(TABLES))
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    TABLES[arguments.table](arguments.threads)
