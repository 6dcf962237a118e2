"""How fast a victim is trained, beside the few lines of PyTorch that one would write without it.

    python benchmarks/training.py [--threads 2 1] [--repeats 9] [--quick] [--json]

Times are the best of several repeats of one run, in which the harness and the PyTorch loop below
take turns, each from the same weights, on the same images and soft labels, in the same batches.
Both must end at the same bits, which is checked. Everything is on the CPU and in float32: else the
harness also changes the layout, and the two would no longer do the same work.

A second table has the same trainings, and that of the U-Net of attacks, in bfloat16 and
channels-last: beside float32 as the harness lays it out (victims in the usual layout, the U-Net
channels-last), and beside float32 in the usual layout. On a CPU that only emulates such numbers it
is slower; `benchmarks/precision.py` says what it does to what is learned.

A third table says what defenses that act on the training cost. It has no target: their work is
their own, and Opacus' for dpsgd.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import LambdaLR

from harness.api import Config, Recipe, Stage
from harness.api.precision import Precision
from harness.api.training import descend
from harness.asking.registry import registry
from harness.asking.request import parse_one, resolve
from harness.assets.lookup import folder
from harness.rng import KeyedStream
from harness.running.release import Stack
from harness.running.training import fit, fresh
from harness.store.paths import cache_root
from harness_plugins.datasets.fashion_mini import FASHION_MINI
from harness_plugins.datasets.fashion_mini.dataset import FashionMini
from harness_plugins.networks.training import channels_last
from harness_plugins.networks.unet import Denoiser

CPU, STREAM = torch.device("cpu"), KeyedStream(b"benchmark")
CLASSES, FEATURES, MOST = 10, (512, 3, 3), 1.2
"""Classes, the shape of features, and the most that a training may take over the plain loop."""

PRECISIONS: tuple[Precision, ...] = get_args(Precision)

CASES: dict[str, tuple[str, int, int]] = {
    "cnn": ("fashion-mini", 1024, 2),
    "lenet5": ("fashion-mini", 1024, 2),
    "mlp": ("fashion-mini", 2048, 2),
    "resnet18[width=16]": ("fashion-mini", 256, 1),
    "paper-head": ("features", 512, 1),
}
"""By victim: what it is trained on, how many rows of it, and for how many epochs.

Short, with many repeats: on a machine with other work, one of them is likely to go undisturbed.
"""

USUAL = "float32 in the usual layout"

UNET, PLANES, TOLD, BATCH = "unet", 9, 20, 64
"""The U-Net that attacks train, how many planes and numbers it is shown, images of a step."""

GUARDS = {
    "cnn": (
        "gradprune[p=0.9]",
        "gradprune[p=0.99]",
        "gradnoise",
        "mixcon",
        "unicon",
    ),
    "cnn[norm=group]": ("dpsgd[noise_multiplier=1]",),
    "paper-head": ("gradprune[p=0.9]", "gradnoise"),
}
"""By victim: the defenses whose cost over an unprotected training of it is measured.

`cnn` is small, most of its work is convolutions; `paper-head` has five million weights, each used
once an image, so that work on gradients weighs most.
"""


def plugin(kind: str, text: str) -> Any:
    """A built-in at work, chosen as on the command line."""
    known, choice = registry(), parse_one(text)
    spec = known.entries[kind][choice.name].spec
    config = resolve(spec, choice, "quick").config
    return known.build(kind, choice.name, config)


def guarded(text: str) -> Stack:
    """A stack of one defense that acts on gradients or on the training."""
    one = (text, plugin("defenses", text))
    spec = registry().spec("defenses", parse_one(text).name)
    return Stack(gradient=(one,)) if spec.stage is Stage.GRADIENT else Stack(training=(one,))


@dataclass(frozen=True)
class Training:
    """Where a training starts, what it reads (images and soft labels [n,...]), and its recipe."""

    start: nn.Sequential
    images: Tensor
    labels: Tensor
    recipe: Recipe


def material(source: str, n: int) -> tuple[Tensor, Tensor]:
    """Images and labels that are a tenth their neighbour's, as a mixture's would be."""
    if source == "features":
        images, classes = torch.randn(n, *FEATURES), torch.randint(CLASSES, (n,))
    else:
        data = FashionMini(Config()).load(folder([FASHION_MINI], cache_root()))
        private = data.train[:n].standardised(data.scale)
        images, classes = private.images, private.labels
    labels = one_hot(classes, CLASSES).float()
    return images, 0.9 * labels + 0.1 * labels.roll(1, dims=0)


def training(victim: str, source: str, n: int, epochs: int) -> Training:
    images, labels = material(source, n)
    network = plugin("victims", victim)
    start = fresh(network, tuple(images.shape[1:]), CLASSES, STREAM, device=CPU)
    recipe = network.config.model_copy(update={"epochs": epochs, "schedule": "cosine"})
    return Training(start, images, labels, recipe)


def harnessed(
    case: Training, stack: Stack | None, model: Any, precision: Precision = "float32"
) -> nn.Sequential:
    """Train with the engine's loop."""
    recipe = stack.adapt(case.recipe) if stack else case.recipe
    images, labels = case.images[None], case.labels[None]
    return fit(model, images, labels, recipe, STREAM, device=CPU, stack=stack, precision=precision)


def plain(case: Training, model: nn.Sequential) -> nn.Sequential:
    """Train as one would by hand; the seeds are those of the engine, so that the bits are."""
    recipe, n = case.recipe, len(case.images)
    order = STREAM.stream(what="order").generator()
    torch.manual_seed(STREAM.stream(what="global").seed())
    make: Any = {"adamw": AdamW, "sgd": partial(SGD, momentum=0.9)}[recipe.optimizer]
    rates = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    optimizer = make(model.parameters(), fused=True, **rates)
    steps = recipe.epochs * math.ceil(n / recipe.batch_size)
    schedule = LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * step / steps)) / 2)
    model.train()
    for _ in range(recipe.epochs):
        for rows in torch.randperm(n, generator=order).split(recipe.batch_size):
            optimizer.zero_grad()
            cross_entropy(model(case.images[rows]), case.labels[rows]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


Work = Callable[[Any], nn.Module]


def seconds(work: Work, start: nn.Module) -> float:
    """Time of one training of a copy of `start`, which is made before the clock runs."""
    model = deepcopy(start)
    started = time.perf_counter()
    work(model)
    return time.perf_counter() - started


def best(works: dict[str, Work], start: nn.Module, repeats: int) -> dict[str, float]:
    """Shortest time of each, taking turns so that a slow minute hits all."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(seconds(work, start))
    return {name: min(values) for name, values in times.items()}


def alike(works: Iterable[Work], start: nn.Sequential) -> bool:
    """Whether all of them end at the same bits."""
    first, *others = (work(deepcopy(start)).state_dict() for work in works)
    return all(torch.equal(first[name], other[name]) for other in others for name in first)


def against_plain(victim: str, quick: bool, repeats: int) -> dict[str, Any]:
    source, n, epochs = CASES[victim]
    case = training(victim, source, n // 2 if quick else n, epochs)
    works: dict[str, Work] = {
        "harness": partial(harnessed, case, None),
        "pytorch": partial(plain, case),
    }
    same = alike(works.values(), case.start)
    found = best(works, case.start, repeats)
    return {
        "victim": victim,
        "images_per_second": len(case.images) * epochs / found["harness"],
        "pytorch_images_per_second": len(case.images) * epochs / found["pytorch"],
        "ratio": found["harness"] / found["pytorch"],
        "at_most": MOST,
        "same_bits": same,
    }


def unet_steps(precision: Precision, network: nn.Module, *, usual: bool = False) -> nn.Module:
    """Some steps of the network of `unet` at its default size, on random numbers.

    Channels-last, as attacks have it, or in the `usual` layout.
    """
    if not usual:
        channels_last(network)
    draw = torch.Generator().manual_seed(0)
    planes = torch.randn(BATCH, PLANES, 32, 32, generator=draw)
    told = torch.randn(BATCH, TOLD, generator=draw)
    optimizer = torch.optim.Adam(network.parameters())
    list(
        descend(
            network,
            optimizer,
            range(8),
            lambda _: (network(planes, told) - planes[:, :3]).square().mean(),
            precision=precision,
        )
    )
    return network


def against_float32(name: str, quick: bool, repeats: int) -> dict[str, Any]:
    """How many times as fast a training is in bfloat16, than float32 in either layout."""
    if name == UNET:
        base = plugin("attacks", UNET).config.base
        start: nn.Module = Denoiser(PLANES, TOLD, 3, base)
        works: dict[str, Work] = {p: partial(unet_steps, p) for p in PRECISIONS}
        works[USUAL] = partial(unet_steps, "float32", usual=True)
    else:
        source, n, epochs = CASES[name]
        case = training(name, source, n // 2 if quick else n, epochs)
        start = case.start
        works = {p: partial(harnessed, case, None, precision=p) for p in PRECISIONS}
        works[USUAL] = partial(plain, case)
    found = best(works, start, repeats)
    return {
        "training": name,
        "times_as_fast": found["float32"] / found["bfloat16"],
        "times_as_fast_as_usual": found[USUAL] / found["bfloat16"],
    }


def against_unprotected(victim: str, quick: bool, repeats: int) -> list[dict[str, Any]]:
    source, n, epochs = CASES[parse_one(victim).name]
    case = training(victim, source, n // 2 if quick else n, epochs)
    works = {guard: partial(harnessed, case, guarded(guard)) for guard in GUARDS[victim]}
    found = best({"none": partial(harnessed, case, None), **works}, case.start, repeats)
    return [
        {"victim": victim, "defense": guard, "ratio": found[guard] / found["none"]}
        for guard in works
    ]


def report(
    rows: list[dict[str, Any]], reduced: list[dict[str, Any]], guards: list[dict[str, Any]]
) -> None:
    print(f"{'threads':>7}  {'victim':<20}{'images/s':>10}{'PyTorch':>10}", end="")
    print(f"{'ratio':>7}{'at most':>9}{'same bits':>11}")
    for row in rows:
        print(f"{row['threads']:>7}  {row['victim']:<20}{row['images_per_second']:>10.0f}", end="")
        print(f"{row['pytorch_images_per_second']:>10.0f}{row['ratio']:>7.2f}", end="")
        print(f"{row['at_most']:>9.2f}{'yes' if row['same_bits'] else 'NO':>11}")
    print(f"\n{'bfloat16, channels-last, is so many times as fast as':<70}")
    print(f"{'threads':>7}  {'training':<20}{'float32 here':>14}{USUAL:>32}")
    for row in reduced:
        print(f"{row['threads']:>7}  {row['training']:<20}{row['times_as_fast']:>14.2f}", end="")
        print(f"{row['times_as_fast_as_usual']:>32.2f}")
    print(f"\n{'threads':>7}  {'victim':<20}{'defense':<28}{'unprotected training is 1':>26}")
    for row in guards:
        print(f"{row['threads']:>7}  {row['victim']:<20}{row['defense']:<28}{row['ratio']:>26.2f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1], help="default: 2, then 1")
    parser.add_argument("--repeats", type=int, help="of which the best counts; default: 9")
    parser.add_argument(
        "--case", action="append", choices=(*CASES, UNET), help="only this one; repeatable"
    )
    parser.add_argument("--quick", action="store_true", help="half of the images, and 3 repeats")
    parser.add_argument("--json", action="store_true", help="machine-readable, instead of tables")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    repeats = asked.repeats or (3 if asked.quick else 9)
    rows, reduced, guards = [], [], []
    for threads in asked.threads:
        torch.set_num_threads(threads)
        for victim in (name for name in asked.case or CASES if name != UNET):
            found = against_plain(victim, asked.quick, repeats)
            rows.append({"threads": threads, **found})
        reduced += [
            {"threads": threads, **against_float32(name, asked.quick, repeats)}
            for name in asked.case or (*CASES, UNET)
        ]
        for victim in () if asked.case else GUARDS:
            costs = against_unprotected(victim, asked.quick, repeats)
            guards += [{"threads": threads, **cost} for cost in costs]
    if asked.json:
        tables = {
            "against_pytorch": rows,
            "against_float32": reduced,
            "against_unprotected": guards,
        }
        print(json.dumps(tables, indent=1))
    else:
        report(rows, reduced, guards)


if __name__ == "__main__":
    main()
