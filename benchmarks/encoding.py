"""How fast images are encoded, beside plain PyTorch and beside a copy of the same bytes.

    python benchmarks/encoding.py [--threads 2 1] [--images 50000] [--repeats 3] [--json]
    python benchmarks/encoding.py --large [--images 45000] [--rounds 3] [--threads 2]

Times are the best of several repeats of one run, in which the copy, the defense and the PyTorch
version of its law take turns. The PyTorch versions are below: whole tensors, few lines each, and
randomness without a key. The radius of singmix is given: it is calibrated once for a release, not
once a round. Memory is the peak of a fresh process above what it held with its input, over the
bytes of the release (at most 2); on Linux alone.

`stream` is what rounds cost that are made piece by piece for another process, which reads them as
a learner does, over what they cost made and held here and then read (at most 1.2).

With `--large` rounds of singmix of feature maps, 18 432 values each, of made-up private images
are streamed: seconds a round, and the peak memory of both processes, which has to stay below 6 GB
however many rounds there are.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, one_hot

from harness.api import AssetUnavailable, Config, Samples, SamplesOnDemand, Scale
from harness.assets.lookup import folder
from harness.rng import KeyedStream
from harness.running.encoding import Source
from harness.running.samples import on_demand
from harness.sandbox.feed import Fed, Feed, Giver
from harness.sandbox.lines import ChildLines, ParentLines
from harness.store.paths import cache_root
from harness_plugins.datasets.cifar10 import CIFAR10
from harness_plugins.datasets.cifar10.dataset import Cifar10
from harness_plugins.datasets.classes_and_scales import CIFAR10_SCALE as SCALE

IMAGES, PUBLIC, CLASSES, RADIUS = 50_000, 10_000, 10, 86.9
ROUNDS = 3
"""Of a release that is streamed, or held."""
LARGE, MAPS = 45_000, (2048, 3, 3)
LINUX = Path("/proc/self/clear_refs").exists()


def plain_weights(n: int, k: int) -> Tensor:
    weights = torch.rand(n, k)
    weights /= weights.sum(1, keepdim=True)
    while (above := weights.amax(1) > 0.65).any():
        again = torch.rand(int(above.sum()), k)
        weights[above] = again / again.sum(1, keepdim=True)
    return weights


def plain_mixup(
    private: Samples, k: int, mixed: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Images, labels and all k weights, where only `mixed` of the k are private."""
    x, y = private.images, one_hot(private.labels, CLASSES).float()
    weights = plain_weights(len(x), k)
    images, labels = weights[:, :1, None, None] * x, weights[:, :1] * y
    for j in range(1, mixed or k):
        partners = torch.randperm(len(x))
        images += weights[:, j].view(-1, 1, 1, 1) * x[partners]
        labels += weights[:, j : j + 1] * y[partners]
    return images, labels, weights


def masked(images: Tensor) -> Tensor:
    return images * (torch.randint(0, 2, images.shape) * 2 - 1)


def plain_inside(private: Samples, k: int) -> tuple[Tensor, Tensor]:
    images, labels, _ = plain_mixup(private, k)
    return masked(images), labels


def plain_cross(private: Samples, public: Samples, k: int) -> tuple[Tensor, Tensor]:
    images, labels, weights = plain_mixup(private, k, mixed=2)
    least = energy(public.images).median() / 4
    for j in range(2, k):
        crops = plain_crops(public.images[torch.randint(len(public), (len(images),))], least)
        images += weights[:, j].view(-1, 1, 1, 1) * crops
    return masked(images), labels


def plain_crops(images: Tensor, least: Tensor) -> Tensor:
    """A random crop of each image; what is flat is cropped again, three times at most."""
    crops = cropped(images)
    for _ in range(3):
        flat = energy(crops) < least
        crops[flat] = cropped(images[flat])
    return crops


def energy(images: Tensor) -> Tensor:
    down, across = images.diff(dim=2).square(), images.diff(dim=3).square()
    return down.mean((1, 2, 3)) + across.mean((1, 2, 3))


def cropped(images: Tensor) -> Tensor:
    size = 0.5 + 0.5 * torch.rand(len(images), 1, 1)
    shift = (2 * torch.rand(len(images), 2, 1) - 1) * (1 - size)
    window = torch.cat([size * torch.eye(2), shift], 2)
    grid = affine_grid(window, list(images.shape), align_corners=False)
    return grid_sample(images, grid, padding_mode="border", align_corners=False)


def plain_singmix(private: Samples, k: int) -> tuple[Tensor, Tensor]:
    x, y = private.images, one_hot(private.labels, CLASSES).float()
    weights, partners = plain_weights(len(x), k), torch.randperm(len(x))
    noise = torch.randn_like(x)
    noise *= (RADIUS / noise.flatten(1).norm(dim=1)).view(-1, 1, 1, 1)
    own, other = weights.view(-1, 2, 1, 1, 1).unbind(1)
    labels = weights[:, :1] * y + weights[:, 1:] * y[partners]
    return own * x + other * (x[partners] + noise), labels


CASES: dict[str, tuple[str, dict[str, Any], Callable[..., object], int, float]] = {
    "mixup k=4": ("mixup:Mixup", {"k": 4}, lambda x, _, k: plain_mixup(x, k), 4, 1.7),
    "instahide inside k=4": (
        "instahide:InstaHide",
        {"k": 4},
        lambda x, _, k: plain_inside(x, k),
        4,
        1.5,
    ),
    "instahide inside k=6": (
        "instahide:InstaHide",
        {"k": 6},
        lambda x, _, k: plain_inside(x, k),
        6,
        1.5,
    ),
    "instahide cross k=4": (
        "instahide:InstaHide",
        {"k": 4, "scheme": "cross"},
        plain_cross,
        4,
        1.5,
    ),
    "instahide cross k=6": (
        "instahide:InstaHide",
        {"k": 6, "scheme": "cross"},
        plain_cross,
        6,
        1.5,
    ),
    "singmix": (
        "singmix:Singmix",
        {"radius": RADIUS},
        lambda x, _, k: plain_singmix(x, k),
        2,
        1.0,
    ),
}
"""By name: the defense, its config, the PyTorch version and its k, and the least gain over it."""


def defense(case: str) -> Any:
    where, options = CASES[case][:2]
    name, cls = where.split(":")
    package = importlib.import_module(f"harness_plugins.defenses.{name}")
    work = importlib.import_module(f"harness_plugins.defenses.{name}.encode")
    return getattr(work, cls)(getattr(package, f"{cls}Config")(**options))


def random_samples(n: int) -> Samples:
    return Samples(torch.randn(n, 3, 32, 32), torch.randint(CLASSES, (n,)))


def data(n: int) -> tuple[Samples, Samples, str]:
    """Private and public images, standardised, and where they are from."""
    try:
        found = Cifar10(Config()).load(folder([CIFAR10], cache_root()))
    except AssetUnavailable as absent:
        return random_samples(n), random_samples(PUBLIC), f"random numbers ({absent})"
    public = found.test.standardised(SCALE)
    return found.train[:n].standardised(SCALE), public, "CIFAR-10"


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def best(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Shortest time of each, taking turns so that a slow minute hits all."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(seconds(work))
    return {name: min(values) for name, values in times.items()}


def speed(case: str, private: Samples, public: Samples, repeats: int) -> dict[str, float]:
    work, (_, _, plain, k, target) = defense(case), CASES[case]
    found = best(
        {
            "copy": private.images.clone,
            "harness": lambda: work.encode(private, public, KeyedStream(b"benchmark")),
            "pytorch": lambda: plain(private, public, k),
        },
        repeats,
    )
    return {
        "images_per_second": len(private) / found["harness"],
        "copies": found["harness"] / found["copy"],
        "pytorch_copies": found["pytorch"] / found["copy"],
        "gain": found["pytorch"] / found["harness"],
        "least_gain": target,
    }


class Reader:
    """A process that reads a release as a learner does, over the very lines and files."""

    def __init__(self) -> None:
        command = [sys.executable, __file__, "--reader"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.lines = ChildLines(self.process.stdin, self.process.stdout)
        self._until("ready")

    def read(self, source: Source) -> int:
        """Have all rounds read; gives the peak of the process's memory."""
        how = {"rounds": source.rounds, "rows": source.rows, "shape": source.shape}
        self.lines.send(**how)
        with TemporaryDirectory() as folder, Giver(Feed(source, Path(folder)), self.lines) as giver:
            return int(self._until("peak", giver)["peak"])

    def _until(self, end: str, giver: Giver | None = None) -> dict[str, Any]:
        while True:
            for message in self.lines.receive(0.2):
                if end in message:
                    return message
                if giver:
                    giver.give(*message["wanted"])
            if giver:
                giver.check()

    def close(self) -> None:
        """Hang up, on which it ends."""
        self.lines.close()
        self.process.wait()


def read_forever() -> None:
    """What a reader's process does: it looks at every value of every piece."""
    parent = ParentLines(lambda: os._exit(0))
    torch.set_num_threads(1)
    parent.send(ready=True)
    while True:
        how = parent.receive()
        shape = tuple(how["shape"])
        released = Fed(
            how["rounds"], how["rows"], shape, CLASSES, torch.device("cpu"), parent.fetch
        )
        for t in range(released.rounds):
            for images, _ in released.pieces(t):
                torch.aminmax(images)
        parent.send(peak=held("VmHWM") if LINUX else 0)


def rounds_of(case: str, private: SamplesOnDemand, public: Samples, rounds: int) -> Source:
    key = KeyedStream(b"benchmark")
    return Source(private, public, (case, defense(case)), key, rounds, CLASSES)


def streamed(case: str, private: Samples, public: Samples, repeats: int) -> float:
    """Rounds made for another process that reads them, over rounds held and then read."""
    source, reader = rounds_of(case, private, public, ROUNDS), Reader()

    def hold() -> None:
        for round_ in source.held().images:
            torch.aminmax(round_)

    found = best({"stream": lambda: reader.read(source), "held": hold}, repeats)
    reader.close()
    return found["stream"] / found["held"]


def large(n: int, rounds: int) -> None:
    """Rounds of feature maps that do not fit in memory together."""
    maps = torch.empty(n, *MAPS)
    for part in maps.split(1000):
        part.normal_()
    scale = Scale((0.4,) * MAPS[0], (1.3,) * MAPS[0], low=None, high=None)
    private = on_demand(Samples(maps, torch.arange(n) % CLASSES), scale)
    source = rounds_of("singmix", private, Samples(torch.empty(0, *MAPS), torch.empty(0)), rounds)
    reader = Reader()
    wall, work = time.perf_counter(), time.process_time()
    other = reader.read(source)
    wall, work = time.perf_counter() - wall, time.process_time() - work
    own = held("VmHWM") if LINUX else 0
    reader.close()
    print(f"{n} maps of {math.prod(MAPS)} values, {rounds} rounds")
    print(f"a round: {wall / rounds:.1f} s, {work / rounds:.1f} s of a processor")
    print(f"peak memory: {own / 1e9:.2f} GB here, {other / 1e9:.2f} GB where they are read")


def held(field: str) -> int:
    """Bytes of this process's memory, from Linux's `VmRSS` (now) or `VmHWM` (at most)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{field}:")[1].split()[0]) * 1024


def own_peak(case: str, n: int) -> float:
    """Peak memory of one encoding in this process, over the release's bytes."""
    private, public, _ = data(n)
    work = defense(case)
    work.encode(private[:64], public[:64], KeyedStream(b"warm"))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = held("VmRSS")
    made = work.encode(private, public, KeyedStream(b"benchmark"))
    return float((held("VmHWM") - before) / made.images.nbytes)


def peak(case: str, n: int, threads: int) -> float:
    """The same in a fresh process; NaN where there is no Linux to ask."""
    if not LINUX:
        return math.nan
    command = [sys.executable, __file__, "--peak-of", case, "--images", str(n)]
    command += ["--threads", str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout)


def heading(source: str, n: int) -> None:
    print(f"{n} images of {source}; a copy of them is 1")
    print(f"{'threads':>7}  {'defense':<22}{'images/s':>10}{'copies':>8}", end="")
    print(f"{'PyTorch':>9}{'gain':>7}{'at least':>10}{'peak':>7}{'stream':>8}")


def line(row: dict[str, Any]) -> None:
    print(f"{row['threads']:>7}  {row['defense']:<22}{row['images_per_second']:>10.0f}", end="")
    print(f"{row['copies']:>8.2f}{row['pytorch_copies']:>9.2f}{row['gain']:>7.2f}", end="")
    print(f"{row['least_gain']:>10.2f}{row['peak']:>7.2f}{row['stream']:>8.2f}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1], help="default: 2, then 1")
    parser.add_argument("--images", type=int, help=f"default: {IMAGES}; {LARGE} with --large")
    parser.add_argument("--large", action="store_true", help="rounds larger than memory instead")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="with --large")
    parser.add_argument("--repeats", type=int, default=3, help="of which the best counts")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; repeatable")
    parser.add_argument("--json", action="store_true", help="machine-readable, instead of a table")
    parser.add_argument("--peak-of", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--reader", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.images = asked.images or (LARGE if asked.large else IMAGES)
    return asked


def main() -> None:
    asked = arguments()
    torch.set_num_threads(asked.threads[0])
    if asked.reader:
        read_forever()
    elif asked.peak_of:
        print(own_peak(asked.peak_of, asked.images))
    elif asked.large:
        large(asked.images, asked.rounds)
    else:
        compare(asked)


def compare(asked: argparse.Namespace) -> None:
    """Every case with so many threads, line by line."""
    private, public, source = data(asked.images)
    if not asked.json:
        heading(source, asked.images)
    rows = []
    for threads in asked.threads:
        torch.set_num_threads(threads)
        for case in asked.case or CASES:
            measured = speed(case, private, public, asked.repeats)
            measured["peak"] = peak(case, asked.images, threads)
            measured["stream"] = streamed(case, private, public, asked.repeats)
            rows.append({"threads": threads, "defense": case, **measured})
            if not asked.json:
                line(rows[-1])
    if asked.json:
        print(json.dumps({"images": asked.images, "source": source, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
