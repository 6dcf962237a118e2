"""Images from gradients: `gradmatch` beside the package `breaching`, in one run on the same case.

    pip install -c constraints.txt -e '.[bench]'
    python benchmarks/gradmatch.py [--model strided lenet resnet18] [--threads 2 1] [--images 16]
    python benchmarks/gradmatch.py --quality [--images 20]

Every target is one CIFAR-10 image whose label is known, and whose gradient is of that image alone.
Both sides get the same network, weights, gradients and starting points, and descend the same
objective: 1 - cosine over all layers jointly, plus `--tv` times the mean over pixels and channels
of |down| + |right| differences (the image is taken to be 0 beyond its lower and right edge, as
`breaching` takes it), by Adam at .1 on the gradient's sign, the rate divided by ten at 3/8, 5/8
and 7/8, pixels held to the valid range. What differs is how: `breaching` takes one target after
another, `gradmatch` all at once.

The first table is of speed: image-iterations per second, of the best of several turns, without
what an attack of a single iteration takes (copies of the model, the final score). Memory is the
most that either side's own process held (`VmHWM` of Linux), and how much of that the attack added.
`--quality` is PSNR in dB on [0,1] after 600 and after 4800 iterations, mean over the images; and
that of `gradmatch` with its own total variation, which asks nothing of edges.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, pad

from harness.api import Collection, Config, Scale
from harness.assets.lookup import folder
from harness.store.paths import cache_root
from harness_plugins.attacks.gradmatch.distances import Observed
from harness_plugins.attacks.gradmatch.matching import at_once, distance_of
from harness_plugins.attacks.gradmatch.objective import Objective, total_variation
from harness_plugins.attacks.gradmatch.search import descend
from harness_plugins.datasets.cifar10 import CIFAR10
from harness_plugins.datasets.cifar10.dataset import Cifar10
from harness_plugins.torchvision_cpu import load_torchvision
from harness_plugins.victims.lenet_sigmoid import LeNetSigmoid, LeNetSigmoidConfig
from harness_plugins.victims.resnet18 import ResNet18Config
from harness_plugins.victims.resnet18.network import ResNet18
from harness_plugins.victims.strided import Strided, StridedConfig

MISSING = "breaching is not installed: pip install -c constraints.txt -e '.[bench]'"
SHAPE, CLASSES, CALIBRATION = (3, 32, 32), 10, 256
RATE, AT_ONCE = 0.1, 16
TV, LENGTHS = 0.01, (600, 4800)
"""Weight of the total variation, and the iterations after which `--quality` compares."""


@dataclass(frozen=True)
class Network:
    """What is attacked, with the iterations that are timed and the least gain in speed."""

    build: Callable[[], nn.Sequential]
    iterations: int
    least: float


NETWORKS = {
    "strided": Network(lambda: Strided(StridedConfig()).build(SHAPE, CLASSES), 60, 2.0),
    "lenet": Network(lambda: LeNetSigmoid(LeNetSigmoidConfig()).build(SHAPE, CLASSES), 100, 3.0),
    "resnet18": Network(lambda: ResNet18(ResNet18Config()).build(SHAPE, CLASSES), 4, 1.1),
}


@dataclass(frozen=True)
class Case:
    """What both sides are given, and the truth that they are compared with.

    `truth` and `starts` are standardised images [n,3,32,32], `labels` [n]; `gradients` hold one
    tuple of tensors an image, in the order of the model's parameters. `tv` is the weight of the
    total variation.
    """

    model: nn.Sequential
    labels: Tensor
    gradients: list[tuple[Tensor, ...]]
    starts: Tensor
    truth: Tensor
    scale: Scale
    tv: float


Variation = Callable[[Tensor], Tensor]
"""Images [n,1,c,h,w] to a total variation each."""

Side = Callable[[Case, int], Tensor]
"""A case and a number of iterations to standardised images [n,3,32,32]."""


def ours(case: Case, iterations: int, tv: Variation | None = None) -> Tensor:
    """Graphs of several targets, by the plugin's own gradients, distance and optimiser."""
    names = [name for name, _ in case.model.named_parameters()]
    released = [torch.stack(each) for each in zip(*case.gradients, strict=True)]
    observed = Observed.of(dict(zip(names, released, strict=True)), adaptive=True)
    distance = distance_of(case.model, observed, "cosine", case.starts[:1], train=False)
    objective = Objective(distance, tv=0.0, bn=0.0, moments={})
    size = at_once(distance, AT_ONCE)
    parts = torch.arange(len(case.labels)).split(size)
    of = tv or their_variation
    return torch.cat([descended(case, objective[rows], rows, iterations, of) for rows in parts])


def descended(
    case: Case, objective: Objective, rows: Tensor, iterations: int, variation: Variation
) -> Tensor:
    """Images [P,3,32,32] of the targets `rows`, in one graph."""
    labels = one_hot(case.labels[rows], CLASSES).to(case.truth.dtype).unsqueeze(1)

    def loss_of(variables: list[Tensor]) -> Tensor:
        return objective(variables[0], labels) + case.tv * variation(variables[0])

    def hold(variables: list[Tensor]) -> None:
        variables[0].copy_(case.scale.clamp(variables[0]))

    start = [case.starts[rows].unsqueeze(1)]
    found = descend(
        loss_of, start, steps=iterations, lr=RATE, signed=True, hold=hold, stepped=lambda _: None
    )
    return found.variables[0].squeeze(1)


def their_variation(images: Tensor) -> Tensor:
    """[n] of images [n,1,c,h,w]: the mean of |down| + |right|, zeros beyond those edges."""
    wider = pad(images, (0, 1, 0, 1))
    down = (wider[..., 1:, :-1] - images).abs()
    right = (wider[..., :-1, 1:] - images).abs()
    return (down + right).flatten(1).mean(1)


def theirs(case: Case, iterations: int) -> Tensor:
    """One target after another, by the attacker of "Inverting Gradients"."""
    from breaching.attacks import prepare_attack

    config = their_config(iterations, case.tv)
    attacker = prepare_attack(case.model, nn.CrossEntropyLoss(), config)
    server = [their_server(case)]
    found = []
    for k in range(len(case.labels)):
        user = [their_user(case, k)]
        images, _ = attacker.reconstruct(server, user, {}, initial_data=case.starts[k : k + 1])
        found.append(images["data"])
    return torch.cat(found)


SIDES: dict[str, Side] = {"ours": ours, "theirs": theirs}
WITHIN: Side = partial(ours, tv=total_variation)
"""Ours as the attack has it: nothing is said of what lies beyond an image's edges."""


def their_config(iterations: int, tv: float) -> Any:
    """Its `invertinggradients`, but for the length and the weight of the total variation."""
    import hydra

    changes = [f"optim.max_iterations={iterations}", f"regularization.total_variation.scale={tv}"]
    with hydra.initialize_config_module("breaching.config.attack", version_base="1.3"):
        return hydra.compose("invertinggradients", changes)


def their_server(case: Case) -> dict[str, Any]:
    """The model as the server has sent it; that there are buffers puts it in eval mode."""
    mean, std = case.scale.mean, case.scale.std
    metadata = SimpleNamespace(shape=SHAPE, mean=mean, std=std, modality="vision")
    state = {
        "parameters": list(case.model.parameters()),
        "buffers": list(case.model.buffers()),
    }
    return {**state, "metadata": metadata}


def their_user(case: Case, k: int) -> dict[str, Any]:
    """What the user of image k has shared."""
    metadata = {"num_data_points": 1, "labels": case.labels[k : k + 1], "local_hyperparams": None}
    return {"gradients": list(case.gradients[k]), "buffers": None, "metadata": metadata}


def load_peer() -> None:
    """Import `breaching`, or leave with the command that installs it."""
    load_torchvision()
    try:
        import breaching  # noqa: F401
    except ModuleNotFoundError as error:
        print(f"{MISSING} (no module {error.name})", file=sys.stderr)
        sys.exit(2)


def data() -> Collection:
    return Cifar10(Config()).load(folder([CIFAR10], cache_root()))


def calibrated(model: nn.Sequential, images: Tensor) -> nn.Sequential:
    """The model in eval mode; BatchNorm, if it has any, uses the statistics of these images."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model.train()(images)
    return model.eval()


def gradient_of(model: nn.Sequential, image: Tensor, label: Tensor) -> tuple[Tensor, ...]:
    """Of the cross-entropy of one image [1,3,32,32], with respect to every parameter."""
    return torch.autograd.grad(cross_entropy(model(image), label), list(model.parameters()))


def case_of(name: str, n: int, tv: float) -> Case:
    """The first n test images; the network is freshly drawn from a fixed seed."""
    collection = data()
    scale = collection.scale
    torch.manual_seed(0)
    others = collection.train[:CALIBRATION].standardised(scale).images
    model = calibrated(NETWORKS[name].build(), others)
    targets = collection.test[:n].standardised(scale)
    each = zip(targets.images.split(1), targets.labels.split(1), strict=True)
    gradients = [gradient_of(model, image, label) for image, label in each]
    starts = torch.randn(n, *SHAPE, generator=torch.Generator().manual_seed(1))
    return Case(model, targets.labels, gradients, starts, targets.images, scale, tv)


def psnr(case: Case, found: Tensor) -> Tensor:
    """In dB [n], on images in [0,1]."""
    truth, guess = (case.scale.restore(images).clamp(0, 1) for images in (case.truth, found))
    return -10 * (truth - guess).square().flatten(1).mean(1).log10()


def timed(side: Side, case: Case, iterations: int) -> tuple[float, Tensor]:
    started = time.perf_counter()
    found = side(case, iterations)
    return time.perf_counter() - started, found


def per_second(case: Case, iterations: int, repeats: int) -> dict[str, dict[str, float]]:
    """Image-iterations per second and PSNR of either side, which take turns."""
    short: dict[str, list[float]] = {name: [] for name in SIDES}
    long: dict[str, list[float]] = {name: [] for name in SIDES}
    quality: dict[str, float] = {}
    for _ in range(repeats):
        for name, side in SIDES.items():
            short[name].append(timed(side, case, 1)[0])
            taken, found = timed(side, case, iterations)
            long[name].append(taken)
            quality[name] = psnr(case, found).mean().item()
    work = len(case.labels) * (iterations - 1)
    return {
        name: {"rate": work / (min(long[name]) - min(short[name])), "psnr": quality[name]}
        for name in SIDES
    }


def held(field: str) -> float:
    """Megabytes of this process's memory, from Linux's `VmRSS` (now) or `VmHWM` (at most)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def own_peak(side: Side, case: Case) -> dict[str, float]:
    """Peak memory of a few iterations in this process, and how far above where it began."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = held("VmRSS")
    side(case, 3)
    most = held("VmHWM")
    return {"peak_mb": most, "added_mb": most - before}


def peak(side: str, model: str, images: int, threads: int) -> dict[str, float]:
    """The same in a fresh process; NaN where there is no Linux to ask."""
    if not Path("/proc/self/clear_refs").exists():
        return {"peak_mb": math.nan, "added_mb": math.nan}
    command = [sys.executable, __file__, "--peak-of", side, "--model", model]
    command += ["--images", str(images), "--threads", str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compared(model: str, case: Case, iterations: int, repeats: int) -> dict[str, Any]:
    """Both sides on one network, and the ratios of ours to theirs."""
    found, threads = per_second(case, iterations, repeats), torch.get_num_threads()
    for side in SIDES:
        found[side] |= peak(side, model, len(case.labels), threads)
    mine, peer = found["ours"], found["theirs"]
    return {
        "threads": threads,
        "model": model,
        "iterations": iterations,
        **found,
        "gain": mine["rate"] / peer["rate"],
        "least_gain": NETWORKS[model].least,
        "memory": mine["peak_mb"] / peer["peak_mb"],
    }


def quality(model: str, case: Case, iterations: int) -> dict[str, Any]:
    """PSNR of both sides on the same images, and the mean of what ours has more, in dB."""
    sides = {**SIDES, "within": WITHIN}
    each = {name: psnr(case, side(case, iterations)) for name, side in sides.items()}
    gain = (each["ours"] - each["theirs"]).tolist()
    return {
        "model": model,
        "iterations": iterations,
        "ours": each["ours"].mean().item(),
        "theirs": each["theirs"].mean().item(),
        "within": each["within"].mean().item(),
        "difference": statistics.fmean(gain),
        "standard_error": statistics.stdev(gain) / math.sqrt(len(gain)),
    }


def speed_heading(images: int, tv: float) -> None:
    print(f"{images} targets at once, tv {tv:g}; per second: image-iterations; MB: peak (added)")
    print(f"{'threads':>7}  {'model':<10}{'steps':>5}{'per s':>8}{'theirs':>8}{'gain':>7}", end="")
    print(f"{'at least':>9}{'PSNR':>7}{'theirs':>7}{'MB':>13}{'theirs':>13}{'ratio':>7}")


def speed_line(row: dict[str, Any]) -> None:
    mine, peer = row["ours"], row["theirs"]
    print(f"{row['threads']:>7}  {row['model']:<10}{row['iterations']:>5}", end="")
    print(f"{mine['rate']:>8.0f}{peer['rate']:>8.0f}{row['gain']:>7.2f}", end="")
    print(f"{row['least_gain']:>9.1f}{mine['psnr']:>7.2f}{peer['psnr']:>7.2f}", end="")
    memories = (f"{side['peak_mb']:.0f} ({side['added_mb']:.0f})" for side in (mine, peer))
    print("".join(f"{memory:>13}" for memory in memories), end="")
    print(f"{row['memory']:>7.2f}", flush=True)


def quality_heading(images: int, tv: float) -> None:
    print(f"mean PSNR in dB of {images} images, tv {tv:g}")
    print(f"{'model':<10}{'iterations':>11}{'ours':>8}{'theirs':>8}{'difference':>17}{'own tv':>8}")


def quality_line(row: dict[str, Any]) -> None:
    print(f"{row['model']:<10}{row['iterations']:>11}{row['ours']:>8.2f}", end="")
    difference = f"{row['difference']:+.2f} ± {row['standard_error']:.2f}"
    print(f"{row['theirs']:>8.2f}{difference:>17}{row['within']:>8.2f}", flush=True)


def speeds(asked: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    if not asked.json:
        speed_heading(asked.images, asked.tv)
    for threads in asked.threads:
        torch.set_num_threads(threads)
        for model in asked.model or NETWORKS:
            iterations = asked.iterations or NETWORKS[model].iterations
            case = case_of(model, asked.images, asked.tv)
            rows.append(compared(model, case, iterations, asked.repeats))
            if not asked.json:
                speed_line(rows[-1])
    return rows


def qualities(asked: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    torch.set_num_threads(asked.threads[0])
    if not asked.json:
        quality_heading(asked.images, asked.tv)
    for model in asked.model or ["strided"]:
        case = case_of(model, asked.images, asked.tv)
        for iterations in [asked.iterations] if asked.iterations else LENGTHS:
            rows.append(quality(model, case, iterations))
            if not asked.json:
                quality_line(rows[-1])
    return rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--model", nargs="+", choices=NETWORKS, help="default: all; quality: strided"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1], help="default: 2, then 1")
    parser.add_argument("--images", type=int, help="targets; default: 16, and 20 with --quality")
    parser.add_argument("--iterations", type=int, help="default: by model; quality: 600 and 4800")
    parser.add_argument("--repeats", type=int, default=3, help="of which the best counts")
    parser.add_argument("--tv", type=float, default=TV, help="weight of the total variation")
    parser.add_argument("--quality", action="store_true", help="PSNR after long attacks instead")
    parser.add_argument("--json", action="store_true", help="machine-readable, instead of tables")
    parser.add_argument("--peak-of", choices=SIDES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.images = asked.images or (20 if asked.quality else 16)
    if asked.images < 2 or (asked.iterations or 2) < 2:
        parser.error("at least 2 images and 2 iterations")
    return asked


def main() -> None:
    asked = arguments()
    if asked.peak_of != "ours":
        load_peer()
    if asked.peak_of:
        torch.set_num_threads(asked.threads[0])
        case = case_of(asked.model[0], asked.images, asked.tv)
        print(json.dumps(own_peak(SIDES[asked.peak_of], case)))
        return
    rows = qualities(asked) if asked.quality else speeds(asked)
    if asked.json:
        print(json.dumps({"images": asked.images, "tv": asked.tv, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
