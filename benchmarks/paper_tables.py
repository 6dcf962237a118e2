"""The singularized-mixup paper's tables of SNR beside what is measured here.

    python benchmarks/paper_tables.py linear     # its Table 1: CIFAR-10 and MNIST
    python benchmarks/paper_tables.py unet       # its Table 2, beside the conditioned U-Net

Needs `harness assets fetch cifar10 mnist`. What is stored already is not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from harness import evaluate
from harness.store.record import RunRecord

TAUS = ("1e0", "1e-1", "1e-2", "1e-3", "1e-4", "1e-5", "1e-6")
PAPER = {
    "linear, CIFAR-10": (0.85, -5.06, -6.92, -7.45, -7.61, -7.66, -7.67),
    "linear, MNIST": (8.19, 0.09, -2.79, -3.65, -3.90, -3.98, -4.01),
    "unet, CIFAR-10": (7.76, 7.27, 5.44, 2.84, -0.13, -0.13, -0.14),
}


def cell(tau: str, attack: str, dataset: str, resolution: int | None, **options: int | str):
    defense = f"singmix[tau={tau}{f',resolution={resolution}' if resolution else ''}]"
    return evaluate(
        defense=defense,
        attack=attack,
        dataset=dataset,
        only="privacy",
        metrics="snr_db",
        **options,
    )


def row(title: str, values: Sequence[float]) -> None:
    print(f"{title:<34}" + "".join(f"{value:>8.2f}" for value in values), flush=True)


def measured(title: str, records: Sequence[RunRecord]) -> None:
    """The attack's mean SNR at each tau, and the best guess without the release below it."""
    scores = [record.privacy["snr_db"] for record in records]
    row(title, [score.mean for score in scores])
    row(f"  best null, {scores[0].null_name}", [score.null for score in scores])


def head(taus: Sequence[str]) -> None:
    print(f"{'mean SNR in dB, tau =':<34}" + "".join(f"{tau:>8}" for tau in taus))


def linear(threads: int) -> None:
    head(TAUS)
    attack = "linear[preset=paper]"
    row("the paper, CIFAR-10", PAPER["linear, CIFAR-10"])
    native = [cell(tau, attack, "cifar10", None, threads=threads) for tau in TAUS]
    measured("here, 1000 images of 32 px", native)
    row("the paper, MNIST", PAPER["linear, MNIST"])
    native = [cell(tau, attack, "mnist", None, threads=threads) for tau in TAUS]
    measured("here, 1000 images of 28 px", native)
    few = {"private_size": 64, "public_size": 1000, "threads": threads}
    resized = [cell(tau, attack, "mnist", 224, **few) for tau in TAUS]
    measured("here, 64 images resized to 224 px", resized)


def unet(threads: int) -> None:
    """Three strengths: each trains a network of its own."""
    taus = ("1e0", "1e-2", "1e-4")
    head(taus)
    row("the paper, its own U-Net, 224 px", [PAPER["unet, CIFAR-10"][TAUS.index(t)] for t in taus])
    records = [
        cell(tau, "unet", "cifar10", None, preset="standard", threads=threads) for tau in taus
    ]
    measured("here, 1000 images of 32 px", records)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=["linear", "unet"])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    {"linear": linear, "unet": unet}[arguments.table](arguments.threads)
