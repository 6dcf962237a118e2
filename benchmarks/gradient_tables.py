"""What gradient matching gets back from released gradients, beside what papers say.

    python benchmarks/gradient_tables.py ladder      # defenses, at batches of 1 and 16
    python benchmarks/gradient_tables.py knowledge   # what the server knows, with BatchNorm
    python benchmarks/gradient_tables.py digits      # MNIST: which pruning hides a digit
    python benchmarks/gradient_tables.py adaptive    # pruning known, and taken for zeros
    python benchmarks/gradient_tables.py tv          # weight of the total variation
    python benchmarks/gradient_tables.py bn          # weight of the BatchNorm term
    python benchmarks/gradient_tables.py labels      # labels in a batch, and labels told
    python benchmarks/gradient_tables.py dpsgd       # noise on clipped gradients
    python benchmarks/gradient_tables.py age         # epochs of training before the gradients

CPU seconds of a cell with --threads 1, timed on a few and taken for the rest: 40 of `digits`;
70 to 90 of `adaptive`, `tv`, `dpsgd`, `age`, `knowledge` and `bn`, which have 4 to 7; `labels`
takes three minutes in all. `ladder` has 18: 70 for plain batches of 1, 90 for those of 16, 250 for
mixed batches of 1, and more for mixed ones of 16, an hour in all.

Papers: Huang et al. 2021, Evaluating Gradient Inversion Attacks and Defenses in Federated
Learning, with its appendix; its network is ResNet-18, so its figures say in which order defenses
come, not what each should reach here.

Needs `harness assets fetch cifar10 mnist lpips-vgg16`, and the `dp` extra for `dpsgd`. What is
stored already is not run again. Records are also kept below benchmarks/records.
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
from harness.record import RunRecord

Row = dict[str, Any]

COMMON: dict[str, Any] = {
    "preset": "standard",
    "dataset": "cifar10",
    "victim": "strided",
    "metrics": "lpips_vgg,ssim,snr_db",
    "private_size": 1000,
    "public_size": 4000,
    "test_size": 2000,
    "targets": 20,
}
WITH_BATCHNORM: dict[str, Any] = {"victim": "cnn", "targets": 8}
"""A network with BatchNorm; ResNet-18, which the paper has, takes thousands of steps to match."""

PRUNED = ("0.9", "0.99", "0.999")
TABLE_5: dict[str, tuple[float, float, float, float]] = {
    "none": (0.41, 0.09, 0.21, 93.37),
    "gradprune[p=0.9]": (0.46, 0.06, 0.29, 90.57),
    "gradprune[p=0.99]": (0.50, 0.06, 0.29, 88.61),
    "gradprune[p=0.999]": (0.55, 0.04, 0.48, 83.58),
    "mixup[k=4]": (0.50, 0.10, 0.31, 92.31),
    "instahide[k=4]": (0.69, 0.06, 0.56, 90.04),
    "gradprune[p=0.9]+mixup[k=4]": (0.62, 0.10, 0.37, 91.37),
    "gradprune[p=0.9]+instahide[k=4]": (0.73, 0.05, 0.65, 86.10),
}
"""The paper's strongest attack at batches of 16: LPIPS (VGG), its mean over 50 images, deviation
and best image, and the test accuracy in per cent."""

MIXED = ("none", *list(TABLE_5)[4:])
"""Defenses that mix images of a dataset so small that all of it is attacked, and none of them."""

PROTOTYPE = {"0.99": 1.0, "0.999": 0.1, "0.9999": 0.2}
"""Share of 10 digits that a classifier read in an earlier experiment of ours, by p. The paper says
that pruning hides digits from p = .9999 on."""


@dataclass(frozen=True)
class Cell:
    """One evaluation, in a line called `title`, with what a paper says under its columns."""

    title: str
    options: dict[str, Any]
    paper: dict[str, float] = field(default_factory=dict)


def with_options(attack: str, **more: str | int) -> str:
    """The attack with further options in its brackets."""
    name, _, inside = attack.removesuffix("]").partition("[")
    added = (f"{option}={value}" for option, value in more.items())
    return f"{name}[{','.join(filter(None, (inside, *added)))}]"


def ladder(attack: str) -> Iterator[Cell]:
    """Table 5. Mixtures are of 20 images, or the 32 that fill two batches, encoded once.

    There the victim is trained on these few only: compare with `none` of as many images.
    """
    for size in (1, 16):
        for defense in list(TABLE_5)[:4]:
            yield rung(defense, size, 1000, attack=attack)
        for defense in MIXED:
            yield rung(defense, size, 20 if size == 1 else 32, attack=attack)


def rung(defense: str, size: int, images: int, **options: Any) -> Cell:
    lpips, std, best, accuracy = TABLE_5[defense]
    paper = {"paper": lpips, "paper std": std, "paper best": best} if size == 16 else {}
    sizes = {"defense": defense, "batch_size": size, "private_size": images}
    return Cell(
        f"{defense}, batch {size} of {images}",
        sizes | options,
        paper | {"paper %": accuracy},
    )


def knowledge(attack: str) -> Iterator[Cell]:
    """Labels and BatchNorm statistics known, or told from the gradients and the model.

    The paper at batches of 16: LPIPS .41, and .49 without the statistics.
    """
    for size in (1, 4):
        for preset, threat_model in (
            ("strongest", "fl-strong"),
            ("realistic", "fl-realistic"),
        ):
            own = with_options(attack, preset=preset)
            known = {"threat_model": threat_model, "batch_size": size}
            title = f"{preset}, {threat_model}, batch {size}"
            yield Cell(title, {**WITH_BATCHNORM, "defense": "none", "attack": own, **known})


def digits(attack: str) -> Iterator[Cell]:
    """The appendix's MNIST experiment: what a network that knows public digits can still read."""
    digit = {
        "dataset": "mnist",
        "victim": "convnet6",
        "metrics": "recognition,ssim,lpips_vgg,snr_db",
    }
    yield Cell("none", {**digit, "defense": "none", "attack": attack})
    for p in (*PRUNED, "0.9999"):
        defense = f"gradprune[p={p}]"
        earlier = {"earlier": PROTOTYPE[p]} if p in PROTOTYPE else {}
        yield Cell(defense, {**digit, "defense": defense, "attack": attack}, earlier)


def adaptive(attack: str) -> Iterator[Cell]:
    """Entries that were pruned are left out of the distance, or matched as the zeros they are."""
    for p in PRUNED:
        for known in ("true", "false"):
            own = with_options(attack, adaptive=known)
            title = f"gradprune[p={p}], adaptive={known}"
            yield Cell(title, {"defense": f"gradprune[p={p}]", "attack": own})


def tv(attack: str) -> Iterator[Cell]:
    """Figure 4: single images. The paper finds 1e-2 best, by eye, on its own network."""
    for weight in ("0", "1e-3", "5e-3", "1e-2", "5e-2", "1e-1", "5e-1"):
        own = with_options(attack, tv=weight)
        yield Cell(f"tv={weight}", {"defense": "none", "attack": own})


def bn(attack: str) -> Iterator[Cell]:
    """Figure 5, at batches of 4: the model's running statistics stand for the batch's own.

    The paper finds 1e-3 best, by eye, at batches of 16.
    """
    for weight in ("0", "5e-4", "1e-3", "5e-3", "1e-2"):
        own = with_options(attack, statistics="inferred", tv="1e-3", bn=weight)
        yield Cell(
            f"bn={weight}", {**WITH_BATCHNORM, "defense": "none", "batch_size": 4, "attack": own}
        )


def labels(attack: str) -> Iterator[Cell]:
    """Figure 2a: how many labels of a batch are distinct; and how many the gradient tells.

    `distinct` is their number over the most there could be: in batches of up to 10, only where
    it is 1 do labels tell the images of a batch apart. It is measured along with the accuracy,
    hence a short training.
    """
    for size in (1, 2, 4, 8, 16, 32, 64):
        for rule in ("counted", "distinct"):
            if rule == "distinct" and size > 10:
                continue
            sizes = {"batch_size": size, "targets": min(60, 1000 // size) * size}
            own = {"attack": with_options(attack, labels=rule), "metrics": "snr_db"}
            young = {"victim": "strided[epochs=1]", "defense": "none", "only": None}
            yield Cell(f"labels={rule}, batch {size}", {**young, **sizes, **own})


def dpsgd(attack: str) -> Iterator[Cell]:
    """One image's clipped gradient, of norm 1 at most, under noise of deviation σ on each entry.

    Noise on 150 000 weights has a norm of 390 σ.
    """
    yield Cell("none", {"defense": "none", "attack": attack})
    for sigma in ("0.01", "0.1", "1"):
        defense = f"dpsgd[noise_multiplier={sigma}]"
        yield Cell(defense, {"defense": defense, "attack": attack})


def age(attack: str) -> Iterator[Cell]:
    """Gradients of a model as it is drawn, and as training leaves it: late ones are near zero."""
    for epochs in (0, 1, 5, 20):
        options = {"defense": "none", "victim_epochs": epochs, "attack": attack}
        yield Cell(f"victim_epochs={epochs}", options)


LPIPS = ("lpips", "std", "low", "high", "best", "null")
IMAGES = (*LPIPS, "snr", "ssim")
BESIDE = ("lpips", "paper", "std", "paper std", "low", "high", "best", "paper best", "null")


@dataclass(frozen=True)
class Table:
    """Its cells for an attack, that attack if none is named, and the columns it prints.

    With `--utility` it prints some more.
    """

    cells: Callable[[str], Iterator[Cell]]
    columns: tuple[str, ...]
    attack: str = "gradmatch[steps=600]"
    utility: tuple[str, ...] = ("accuracy %",)


TABLES = {
    "ladder": Table(
        ladder, (*BESIDE, "snr", "ssim", "input snr"), utility=("accuracy %", "paper %")
    ),
    "knowledge": Table(knowledge, (*IMAGES, "labels told", "by chance"), "gradmatch[steps=300]"),
    "digits": Table(digits, ("read", "earlier", "read null", *IMAGES)),
    "adaptive": Table(adaptive, IMAGES),
    "tv": Table(tv, IMAGES),
    "bn": Table(bn, IMAGES, "gradmatch[steps=300]"),
    "labels": Table(labels, ("distinct", "labels told", "by chance"), "gradmatch[steps=1]"),
    "dpsgd": Table(dpsgd, IMAGES, utility=("accuracy %", "epsilon", "epsilon of one")),
    "age": Table(age, (*IMAGES, "loss")),
}


def measured(record: RunRecord) -> Row:
    """The values of all columns that this record has, or why it has none.

    `best` is the image that leaks most: the one with the least LPIPS. `epsilon` is of the
    whole training, and `epsilon of one` of one gradient of a known batch.
    """
    if record.status != "ok":
        return {"failed": record.error or record.status, "record": record.id}
    values = {
        **of_images(record),
        **of_findings(record),
        "distinct": record.measures.get("release.distinct_labels"),
        "epsilon": record.measures.get("dpsgd.epsilon"),
        "epsilon of one": record.measures.get("dpsgd.epsilon_per_gradient"),
        "loss": record.diagnostics.get("matching_loss"),
        "accuracy %": 100 * record.utility.accuracy if record.utility else None,
    }
    there = {name: value for name, value in values.items() if value is not None}
    return {**there, "record": record.id}


def of_images(record: RunRecord) -> Row:
    found: Row = {}
    for name, metric in (("lpips", "lpips_vgg"), ("snr", "snr_db"), ("ssim", "ssim")):
        if metric in record.privacy:
            found[name] = record.privacy[metric].mean
    if "lpips_vgg" in record.privacy:
        score = record.privacy["lpips_vgg"]
        low, high = score.ci or (None, None)
        found |= {"std": score.std, "low": low, "high": high}
        found |= {"best": score.worst, "null": score.null}
    if "recognition" in record.privacy:
        score = record.privacy["recognition"]
        found |= {"read": score.mean, "read null": score.null}
    return found


def of_findings(record: RunRecord) -> Row:
    found: Row = {}
    if "label_accuracy" in record.findings:
        told = record.findings["label_accuracy"]
        found |= {"labels told": told.value, "by chance": told.chance}
    if "input_snr_db" in record.findings:
        found["input snr"] = record.findings["input_snr_db"].value
    return found


def evaluated(cell: Cell, **options: Any) -> Row:
    """The line of a cell; one that could not be asked for at all is a line too."""
    try:
        record = kept(evaluate(**{**COMMON, **options, **cell.options}))
    except HarnessError as error:
        return {"title": cell.title, "failed": str(error)}
    return {"title": cell.title, **cell.paper, **measured(record)}


WIDTH = 54


def head(columns: tuple[str, ...]) -> str:
    return " " * WIDTH + "".join(f"{name:>{len(name) + 2}}" for name in spread(columns))


def spread(columns: tuple[str, ...]) -> list[str]:
    """Names of columns, filled up to the width of a number."""
    return [f"{name:>6}" for name in columns]


def line(row: Row, columns: tuple[str, ...]) -> str:
    """One row; blank where it has no value."""
    if "failed" in row:
        return f"{row['title']:<{WIDTH}}  {row['failed']}"
    cells = (shown(row.get(name.strip()), len(name) + 2) for name in spread(columns))
    return f"{row['title']:<{WIDTH}}{''.join(cells)}".rstrip()


def shown(value: float | None, width: int) -> str:
    """Three digits after the point, fewer for large values."""
    if value is None:
        return " " * width
    return f"{value:>{width}.{3 if abs(value) < 10 else 2 if abs(value) < 1000 else 0}f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--attack", help="whose brackets tables add their options to")
    parser.add_argument("--utility", action="store_true", help="accuracy too: trains the victim")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    asked = parser.parse_args()
    table = TABLES[asked.table]
    columns = table.columns + (table.utility if asked.utility else ())
    if not asked.json:
        print(head(columns), flush=True)
    for cell in table.cells(asked.attack or table.attack):
        row = evaluated(cell, threads=asked.threads, only=None if asked.utility else "privacy")
        print(json.dumps(row) if asked.json else line(row, columns), flush=True)


if __name__ == "__main__":
    main()
