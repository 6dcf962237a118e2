"""What gradient matching gets back from released gradients, beside what papers say.

    python benchmarks/gradient_tables.py ladder      # defenses, at batches of 1, 16 and 32
    python benchmarks/gradient_tables.py knowledge   # what the server knows, with BatchNorm
    python benchmarks/gradient_tables.py suite       # whether knowing more does better
    python benchmarks/gradient_tables.py digits      # MNIST: which pruning hides a digit
    python benchmarks/gradient_tables.py adaptive    # pruning known, and taken for zeros
    python benchmarks/gradient_tables.py rate        # shorter steps where much is pruned
    python benchmarks/gradient_tables.py tv          # weight of the total variation
    python benchmarks/gradient_tables.py bn          # weight of the BatchNorm term
    python benchmarks/gradient_tables.py labels      # labels in a batch, and labels told
    python benchmarks/gradient_tables.py dpsgd       # noise on clipped gradients
    python benchmarks/gradient_tables.py age         # epochs of training before the gradients

CPU seconds with --threads 1, each table in all: adaptive 75, tv 85, bn 40, age 50, labels 80,
dpsgd 300 with --utility, knowledge 70, suite 160, rate 80, digits 200. `ladder` takes half an hour:
40 to 90 of a cell, and 300 of one of eight rounds.

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
from harness.scoring.summary import MetricScore
from harness.store.record import RunRecord

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

ENCODED_AGAIN = ("mixup[k=4]", "instahide[k=4]", "gradprune[p=0.9]+instahide[k=4]")
"""Those of which eight encodings of each image are attacked too."""

FEW: dict[str, Any] = {"targets": 10}
"""Of tables that ask what an option does; their attack takes 300 steps, not 600."""

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

    There the victim is trained on these few only: compare with `none` of as many images. The
    paper's InstaHide encodes anew in each of 20 epochs: eight encodings of each of the 20 images,
    one by one, are a part of what that leaves. Batches of 32 are of those that hide least.
    """
    for size in (1, 16):
        for defense in list(TABLE_5)[:4]:
            yield rung(defense, size, 1000, attack=attack)
        for defense in MIXED:
            yield rung(defense, size, 20 if size == 1 else 32, attack=attack)
    for defense in ENCODED_AGAIN:
        yield rung(defense, 1, 20, attack=attack, rounds=8)
    for defense, images in (
        ("none", 1000),
        ("gradprune[p=0.9]", 1000),
        ("none", 32),
        ("mixup[k=4]", 32),
    ):
        yield rung(defense, 32, images, attack=attack, targets=32)


def rung(defense: str, size: int, images: int, **options: Any) -> Cell:
    lpips, std, best, accuracy = TABLE_5[defense]
    paper = {"paper": lpips, "paper std": std, "paper best": best} if size == 16 else {}
    sizes = {"defense": defense, "batch_size": size, "private_size": images}
    rounds = f", {options['rounds']} rounds" if "rounds" in options else ""
    return Cell(
        f"{defense}, batch {size} of {images}{rounds}",
        sizes | options,
        paper | {"paper %": accuracy},
    )


def knowledge(attack: str) -> Iterator[Cell]:
    """Labels and BatchNorm statistics known, or told from the gradients and the model, or not used.

    The paper at batches of 16: LPIPS .41, and .49 without the statistics. Both attackers know the
    labels there; the scripts that its authors published have one that knows neither.
    """
    for size in (1, 4):
        for preset, threat_model in (
            ("strongest", "fl-strong"),
            ("realistic", "fl-strong"),
            ("scripts", "fl-realistic"),
        ):
            for without in ({}, {"statistics": "none"}):
                own = with_options(attack, preset=preset, **without)
                known = {"threat_model": threat_model, "batch_size": size}
                title = ", ".join((preset, *(f"{k}={v}" for k, v in without.items())))
                title = f"{title}, {threat_model}, batch {size}"
                yield Cell(title, {**WITH_BATCHNORM, "defense": "none", "attack": own, **known})


def suite(attack: str) -> Iterator[Cell]:
    """Every attack on gradients of single images, and on those of batches of four.

    `gradmatch` as it comes knows labels and statistics, `gradmatch[preset=scripts]` does not:
    the flag `knows_less_does_better` would say that the first makes poor use of them.
    """
    for size in (1, 4):
        options = {"defense": "none", "attack": attack, "batch_size": size}
        again = {"release": "gradients", "twice": False}
        yield Cell(f"{attack}, batch {size}", {**WITH_BATCHNORM, **options, **again})


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
    """Entries that were pruned are left out of the distance, or matched as the zeros they are.

    10 images, 300 steps.
    """
    for p in PRUNED:
        for known in ("true", "false"):
            own = with_options(attack, adaptive=known)
            title = f"gradprune[p={p}], adaptive={known}"
            yield Cell(title, {**FEW, "defense": f"gradprune[p={p}]", "attack": own})


def rate(attack: str) -> Iterator[Cell]:
    """Steps a fifth as long, where nearly all is pruned; `ladder` has those of .1."""
    for p in PRUNED[1:]:
        own = with_options(attack, lr="0.02")
        yield Cell(f"gradprune[p={p}], lr=0.02", {"defense": f"gradprune[p={p}]", "attack": own})


def tv(attack: str) -> Iterator[Cell]:
    """Figure 4: single images, 10 of them, 300 steps.

    The paper finds 1e-2 best, by eye, on its own network.
    """
    for weight in ("0", "1e-3", "5e-3", "1e-2", "5e-2", "1e-1", "5e-1"):
        own = with_options(attack, tv=weight)
        yield Cell(f"tv={weight}", {**FEW, "defense": "none", "attack": own})


def bn(attack: str) -> Iterator[Cell]:
    """Figure 5, at batches of 4: the model's running statistics stand for the batch's own.

    8 images, 300 steps. The paper finds 1e-3 best, by eye, at batches of 16.
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
    hence a short training. One step: labels are told before the search, and images count for
    nothing here.
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

    Noise on 150 000 weights has a norm of 390 σ. 10 images, 300 steps.
    """
    yield Cell("none", {**FEW, "defense": "none", "attack": attack})
    for sigma in ("0.001", "0.01", "0.1", "1"):
        defense = f"dpsgd[noise_multiplier={sigma}]"
        yield Cell(defense, {**FEW, "defense": defense, "attack": attack})


def age(attack: str) -> Iterator[Cell]:
    """Gradients of a model as it is drawn, and as training leaves it: late ones are near zero.

    10 images, 300 steps.
    """
    for epochs in (0, 1, 5, 20):
        options = {**FEW, "defense": "none", "victim_epochs": epochs, "attack": attack}
        yield Cell(f"victim_epochs={epochs}", options)


LPIPS = ("lpips", "std", "low", "high", "best", "null")
IMAGES = (*LPIPS, "snr", "ssim")
BESIDE = ("lpips", "paper", "std", "paper std", "low", "high", "best", "paper best", "null")
ABSOLUTE = ("lpips abs", "snr abs", "ssim abs")
"""On absolute values, for defenses that hide signs."""

SCORES = {
    "lpips": "lpips_vgg",
    "snr": "snr_db",
    "ssim": "ssim",
    "read": "recognition",
    "lpips abs": "lpips_vgg_abs",
    "snr abs": "snr_db_abs",
    "ssim abs": "ssim_abs",
}
"""Columns that hold the mean of a metric."""

WORSE = "†"
FOOTNOTE = f"{WORSE} worse than the best guess without the release, by the whole 95% interval"


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
        ladder,
        (*BESIDE, "snr", "ssim", *ABSOLUTE, "input snr"),
        utility=("accuracy %", "paper %"),
    ),
    "knowledge": Table(knowledge, (*IMAGES, "labels told", "by chance"), "gradmatch[steps=300]"),
    "suite": Table(suite, (*IMAGES, "all known", "told"), "suite"),
    "digits": Table(digits, ("read", "earlier", "read null", *IMAGES)),
    "adaptive": Table(adaptive, IMAGES, "gradmatch[steps=300]"),
    "rate": Table(rate, IMAGES),
    "tv": Table(tv, IMAGES, "gradmatch[steps=300]"),
    "bn": Table(bn, IMAGES, "gradmatch[steps=300]"),
    "labels": Table(labels, ("distinct", "labels told", "by chance"), "gradmatch[steps=1]"),
    "dpsgd": Table(
        dpsgd,
        IMAGES,
        "gradmatch[steps=300]",
        utility=("accuracy %", "epsilon", "epsilon of one"),
    ),
    "age": Table(age, (*IMAGES, "loss"), "gradmatch[steps=300]"),
}


def measured(record: RunRecord) -> Row:
    """The values of all columns that this record has, or why it has none.

    `best` is the image that leaks most: the one with the least LPIPS. `worse` are columns where
    a guess without the release does better. `epsilon` is of the whole training, and `epsilon of
    one` of one gradient of a known batch.
    """
    if record.status != "ok":
        return {"failed": record.error or record.status, "record": record.id}
    values = {
        **of_images(record),
        **of_members(record),
        **of_findings(record),
        "flags": [flag.name for flag in record.flags],
        "distinct": record.measures.get("release.distinct_labels"),
        "epsilon": record.measures.get("dpsgd.epsilon"),
        "epsilon of one": record.measures.get("dpsgd.epsilon_per_gradient"),
        "loss": record.diagnostics.get("matching_loss"),
        "accuracy %": 100 * record.utility.accuracy if record.utility else None,
    }
    there = {name: value for name, value in values.items() if value is not None}
    return {**there, "record": record.id}


def of_images(record: RunRecord) -> Row:
    scores = {column: record.privacy.get(metric) for column, metric in SCORES.items()}
    there = {column: score for column, score in scores.items() if score and not score.unavailable}
    found: Row = {column: score.mean for column, score in there.items()}
    found["worse"] = [column for column, score in there.items() if below_a_guess(score)]
    if "lpips" in there:
        score = there["lpips"]
        low, high = score.ci or (None, None)
        found |= {"std": score.std, "low": low, "high": high}
        found |= {"best": score.worst, "null": score.null}
    if "read" in there:
        found["read null"] = there["read"].null
    return found


def below_a_guess(score: MetricScore) -> bool:
    """Whether the interval of the gain over the best null is all below zero."""
    return score.gain_ci is not None and score.gain_ci[1] < 0


def of_members(record: RunRecord) -> Row:
    """Where the attack is many: the SNR of those that know labels and statistics or tell them."""
    members = {"all known": "gradmatch", "told": "gradmatch[preset=scripts]"}
    there = {column: record.members.get(name) for column, name in members.items()}
    return {
        column: member.privacy["snr_db"].mean
        for column, member in there.items()
        if member and "snr_db" in member.privacy
    }


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


WIDTH = 60


def head(columns: tuple[str, ...]) -> str:
    return " " * WIDTH + "".join(f"{name:>{len(name) + 2}} " for name in spread(columns)).rstrip()


def spread(columns: tuple[str, ...]) -> list[str]:
    """Names of columns, filled up to the width of a number."""
    return [f"{name:>6}" for name in columns]


def line(row: Row, columns: tuple[str, ...]) -> str:
    """One row; blank where it has no value, marked where a guess does better; then its flags."""
    if "failed" in row:
        return f"{row['title']:<{WIDTH}}  {row['failed']}"
    cells = (
        shown(row.get(name.strip()), len(name) + 2) + mark(row, name.strip())
        for name in spread(columns)
    )
    return f"{row['title']:<{WIDTH}}{''.join(cells)}  {', '.join(row['flags'])}".rstrip()


def mark(row: Row, column: str) -> str:
    return WORSE if column in row["worse"] else " "


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
    if not asked.json:
        print(FOOTNOTE)


if __name__ == "__main__":
    main()
