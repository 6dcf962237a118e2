"""How fast known mixtures are solved, beside SciPy's solvers and the paper's gradient descent.

    python benchmarks/linear.py [--threads 2 1] [--images 2000 20000] [--alone 2000 20000 200000]

Side by side in one run, on one release of pairs (singularized mixup at tau=1, d = 3072): images
are Gaussian, with variances that fall as those of CIFAR-10 do. SciPy's sparse LU and LSQR solve
32 of the columns, the descent takes 20 of its 200 steps, and their times are scaled up. LSQR stops
at the residual that `exact` has, or after 2000 steps without having got there. `lmmse` is given its
prior; what learning that takes stands above the table. Residual is |W x - x~| / |x~|, that of
`exact` for an answer in float64: inverted noise is so large that float32 rounds it by more than
the release. SNR is the mean over images in dB, unclamped but for the descent, whose steps are.

Alone, each size in a process of its own: release and answer are memory-mapped files, and memory
is the most that the process held beside them (`Anonymous` of Linux' smaps_rollup, sampled). The
release is random numbers there: neither time nor memory depends on them.

    python benchmarks/linear.py --copies 1 10 100 [--threads 1]

What the paper's descent brings back of 1000 images in noise-free pairs (16 px a side), and of so
many copies of that release side by side, as one of as many more images: all have the same score,
or the descent gets weaker with the number of images alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import lsqr, splu
from torch import Tensor

from harness.api import Samples
from harness.rng import KeyedStream
from harness_plugins.attacks.exact.inversion import invert
from harness_plugins.attacks.linear.descent import Objective, descend
from harness_plugins.defenses.singmix.encode import draw_weights
from harness_plugins.mixtures.law import NoiseLaw
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.mixtures.posterior import Mixed
from harness_plugins.mixtures.prior import GaussianPrior, prior_of

CHANNELS, SIDE = 3, 32
D, RADIUS, ALPHA = CHANNELS * SIDE**2, 86.9, 0.65
PUBLIC, COLUMNS, STEPS, TAKEN, PATIENCE = 8000, 32, 200, 20, 2000
COPIED, SMALL = 1000, 16
LEAST = {"exact": 20.0, "lmmse": 8.0}
"""How many times faster than the descent each has to be."""
SLOPE, MEGABYTES = 2.0, 1000.0
"""Most time per row over that of the smallest size, and most memory."""
LAW = NoiseLaw(gain=1.0, constant=0.0, cover=RADIUS**2 / D, patches=0.0, rounding=1e-12)


def quiet(done: int, total: int, note: str = "") -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class World:
    """Gaussian images: an eigenbasis [D, D], and the deviation along each direction."""

    basis: Tensor
    deviations: Tensor

    @classmethod
    def like_images(cls) -> World:
        """Variances fall with the power 1.5 of their rank, and are 1 in the mean."""
        generator = torch.Generator().manual_seed(0)
        basis, _ = torch.linalg.qr(torch.randn(D, D, generator=generator))
        variances = torch.arange(1, D + 1).float().pow(-1.5)
        return cls(basis, (variances * D / variances.sum()).sqrt())

    def draw(self, n: int, seed: int) -> Tensor:
        """[n, D]."""
        unit = torch.randn(n, D, generator=torch.Generator().manual_seed(seed))
        return unit.mul_(self.deviations) @ self.basis.T


def pairs(n: int) -> Mixture:
    """Algorithm 1's weights and partners."""
    rng = KeyedStream(b"benchmark").stream(n=n)
    sources = torch.stack([torch.arange(n), rng.permutation(n)], 1)
    return Mixture.of(draw_weights(n, ALPHA, rng)[None], sources[None], n)


def covered(mixture: Mixture, images: Tensor) -> Tensor:
    """Rows [n, D] of the release: the noise is of the power that the law tells."""
    rows = mixture.apply(images)
    noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(2))
    return rows.addcmul_(noise, LAW.power(mixture.weights).sqrt().float().view(-1, 1))


def learned(world: World) -> tuple[GaussianPrior, float]:
    """The prior of public images, and the seconds that learning it took."""
    public = Samples(world.draw(PUBLIC, 1), torch.zeros(PUBLIC, dtype=torch.int64))
    started = time.perf_counter()
    return prior_of(public, 1, "public", 4000), time.perf_counter() - started


def sparse(mixture: Mixture) -> csr_matrix:
    n = mixture.n
    each = np.arange(n).repeat(2)
    entries = mixture.weights.double().flatten().numpy(), (each, mixture.sources.flatten().numpy())
    return csr_matrix(entries, shape=(n, n))


def by_exact(mixture: Mixture, rows: Tensor) -> Tensor:
    return invert(mixture, rows, quiet).values


def by_lmmse(mixture: Mixture, rows: Tensor, prior: GaussianPrior) -> Tensor:
    return Mixed.of(prior, LAW, mixture, None).estimate(rows, report=quiet)


def by_lu(mixture: Mixture, rows: Tensor) -> Tensor:
    solved = splu(sparse(mixture).tocsc()).solve(rows.double().numpy())
    return torch.from_numpy(solved)


def by_lsqr(mixture: Mixture, rows: Tensor, residual: float) -> Tensor:
    """Each column until its residual is `residual`, or for `PATIENCE` steps."""
    matrix, columns = sparse(mixture), rows.double().numpy().T
    options = {"atol": 0.0, "btol": residual, "conlim": 0.0, "iter_lim": PATIENCE}
    return torch.from_numpy(np.stack([lsqr(matrix, column, **options)[0] for column in columns], 1))


def by_descent(mixture: Mixture, rows: Tensor, steps: int) -> Tensor:
    """The paper's, one channel at a time, within the values that images have."""
    images = torch.empty(mixture.n, D)
    for block in torch.arange(D).split(SIDE**2):
        part = slice(int(block[0]), int(block[-1]) + 1)
        objective = Objective(mixture, rows[:, part].contiguous(), (SIDE, SIDE), 1e-3, 1e-4)
        images[:, part] = descend(objective, (-3.0, 3.0), steps, 0.05, lambda _: None)
    return images


def timed(work: Callable[[], Tensor]) -> tuple[Tensor, float]:
    started = time.perf_counter()
    found = work()
    return found, time.perf_counter() - started


def residual_of(mixture: Mixture, rows: Tensor, found: Tensor) -> float:
    left = mixture.apply(found.double()) - rows
    return float(left.norm() / rows.double().norm())


def snr_of(images: Tensor, found: Tensor) -> float:
    error = (found - images).double().square().sum(1)
    return float((10 * (images.double().square().sum(1) / error).log10()).mean())


def side_by_side(n: int, world: World, prior: GaussianPrior, taken: int) -> list[dict[str, Any]]:
    mixture, images = pairs(n), world.draw(n, 3)
    rows = covered(mixture, images)
    few = slice(0, COLUMNS)
    exact, seconds = timed(lambda: by_exact(mixture, rows))
    residual = residual_of(mixture, rows[:, few], by_exact(mixture, rows[:, few].double()))
    works: dict[str, tuple[Callable[[], Tensor], slice, float]] = {
        "lmmse": (lambda: by_lmmse(mixture, rows, prior), slice(None), 1.0),
        "sparse LU": (lambda: by_lu(mixture, rows[:, few]), few, D / COLUMNS),
        "LSQR": (lambda: by_lsqr(mixture, rows[:, few], residual), few, D / COLUMNS),
        "descent": (lambda: by_descent(mixture, rows, taken), slice(None), STEPS / taken),
    }
    results = [row_of("exact", n, seconds, residual, snr_of(images, exact))]
    for name, (work, columns, scale) in works.items():
        found, seconds = timed(work)
        told = residual_of(mixture, rows[:, columns], found)
        score = snr_of(images[:, columns], found)
        results.append(row_of(name, n, seconds * scale, told, score))
    return compared(results)


def row_of(name: str, n: int, seconds: float, residual: float, snr: float) -> dict[str, Any]:
    return {"solver": name, "images": n, "seconds": seconds, "residual": residual, "snr_db": snr}


def compared(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With how many times faster than the descent each is, and what is asked."""
    slowest = next(row["seconds"] for row in results if row["solver"] == "descent")
    for row in results:
        row["gain"] = slowest / row["seconds"]
        row["least_gain"] = LEAST.get(row["solver"], math.nan)
    return results


def held() -> int:
    """Bytes of this process that no file holds."""
    told = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    found = re.search(r"^Anonymous:\s+(\d+)", told, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


@contextmanager
def watched() -> Iterator[list[float]]:
    """The most megabytes held at any sample above those held at the start, at the end."""
    done, before, most = Event(), held(), [0.0]

    def watch() -> None:
        while not done.wait(0.05):
            most[0] = max(most[0], (held() - before) / 2**20)

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()


def mapped(path: Path, n: int, *, filled: bool) -> Tensor:
    """[n, D] float32 in a new file."""
    rows = np.memmap(path, np.float32, "w+", shape=(n, D))
    generator = np.random.default_rng(0)
    for start in range(0, n if filled else 0, 4000):
        block = rows[start : start + 4000]
        block[:] = generator.standard_normal(block.shape, dtype=np.float32)
    rows.flush()
    return torch.from_numpy(rows)


def eigenbasis() -> GaussianPrior:
    world = World.like_images()
    mean, one = torch.zeros(D), torch.ones(())
    return GaussianPrior(mean, mean[None], world.basis, world.deviations.square(), 0 * one, one)


def own(solver: str, n: int) -> dict[str, Any]:
    """Time per row and peak memory of one solver in this process."""
    prior, mixture = eigenbasis(), pairs(n)
    with TemporaryDirectory() as folder:
        rows = mapped(Path(folder) / "release", n, filled=True)
        out = mapped(Path(folder) / "answer", n, filled=False)
        with watched() as most:
            started = time.perf_counter()
            if solver == "exact":
                invert(mixture, rows, quiet, out)
            else:
                Mixed.of(prior, LAW, mixture, None).estimate(rows, out, quiet)
            seconds = time.perf_counter() - started
    row_time = seconds / n * 1e6
    return {"solver": solver, "images": n, "microseconds_a_row": row_time, "megabytes": most[0]}


def alone(sizes: list[int], threads: int) -> list[dict[str, Any]]:
    if not sizes or not Path("/proc/self/smaps_rollup").exists():
        return []
    results = []
    for solver in LEAST:
        each = [in_process(solver, n, threads) for n in sizes]
        first = each[0]["microseconds_a_row"]
        results += [{**row, "growth": row["microseconds_a_row"] / first} for row in each]
    return results


def in_process(solver: str, n: int, threads: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--own", solver, "--images", str(n)]
    command += ["--threads", str(threads)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def copied(copies: list[int], threads: int) -> list[dict[str, Any]]:
    """SNR of the paper's 200 steps where one release stands so many times side by side."""
    torch.set_num_threads(threads)
    truth = smooth(COPIED, KeyedStream(b"copies"))
    rng = KeyedStream(b"mixture")
    weights = draw_weights(COPIED, ALPHA, rng)
    sources = torch.stack([torch.arange(COPIED), rng.permutation(COPIED)], 1)
    found = []
    for times in copies:
        shift = COPIED * torch.arange(times).repeat_interleave(COPIED).view(-1, 1)
        n = COPIED * times
        spread = sources.repeat(times, 1) + shift
        mixture = Mixture.of(weights.repeat(times, 1)[None], spread[None], n)
        images = truth.repeat(times, 1)
        objective = Objective(mixture, mixture.apply(images), (SMALL, SMALL), 1e-3, 1e-4)
        answer = descend(objective, (-3.0, 3.0), STEPS, 0.05, lambda _: None)
        found.append({"images": n, "threads": threads, "snr_db": snr_of(images, answer)})
    return found


def smooth(n: int, rng: KeyedStream) -> Tensor:
    """[n, SMALL²]: coarse normal numbers, enlarged."""
    coarse = rng.normal(n, 1, SMALL // 4, SMALL // 4)
    images = torch.nn.functional.interpolate(coarse, size=(SMALL, SMALL), mode="bilinear")
    return images.flatten(1).clamp_(-3, 3)


def report_copied(rows: list[dict[str, Any]]) -> None:
    print(f"{'threads':>7}{'images':>9}{'SNR dB':>9}")
    for row in rows:
        print(f"{row['threads']:>7}{row['images']:>9}{row['snr_db']:>9.2f}")


def report_together(rows: list[dict[str, Any]]) -> None:
    print(f"{'threads':>7}{'images':>9}  {'solver':<10}{'seconds':>10}", end="")
    print(f"{'residual':>11}{'SNR dB':>9}{'gain':>8}{'at least':>10}")
    for row in rows:
        print(f"{row['threads']:>7}{row['images']:>9}  {row['solver']:<10}", end="")
        print(f"{row['seconds']:>10.2f}{row['residual']:>11.1e}{row['snr_db']:>9.2f}", end="")
        asked = row["least_gain"]
        print(f"{row['gain']:>8.1f}{'' if math.isnan(asked) else f'{asked:.0f}':>10}")


def report_alone(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'threads':>7}{'images':>9}  {'solver':<10}{'us a row':>10}", end="")
    print(f"{'growth':>8}{'at most':>9}{'MB':>7}{'at most':>9}")
    for row in rows:
        print(f"{row['threads']:>7}{row['images']:>9}  {row['solver']:<10}", end="")
        print(f"{row['microseconds_a_row']:>10.0f}{row['growth']:>8.2f}{SLOPE:>9.1f}", end="")
        print(f"{row['megabytes']:>7.0f}{MEGABYTES:>9.0f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1], help="default: 2, then 1")
    parser.add_argument("--images", type=int, nargs="*", default=[2000, 20_000])
    parser.add_argument("--alone", type=int, nargs="*", default=[2000, 20_000, 200_000])
    parser.add_argument("--copies", type=int, nargs="+", help="of 1000 images, side by side")
    parser.add_argument("--taken", type=int, default=TAKEN, help=f"of the {STEPS} steps of Adam")
    parser.add_argument("--json", action="store_true", help="machine-readable, instead of tables")
    parser.add_argument("--own", choices=LEAST, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    if asked.own:
        torch.set_num_threads(asked.threads[0])
        print(json.dumps(own(asked.own, asked.images[0])))
        return
    if asked.copies:
        rows = [row for threads in asked.threads for row in copied(asked.copies, threads)]
        print(json.dumps({"copies": rows}, indent=1)) if asked.json else report_copied(rows)
        return
    together, large = [], []
    for threads in asked.threads:
        torch.set_num_threads(threads)
        if asked.images:
            world = World.like_images()
            prior, seconds = learned(world)
            if not asked.json:
                print(f"prior of {PUBLIC} images on {threads} threads: {seconds:.1f} s")
            for n in asked.images:
                found = side_by_side(n, world, prior, asked.taken)
                together += [{"threads": threads, "prior_seconds": seconds, **row} for row in found]
        large += [{"threads": threads, **row} for row in alone(asked.alone, threads)]
    if asked.json:
        print(json.dumps({"side_by_side": together, "alone": large}, indent=1))
        return
    if together:
        report_together(together)
    if large:
        report_alone(large)


if __name__ == "__main__":
    main()
