"""How fast packages are written, beside the disk alone, and how much memory that takes.

    python benchmarks/packages.py --out DIR           45 000 pooled features, 20 rounds
    python benchmarks/packages.py --out DIR --maps    45 000 maps of 18 432 values, 2 rounds

Encodings are of random features: what they say does not matter here, how many they are does. The
disk's speed is that of as many bytes, written and synchronised in pieces of the same size. Where
other processes compute too, the seconds of the processor say more than the ratio.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import psutil
import torch

from harness.api import Samples, Splits
from harness.api.data import Scale
from harness.asking.registry import registry
from harness.packages.keys import OwnerKey, new_release
from harness.packages.package import in_bytes, write_package
from harness.packages.statement import (
    UNSEALED,
    Preprocessing,
    Promise,
    Randomness,
    Statement,
    Used,
)
from harness.running.encoding import Source, source_of

ROWS = 45_000
POOLED, MAPS = ((2048, 1, 1), 20), ((2048, 3, 3), 2)
LAW = {"radius": 100.0, "noise": "gaussian"}


def source(shape: tuple[int, ...], rows: int, rounds: int) -> Source:
    images = torch.empty(rows, *shape)
    for part in torch.split(images, 1000):
        part.normal_()
    samples = Samples(images, torch.arange(rows) % 10)
    scale = Scale((0.0,) * shape[0], (1.0,) * shape[0], None, None)
    splits = Splits(samples, samples[:0], samples[:0], scale, tuple(map(str, range(10))))
    spec = registry().spec("defenses", "singmix")
    defense = registry().build("defenses", "singmix", spec.config.model_validate(LAW))
    key = OwnerKey(Path("none"), bytes(32))
    return source_of(splits, ("singmix", defense), key.stream(new_release(), "", ""), rounds=rounds)


def statement(made: Source, shape: tuple[int, int, int], rounds: int) -> Statement:
    plain = Used(name="pixels", version="1", config={})
    steps = Preprocessing(
        image=shape, shape=shape, space=plain, mean=(0.0,), std=(1.0,), low=None, high=None
    )
    return Statement(
        schema=1,
        version="0",
        made="now",
        release=new_release(),
        party="benchmark",
        law=Used(name="singmix", version="1", config=LAW),
        preprocessing=steps,
        rounds=rounds,
        rows=made.rows,
        shape=shape,
        classes=tuple(map(str, range(10))),
        randomness=Randomness(),
        promise=Promise(rounds=rounds, ceilings={}),
        hashes={},
        seal=UNSEALED,
    )


def disk_alone(path: Path, size: int) -> float:
    """Seconds for as many bytes of no compressible kind."""
    piece = os.urandom(1 << 24)
    started = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(size // len(piece)):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    taken = time.perf_counter() - started
    path.unlink()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="a folder on the disk to measure")
    parser.add_argument("--maps", action="store_true")
    parser.add_argument("--rows", type=int, default=ROWS)
    asked = parser.parse_args()
    shape, rounds = MAPS if asked.maps else POOLED
    asked.out.mkdir(parents=True, exist_ok=True)
    made = source(shape, asked.rows, rounds)
    before = psutil.Process().memory_info().rss
    highest = before

    def watch(*_: object) -> None:
        nonlocal highest
        highest = max(highest, psutil.Process().memory_info().rss)

    path = asked.out / "x.release"
    started, busy = time.perf_counter(), time.process_time()
    said = write_package(path, statement(made, shape, rounds), made, watch)
    ours, busy = time.perf_counter() - started, time.process_time() - busy
    path.unlink()
    alone = disk_alone(asked.out / "plain", said.size)
    speeds = [said.size / seconds / 1e6 for seconds in (ours, alone)]
    print(f"{rounds} rounds of {asked.rows} x {shape}: {in_bytes(said.size)}")
    print(f"package {speeds[0]:.0f} MB/s, the disk alone {speeds[1]:.0f} MB/s")
    print(f"processor {busy:.0f} s of {ours:.0f} s: {said.size / busy / 1e6:.0f} MB a second of it")
    print(f"ratio {speeds[0] / speeds[1]:.2f} of the disk's speed")
    print(f"memory over the features {(highest - before) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
