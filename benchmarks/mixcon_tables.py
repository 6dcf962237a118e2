"""MixCon's tables, and its figure 3, beside what is measured here.

Accuracy:

    python benchmarks/mixcon_tables.py table1    # two normals, a network of four layers
    python benchmarks/mixcon_tables.py table3    # LeNet-5 on MNIST and Fashion-MNIST
    python benchmarks/mixcon_tables.py plane     # figure 3, as docs/results/mixcon-plane.png

Inversion, by the paper's attack and by others:

    python benchmarks/mixcon_tables.py table2      # the points of table 1
    python benchmarks/mixcon_tables.py inversion   # tables 3 and 4; or `mnist`, or `fashion`
    python benchmarks/mixcon_tables.py table5      # VGG16 on CIFAR-10, small
    python benchmarks/mixcon_tables.py tradeoff    # λ and β against the adaptive attack

All but `table1` and `table2` need `harness assets fetch mnist fashion cifar10 lpips-vgg16`. What is
stored already is not run again. The records of the tables are also kept below benchmarks/records.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness import evaluate
from harness.store.record import Records, RunRecord

ROOT = Path(__file__).parents[1]

SERVERS = ("default", "deeper", "wider")
SYNTHETIC = {
    "vanilla": "none",
    "beta=0.01": "mixcon[preset=synthetic,strength=0.1,beta=0.01]",
    "beta=0": "mixcon[preset=synthetic,strength=0.1,beta=0]",
}
TABLE_1 = {
    ("vanilla", "default"): 91.5,
    ("beta=0.01", "default"): 88.0,
    ("beta=0.01", "deeper"): 88.5,
    ("beta=0.01", "wider"): 90.5,
    ("beta=0", "default"): 50.0,
    ("beta=0", "deeper"): 50.0,
    ("beta=0", "wider"): 50.0,
}
"""Test accuracy in per cent, by training and server. Its vanilla is of the default server only."""

TRAININGS = 10

TABLE_3 = {
    ("mnist", "none"): 99.1,
    ("mnist", "mixcon[strength=1,beta=1e-4]"): 98.6,
    ("fashion", "none"): 89.8,
    ("fashion", "mixcon[strength=1,beta=1e-4]"): 88.9,
}
"""Test accuracy in per cent, by dataset and defense."""

STRENGTHS = ("0.01", "0.1", "1", "10", "100")
BETAS = ("1e-2", "1e-4", "1e-6", "1e-8")
"""Of figure 3, every second β and five of eight λ."""

HEAD = f"{'accuracy in %':<40}  paper    mean  median distance  each training"

Row = dict[str, Any]


def measured(record: RunRecord) -> Row:
    """Accuracies in per cent and the mean distance at the cut, or why there are none."""
    if record.utility is None:
        return {"failed": record.error, "record": record.id}
    own = record.utility.accuracies[record.utility.inference]
    return {
        "accuracy": round(100 * own.mean, 2),
        "median": round(100 * statistics.median(own.trainings), 2),
        "trainings": [round(100 * share, 2) for share in own.trainings],
        "distance": record.measures.get("separability.across.mean"),
        "record": record.id,
    }


def kept(record: RunRecord) -> RunRecord:
    """The same record, stored in benchmarks/records if it is of an evaluation that worked."""
    if record.status == "ok":
        Records(ROOT / "benchmarks", cache=False).save(record)
    return record


def table1(threads: int) -> Iterator[Row]:
    """Each training draws its own weights; all learn from the same 800 points.

    A draw whose units at the cut start saturated may never learn: hence so many trainings, and
    their median beside their mean.
    """
    for training, defense in SYNTHETIC.items():
        for server in SERVERS:
            record = evaluate(
                dataset="synthetic-mixcon",
                victim=f"mixcon-mlp[server={server}]",
                defense=defense,
                only="utility",
                preset="standard",
                private_size=800,
                public_size=200,
                test_size=200,
                repeats=TRAININGS,
                threads=threads,
            )
            paper = TABLE_1.get((training, server))
            title = f"{training}, {server}"
            yield {"title": title, "paper": paper, **measured(kept(record))}


def table3(threads: int) -> Iterator[Row]:
    """Fewer than 60 000 images to train on: a public pool is set apart, of Fashion-MNIST 5000."""
    for (dataset, defense), paper in TABLE_3.items():
        record = evaluate(
            dataset=dataset,
            victim="lenet5",
            defense=defense,
            only="utility",
            preset="standard",
            private_size=59_000 if dataset == "mnist" else 55_000,
            public_size=1000,
            test_size=10_000,
            threads=threads,
        )
        yield {"title": f"{dataset}, {defense}", "paper": paper, **measured(kept(record))}


def below_rest(beta: str) -> str:
    """ε at a tenth of √β, where pairs rest; the paper names no ε.

    Pairs closer than ε are no longer pushed apart, and the push there, β/ε², is 100 for every β.
    """
    return f"{math.sqrt(float(beta)) / 10:g}"


def plane(threads: int) -> Iterator[Row]:
    """A tenth of the images and half of the epochs, so that it takes minutes.

    The paper's SGD has a rate of .01 and no momentum that it speaks of. The engine's has .9, so
    that a rate of .001 steps as far; with more, λ = 100 trains networks whose every h(x) is 0.
    """
    for strength in STRENGTHS:
        for beta in BETAS:
            record = evaluate(
                dataset="fashion",
                victim="lenet5[epochs=10,lr=0.001,batch_size=16]",
                defense=f"mixcon[strength={strength},beta={beta},epsilon={below_rest(beta)}]",
                only="utility",
                preset="standard",
                private_size=6000,
                public_size=1000,
                test_size=10_000,
                threads=threads,
            )
            yield {"title": f"strength={strength}, beta={beta}", **measured(record)}


def line(row: Row) -> str:
    paper = f"{row['paper']:>7.1f}" if row.get("paper") is not None else " " * 7
    if "failed" in row:
        return f"{row['title']:<40}{paper}   {row['failed']}"
    several = row["trainings"] if len(row["trainings"]) > 1 else []
    distance = f"{row['distance']:>9.4f}" if row["distance"] is not None else " " * 9
    each = "  " + " ".join(f"{share:.1f}" for share in several)
    values = f"{row['accuracy']:>8.2f}{row['median']:>8.2f}{distance}"
    return f"{row['title']:<40}{paper}{values}{each}".rstrip()


def grid(rows: list[Row], what: str) -> list[list[float]]:
    """[strength][beta]: what the rows say, nan where a training failed."""
    values = [row.get(what, float("nan")) for row in rows]
    return [values[i : i + len(BETAS)] for i in range(0, len(values), len(BETAS))]


def draw(rows: list[Row], path: Path) -> None:
    """Accuracy and distance over the plane of λ and β, as a pair of heat maps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    titles = {"accuracy": "test accuracy, %", "distance": "mean distance across classes"}
    for axes, (what, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        cells = grid(rows, what)
        drawn = axes.imshow(cells, cmap="viridis", aspect="auto")
        figure.colorbar(drawn, ax=axes)
        axes.set(title=title, xlabel="β", ylabel="λ")
        axes.set_xticks(range(len(BETAS)), BETAS)
        axes.set_yticks(range(len(STRENGTHS)), STRENGTHS)
        write(axes, cells, "{:.1f}" if what == "accuracy" else "{:.3f}")
    figure.suptitle("MixCon, LeNet-5, 6 000 images of Fashion-MNIST, 10 epochs")
    figure.savefig(path, dpi=120)


def write(axes: Any, cells: list[list[float]], form: str) -> None:
    """Each cell's value in it, legible on light and dark."""
    for y, values in enumerate(cells):
        for x, value in enumerate(values):
            box = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1.5}
            axes.text(x, y, form.format(value), ha="center", va="center", fontsize=8, bbox=box)


TABLE_2 = {"vanilla": (1.92, 0.169), "beta=0.01": (2.08, 0.118), "beta=0": (2.35, 0.161)}
"""Mean squared error and cosine of inverted points, by training."""

INVERTED = {
    ("mnist", "none"): (0.64, 0.11, 0.83, 0.78),
    ("mnist", "mixcon[strength=1,beta=1e-4]"): (0.14, 0.11, 0.48, 0.44),
    ("mnist", "unicon[strength=1]"): (0.31, 0.11, 0.59, 0.41),
    ("fashion", "none"): (0.43, 0.17, 0.78, 0.71),
    ("fashion", "mixcon[strength=1,beta=1e-4]"): (0.17, 0.09, 0.52, 0.42),
    ("fashion", "unicon[strength=1]"): (0.19, 0.09, 0.53, 0.45),
}
"""Tables 3 and 4: SSIM, its deviation over images, its worst case, and PSIM."""

ATTACKS = (
    "inversion[preset=paper]",
    "inversion[preset=standard]",
    "inversion[preset=decoder,base=16,epochs=4]",
)

TABLE_5 = {
    "none": (0.53, 0.15, 0.9418, 0.92),
    "mixcon[strength=1,beta=1e-8]": (0.33, 0.15, 0.66, 0.85),
}
"""SSIM, its deviation and its worst case, and PSIM."""

SMALL_VGG = "vgg16[width=16,epochs=10,lr=0.02,batch_size=128,schedule=cosine]"

LEAK_STRENGTHS, LEAK_BETAS = ("0.1", "1", "10"), ("1e-2", "1e-4", "1e-6")


def leakage(record: RunRecord) -> Row:
    """What came back, as the paper's tables have it, or why nothing did."""
    if record.status != "ok":
        return {"failed": record.error, "record": record.id}
    scores = record.privacy
    return {
        "attack": record.attack.name if record.attack else "",
        "accuracy": round(100 * record.utility.accuracy, 2) if record.utility else None,
        **{name: _summary(scores[name]) for name in scores if scores[name].mean is not None},
        "record": record.id,
    }


def _summary(score: Any) -> dict[str, Any]:
    return {
        "mean": score.mean,
        "std": score.std,
        "ci": score.ci,
        "worst": score.worst,
        "null": score.null,
        "null_name": score.null_name,
    }


def table2(threads: int) -> Iterator[Row]:
    """All 200 test points, by the paper's attack and the adaptive one; five draws."""
    for training, defense in SYNTHETIC.items():
        for attack in ("inversion[preset=synthetic]", "inversion[preset=standard]"):
            for seed in range(5):
                record = evaluate(
                    dataset="synthetic-mixcon",
                    victim="mixcon-mlp",
                    defense=defense,
                    attack=attack,
                    release="features",
                    targets_from="heldout",
                    targets=200,
                    preset="standard",
                    private_size=800,
                    public_size=200,
                    test_size=200,
                    metrics="mse,cosine",
                    seed=seed,
                    threads=threads,
                )
                title = f"{training}, {attack}, draw {seed}"
                yield {"title": title, "paper": TABLE_2[training], **leakage(kept(record))}


def inversion(threads: int, only: str = "") -> Iterator[Row]:
    """100 held-out images of a victim trained on 20 000; 5000 are the attacker's.

    The paper's SGD has a rate of .01 and no momentum that it speaks of; the engine's has .9, so
    that a rate of .001 steps as far. It matters: at .01 features grow, and the paper's descent
    finds next to nothing.
    """
    for (dataset, defense), paper in INVERTED.items():
        if only not in dataset:
            continue
        for attack in ATTACKS:
            record = evaluate(
                dataset=dataset,
                victim="lenet5[lr=0.001]",
                defense=defense,
                attack=attack,
                release="features",
                targets_from="heldout",
                targets=100,
                preset="standard",
                private_size=20_000,
                public_size=5000,
                test_size=10_000,
                metrics="all",
                threads=threads,
            )
            yield {
                "title": f"{dataset}, {defense}, {attack}",
                "paper": paper,
                **leakage(kept(record)),
            }


def table5(threads: int) -> Iterator[Row]:
    """A sixteenth of the network, a tenth of the images, a thirtieth of the epochs.

    The decoder is trained for 5 epochs of the paper's 50, on 5000 images, with its adversary and
    without.
    """
    decoders = ("decoder-gan,epochs=5,base=16", "decoder,epochs=5,base=16")
    for defense, paper in TABLE_5.items():
        for attack in (f"inversion[preset={preset}]" for preset in (*decoders, "quick")):
            record = evaluate(
                dataset="cifar10",
                victim=SMALL_VGG,
                defense=defense,
                attack=attack,
                release="features",
                targets_from="heldout",
                targets=100,
                preset="standard",
                private_size=5000,
                public_size=5000,
                test_size=5000,
                metrics="all",
                threads=threads,
            )
            yield {"title": f"{defense}, {attack}", "paper": paper, **leakage(kept(record))}


def tradeoff(threads: int) -> Iterator[Row]:
    """Accuracy against the adaptive attack's SSIM; `harness show … --plane` draws the records."""
    pairs = [(strength, beta) for strength in LEAK_STRENGTHS for beta in LEAK_BETAS]
    mixcons = [f"mixcon[strength={s},beta={b},epsilon={below_rest(b)}]" for s, b in pairs]
    for defense in ["none", *mixcons]:
        record = evaluate(
            dataset="fashion",
            victim="lenet5[epochs=10,lr=0.001,batch_size=16]",
            defense=defense,
            attack="inversion[preset=standard]",
            release="features",
            targets_from="heldout",
            targets=100,
            preset="standard",
            private_size=6000,
            public_size=4000,
            test_size=10_000,
            metrics="snr_db,ssim,lpips_vgg",
            threads=threads,
        )
        yield {"title": defense, "paper": None, **leakage(kept(record))}


def leak_line(row: Row) -> str:
    if "failed" in row:
        return f"{row['title']:<66} {row['failed']}"
    cells = [f"{row['title']:<66}"]
    if row["accuracy"] is not None:
        cells.append(f"accuracy {row['accuracy']:.1f}")
    shown = ("ssim", "mse", "cosine", "lpips_vgg", "snr_db", "recognition")
    cells += [scored(name, row[name]) for name in shown if name in row]
    if "lpips_vgg" in row:  # the paper never names the network of its PSIM
        cells.append(f"1 - lpips {1 - row['lpips_vgg']['mean']:.2f}")
    if row["paper"]:
        cells.append("paper: " + ", ".join(papers(row["paper"])))
    return "  ".join(cells)


def papers(figures: tuple[float, ...]) -> list[str]:
    """The paper's figures by name: of points, or of images."""
    names = ("mse", "cosine") if len(figures) == 2 else ("ssim", "±", "best image", "PSIM")
    return [f"{name} {figure:g}" for name, figure in zip(names, figures, strict=True)]


def scored(name: str, score: dict[str, Any]) -> str:
    """`name mean ± deviation [interval] (worst; null)`."""
    interval = "[{:.3f}, {:.3f}]".format(*score["ci"]) if score["ci"] else ""
    worst = f"{score['worst']:.2f}" if score["worst"] is not None else "-"
    null = f"{score['null']:.3f}" if score["null"] is not None else "-"
    spread = f"{score['mean']:.3f} ± {score['std']:.3f}"
    return f"{name} {spread} {interval} (worst {worst}, {score['null_name']} {null})"


ACCURACIES = {"table1": table1, "table3": table3, "plane": plane}
LEAKAGES = {
    "table2": table2,
    "inversion": inversion,
    "mnist": partial(inversion, only="mnist"),
    "fashion": partial(inversion, only="fashion"),
    "table5": table5,
    "tradeoff": tradeoff,
}
TABLES = {**ACCURACIES, **LEAKAGES}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument(
        "--picture", type=Path, default=ROOT / "docs" / "mixcon-plane.png", help="of `plane`"
    )
    arguments = parser.parse_args()
    leaks = arguments.table in LEAKAGES
    if not (arguments.json or leaks):
        print(HEAD)
    rows = []
    for row in TABLES[arguments.table](arguments.threads):
        rows.append(row)
        text = leak_line(row) if leaks else line(row)
        print(json.dumps(row) if arguments.json else text, flush=True)
    if arguments.table == "plane":
        draw(rows, arguments.picture)


if __name__ == "__main__":
    main()
