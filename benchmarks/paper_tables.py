"""The singularized-mixup paper's tables of SNR beside what is measured here.

    python benchmarks/paper_tables.py linear     # its Table 1: CIFAR-10 and MNIST
    python benchmarks/paper_tables.py unet       # its Table 2, beside the conditioned U-Net

Needs `harness assets fetch cifar10 mnist`. What is stored already is not run
again. Records are also kept below benchmarks/records.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from mixcon_tables import kept

from harness import evaluate
from harness.store.record import RunRecord

TAUS = ("1e0", "1e-1", "1e-2", "1e-3", "1e-4", "1e-5", "1e-6")
PAPER = {
    "linear, cifar10": (0.85, -5.06, -6.92, -7.45, -7.61, -7.66, -7.67),
    "linear, mnist": (8.19, 0.09, -2.79, -3.65, -3.90, -3.98, -4.01),
    "unet": (7.76, 7.27, 5.44, 2.84, -0.13, -0.13, -0.14),
}
LINEAR = "linear[preset=paper]"
NATIVE = {"mnist": "1000 images of 28 px", "cifar10": "1000 images of 32 px"}
PROTOCOL: dict[str, Any] = {
    "space": "pixels-imagenet",
    "judge_at": "release",
    "private_size": 64,
    "public_size": 500,
    "test_size": 200,
}
"""The paper's appendix F, which does not say how many images are attacked. Public and test images
are for guesses without the release."""
WIDTH = 40


def cell(attack: str, dataset: str, defense: str, **options: Any) -> RunRecord:
    asked = {"attack": attack, "dataset": dataset, "defense": f"singmix[{defense}]"}
    return kept(evaluate(**asked, only="privacy", metrics="snr_db", **options))


def row(title: str, values: Iterable[float]) -> None:
    print(f"{title:<{WIDTH}}" + "".join(f"{value:>8.2f}" for value in values), flush=True)


def measured(title: str, records: Sequence[RunRecord]) -> None:
    """The attack's SNR at each tau, mean and deviation, and the best guess without the release."""
    scores = [record.privacy["snr_db"] for record in records]
    row(title, [score.mean for score in scores])
    row("  deviation over images", [score.std for score in scores])
    row(f"  best null, {scores[0].null_name}", [score.null for score in scores])


def head(taus: Sequence[str]) -> None:
    print(f"{'mean SNR in dB, tau =':<{WIDTH}}" + "".join(f"{tau:>8}" for tau in taus))


def linear(threads: int, datasets: Sequence[str]) -> None:
    """Its protocol, with the larger weight first and as algorithm 1 has it; native images."""
    head(TAUS)
    for name in datasets:
        row(f"the paper, {name}", PAPER[f"linear, {name}"])
        for first in ("larger", "any"):
            drawn = [f"tau={tau},resolution=224,first={first}" for tau in TAUS]
            found = [cell(LINEAR, name, each, **PROTOCOL, threads=threads) for each in drawn]
            measured(f"its protocol here, first={first}", found)
        native = [cell(LINEAR, name, f"tau={tau}", threads=threads) for tau in TAUS]
        measured(f"here, {NATIVE[name]}", native)


def unet(threads: int) -> None:
    """Three strengths: each trains a network of its own."""
    taus = ("1e0", "1e-2", "1e-4")
    head(taus)
    row("the paper, its own U-Net, 224 px", [PAPER["unet"][TAUS.index(tau)] for tau in taus])
    options = {"preset": "standard", "threads": threads}
    records = [cell("unet", "cifar10", f"tau={tau}", **options) for tau in taus]
    measured("the conditioned U-Net here, 32 px", records)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=["linear", "unet"])
    parser.add_argument("--dataset", choices=list(NATIVE), help="of the first table, one alone")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    if asked.table == "unet":
        unet(asked.threads)
    else:
        linear(asked.threads, [asked.dataset] if asked.dataset else list(NATIVE))
