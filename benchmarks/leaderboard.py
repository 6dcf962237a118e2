"""How long a board of a thousand records takes to build.

    python benchmarks/leaderboard.py [--record FILE] [--keep FOLDER]

Makes a thousand records out of one real one (by default the first committed one that has scores
image by image): other defenses, attacks, seeds and scores, each with an id of its own. Then
times `harness leaderboard build` in a process of its own, against reading the same files as plain
JSON, and prints the sizes of what was built.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.asking.request import make_request
from harness.store.record import RunRecord, parse_record

ROOT = Path(__file__).parents[1]
DEFENSES = [f"mixup[k={k}]" for k in range(2, 12)] + [f"singmix[tau=1e-{t}]" for t in range(10)]
ATTACKS = [f"linear[steps={100 * steps}]" for steps in range(1, 11)]
SEEDS = range(5)


def real() -> Path:
    """The first committed record that has scores image by image."""
    boards = sorted((ROOT / "leaderboards").glob("*/records/*.json"))
    for path in (*boards, *sorted((ROOT / "benchmarks" / "records").glob("*.json"))):
        if json.loads(path.read_bytes())["by_image"]:
            return path
    sys.exit("No record here has scores image by image: give one with --record.")


def like(record: RunRecord, defense: str, attack: str, seed: int, draw: random.Random) -> RunRecord:
    """The same cell under another name, with other scores."""
    gain = draw.uniform(0.0, 3.0) + DEFENSES.index(defense) / 4
    asked = record.request.model_dump(exclude_defaults=True)
    values: dict[str, Any] = record.model_dump()
    for name, scores in values["by_image"].items():
        sign = 1 if scores["leaks_more"] == "higher" else -1
        scale = 1.0 if scores["unit"] == "dB" else 0.05
        scores["attack"] = tuple(
            None if g is None else g + sign * scale * draw.gauss(gain, 1) for g in scores["guess"]
        )
        scores["misplaced"] = scores["guess"]
        mean = values["privacy"][name]["null"] + sign * scale * gain
        reach = scale * draw.uniform(0.1, 0.4)
        ends = {"ci": (mean - reach, mean + reach), "gain": scale * gain, "mean": mean}
        values["privacy"][name] |= ends
        values["privacy"][name]["gain_ci"] = (scale * gain - reach, scale * gain + reach)
    values["request"] = make_request(**asked | {"defense": defense, "attack": attack, "seed": seed})
    values["seeds"]["seed"] = seed
    values["utility"]["accuracy"] = 0.5 + DEFENSES.index(defense) / 50 + draw.uniform(0, 0.02)
    return RunRecord.model_validate(values).sealed()


def board_of(record: RunRecord, folder: Path) -> None:
    """A board whose cells are the thousand, and the thousand."""
    asked = record.request.model_dump(exclude_defaults=True)
    options = {k: v for k, v in asked.items() if k not in ("defense", "attack", "seed", "device")}
    lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    text = f"""
name = "large"
title = "A thousand records"
[options]
{chr(10).join(lines)}
[[tracks]]
name = "once"
title = "All of them"
defenses = {json.dumps(DEFENSES)}
[[tracks.cells]]
attacks = {json.dumps(ATTACKS)}
seeds = {json.dumps(list(SEEDS))}
"""
    records = folder / "records"
    records.mkdir(parents=True)
    (folder / "board.toml").write_text(text, encoding="utf-8")
    draw = random.Random(0)
    for cell in [(d, a, s) for d in DEFENSES for a in ATTACKS for s in SEEDS]:
        made = like(record, *cell, draw)
        (records / f"{made.id}.json").write_text(made.json_text() + "\n", encoding="utf-8")


def seconds_to_read(folder: Path) -> float:
    started = time.perf_counter()
    for path in (folder / "records").glob("*.json"):
        json.loads(path.read_bytes())
    return time.perf_counter() - started


def measure(folder: Path) -> None:
    count = len(list((folder / "records").glob("*.json")))
    read = seconds_to_read(folder)
    started = time.perf_counter()
    command = [sys.executable, "-m", "harness", "leaderboard", "build", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    built = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{count} records built in {built:.1f} s (at most 10): {built / count * 1e3:.1f} ms each,"
    )
    print(f"  {used.ru_utime + used.ru_stime:.1f} s of it computing,")
    print(f"  {built / read:.1f} × reading them as plain JSON")
    for name in ("index.html", "README.md", "leaderboard.csv", "front.png"):
        print(f"  {name:<16} {(folder / name).stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, help="make the thousand out of this one")
    parser.add_argument("--keep", type=Path, help="make the board in this folder, and leave it")
    arguments = parser.parse_args()
    model = parse_record(json.loads((arguments.record or real()).read_bytes()))
    with tempfile.TemporaryDirectory() as scratch:
        place = (arguments.keep or Path(scratch)) / "large"
        if not place.exists():
            board_of(model, place)
        measure(place)
