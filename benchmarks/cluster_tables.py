"""What attacks get from published encodings and labels alone: no weights, no sources.

    python benchmarks/cluster_tables.py inside    # InstaHide inside a dataset, k=2, and k=4
    python benchmarks/cluster_tables.py cross     # across two datasets, k=4 and k=6
    python benchmarks/cluster_tables.py mixup     # no masks
    python benchmarks/cluster_tables.py singmix   # from tau = 1 down: where each stage dies
    python benchmarks/cluster_tables.py em        # pairs by likelihood, without a network
    python benchmarks/cluster_tables.py moved     # images rotated and shifted before mixing
    python benchmarks/cluster_tables.py oracle    # truth put in place of each stage
    python benchmarks/cluster_tables.py rounds    # how many encodings of an image it takes
    python benchmarks/cluster_tables.py assign    # a flow beside the paper's greedy assignment
    python benchmarks/cluster_tables.py chen      # chen's own setting, and real images without it

100 private images in 50 rounds, unless said; the attacker has 20 000 public ones. A cell takes
minutes with --threads 1, most of them for what is learned from public images, which later cells
find stored. Needs `harness assets fetch fashion cifar10`. Records are also kept below
benchmarks/records.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mixcon_tables import kept

from harness import evaluate
from harness.api import HarnessError
from harness.store.record import RunRecord

Row = dict[str, Any]

COMMON: dict[str, Any] = {
    "preset": "standard",
    "metrics": "snr_db,ssim",
    "only": "privacy",
    "private_size": 100,
    "public_size": 20_000,
    "test_size": 1000,
    "rounds": 50,
}
DATASETS = ("fashion", "cifar10")
ATTACKS = ("carlini", "chen", "luo")
TAUS = ("1", "1e-1", "1e-2", "1e-4")


@dataclass(frozen=True)
class Cell:
    """One evaluation."""

    dataset: str
    defense: str
    attack: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What stands before its numbers."""
        rounds = f", T={self.options['rounds']}" if "rounds" in self.options else ""
        return f"{self.dataset}, {self.defense}, {self.attack}{rounds}"


def against(defenses: tuple[str, ...], attacks: tuple[str, ...] = ATTACKS) -> Iterator[Cell]:
    for dataset in DATASETS:
        for defense in defenses:
            for attack in attacks:
                yield Cell(dataset, defense, attack)


def singmix() -> Iterator[Cell]:
    """And what would come of it if clusters were known: the paper's conservative model."""
    defenses = tuple(f"singmix[tau={tau}]" for tau in TAUS)
    return against(defenses, (*ATTACKS, "carlini[oracle=clusters]"))


def em() -> Iterator[Cell]:
    """Where the noise leaves something to be found."""
    for dataset, tau in (("cifar10", "1e-1"), ("cifar10", "1e-2"), ("fashion", "1e-1")):
        yield Cell(dataset, f"singmix[tau={tau}]", "em", {"threat_model": "released"})


def moved() -> Iterator[Cell]:
    """Luo's own setting, with many encodings of an image and with few; then longer training."""
    defense = "instahide[k=2,augment=affine]"
    for dataset in DATASETS:
        for attack in ("carlini", "luo", "luo[similarity=classwise]"):
            for count in (50, 10):
                yield Cell(dataset, defense, attack, {"rounds": count})
    for dataset, steps, counts in (("fashion", 2500, (50,)), ("cifar10", 1200, (50, 10))):
        for count in counts:
            attack = f"luo[similarity=classwise,compare_steps={steps}]"
            yield Cell(dataset, defense, attack, {"rounds": count})


def oracle() -> Iterator[Cell]:
    """Inside and cross: the truth about clusters, then weights, then masks."""
    for dataset in DATASETS:
        for defense in ("instahide[k=2]", "instahide[k=4,scheme=cross]"):
            yield Cell(dataset, defense, "carlini")
            for stage in ("clusters", "weights", "signs"):
                model = {"threat_model": "oracle"} if stage == "signs" else {}
                yield Cell(dataset, defense, f"carlini[oracle={stage}]", model)


def rounds() -> Iterator[Cell]:
    for dataset in DATASETS:
        for count in (3, 5, 10, 20, 50):
            yield Cell(dataset, "instahide[k=2]", "carlini", {"rounds": count})


def assign() -> Iterator[Cell]:
    """Memberships from likeness alone: nothing is read again off images."""
    for dataset in DATASETS:
        for defense in ("instahide[k=2]", "instahide[k=4,scheme=cross]"):
            for way in ("flow", "greedy"):
                yield Cell(dataset, defense, f"carlini[rereads=0,assign={way}]")


def chen() -> Iterator[Cell]:
    """Standardised normal values, independent of each other, as the paper has them.

    5003 is prime: such vectors are no images, and a cross mixture has public ones whole. Real
    images come with whitening, and as the paper would have them.
    """
    options = {"private_size": 100, "public_size": 1000, "test_size": 100}
    yield Cell("synthetic-gaussian[d=5000]", "instahide[k=2]", "chen", options)
    yield Cell("synthetic-gaussian[d=5003]", "instahide[k=4,scheme=cross]", "chen", options)
    for dataset in DATASETS:
        for attack in ("chen", "chen[whiten=false]"):
            yield Cell(dataset, "instahide[k=2]", attack)


TABLES: dict[str, Callable[[], Iterator[Cell]]] = {
    "inside": lambda: against(("instahide[k=2]", "instahide[k=4]")),
    "cross": lambda: against(
        ("instahide[k=4,scheme=cross]", "instahide[k=6,scheme=cross]"), ("carlini", "luo")
    ),
    "mixup": lambda: against(("mixup[k=2]",)),
    "singmix": singmix,
    "em": em,
    "moved": moved,
    "oracle": oracle,
    "rounds": rounds,
    "assign": assign,
    "chen": chen,
}
FINDINGS = {
    "pair_auc": "AUC",
    "cluster_purity": "purity",
    "encodings_assigned": "assigned",
    "share_error": "weights off",
    "gram_correlation": "Gram",
    "publics_found": "public",
}
SCORES = ("snr", "null", "snr abs", "null abs", "ssim", "null ssim")
COLUMNS = ("AUC", "purity", "assigned", "weights off", *SCORES)
COLUMNS_OF = {"chen": ("Gram", "public", "assigned", "weights off", "recovered", *SCORES)}
RECOVERED_DB = 20.0
"""Of absolute values, from which an image counts as recovered: a relative error of .1."""


def measured(record: RunRecord) -> Row:
    """The values of all columns, or why there are none."""
    if record.status != "ok":
        return {"failed": record.error or record.status, "record": record.id}
    found: Row = {
        shown: record.findings[name].value
        for name, shown in FINDINGS.items()
        if name in record.findings
    }
    for metric, name in (("snr_db", "snr"), ("snr_db_abs", "snr abs"), ("ssim", "ssim")):
        if metric in record.privacy:
            score = record.privacy[metric]
            found[name] = score.mean
            found[f"null{name.removeprefix('snr') if 'snr' in name else ' ssim'}"] = score.null
            found[f"{name} gain"] = score.gain_ci
    found |= recovered(record)
    return {**found, "seconds": round(sum(record.timing.values())), "record": record.id}


def recovered(record: RunRecord) -> Row:
    """The share of images that are back, signs of values aside."""
    kept = record.by_image.get("snr_db_abs")
    if kept is None:
        return {}
    scores = [score for score in kept.attack if score is not None]
    return {"recovered": sum(score >= RECOVERED_DB for score in scores) / len(scores)}


def evaluated(cell: Cell, **options: Any) -> Row:
    """The line of a cell; one that could not be asked for at all is a line too."""
    asked = {"dataset": cell.dataset, "defense": cell.defense, "attack": cell.attack}
    try:
        record = kept(evaluate(**{**COMMON, **options, **asked, **cell.options}))
    except HarnessError as error:
        return {"title": cell.title, "failed": str(error)}
    return {"title": cell.title, **measured(record)}


WIDTH = 72


def head(columns: tuple[str, ...]) -> str:
    return " " * WIDTH + "".join(f"{name:>{_width(name)}}" for name in columns)


def _width(name: str) -> int:
    return max(len(name), 7) + 2


def line(row: Row, columns: tuple[str, ...]) -> str:
    if "failed" in row:
        return f"{row['title']:<{WIDTH}}   {row['failed']}"
    cells = (number(row.get(name), _width(name)) for name in columns)
    return f"{row['title']:<{WIDTH}}{''.join(cells)}".rstrip()


def number(value: float | None, width: int) -> str:
    return " " * width if value is None else f"{value:>{width}.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--only", default="", help="cells whose title holds this")
    parser.add_argument("--preset", default="standard", choices=("quick", "standard", "paper"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one line of JSON a cell")
    asked = parser.parse_args()
    columns = COLUMNS_OF.get(asked.table, COLUMNS)
    if not asked.json:
        print(head(columns))
    for cell in TABLES[asked.table]():
        if asked.only in cell.title:
            row = evaluated(cell, preset=asked.preset, threads=asked.threads)
            print(json.dumps(row) if asked.json else line(row, columns), flush=True)


if __name__ == "__main__":
    main()
