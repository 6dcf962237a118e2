"""FedAvg and FedProx by Flower, on the features that parties would encode, beside `parties.py`.

    python benchmarks/federated.py --env ~/.cache/flower --out benchmarks/federated.json

Parties, features and partitions are those of `benchmarks/parties.py`. Flower runs in an environment
of its own, made from `constraints-federated.txt` where it is not there yet, and simulates parties
on Ray. All that a party sends are its weights, once a round. What is measured is written at once,
and not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from dataclasses import asdict
from pathlib import Path
from typing import Any

from federated_app import Recipe
from parties import average_maps, run_of
from safetensors.torch import save_file

from harness.running.parties import PartedSplits
from harness.running.run import Run
from harness.running.samples import standardised

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints-federated.txt"
PACKAGES = ("flwr[simulation]", "torch", "safetensors")
METHODS = {"FedAvg": 0.0, "FedProx": 0.01}
PARTITIONS = ("iid", "dirichlet[alpha=0.1]")


def main() -> None:
    """Measure what is missing, a line each."""
    options = _options()
    python = _environment(options.env)
    found: dict[str, Any] = {"rows": []}
    if options.out.exists():
        found = json.loads(options.out.read_text(encoding="utf-8"))
    for seed in options.seeds:
        for partition in options.partition:
            _measure(options, python, partition, seed, found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="FedAvg and FedProx by Flower.")
    parser.add_argument("--env", type=Path, default=Path.home() / ".cache" / "harness-flower")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--space", default="resnet50-pooled")
    parser.add_argument("--parties", type=int, default=10)
    parser.add_argument("--partition", nargs="+", default=list(PARTITIONS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--private", type=int, default=45_000)
    parser.add_argument("--public", type=int, default=5000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/federated.json"))
    return parser.parse_args()


def _environment(folder: Path) -> Path:
    """The Python of the environment that has Flower; it is made first where it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        command = [python, "-m", "pip", "install", "-q", "-c", CONSTRAINTS, *PACKAGES]
        subprocess.run(command, check=True)
    return python


def _measure(
    options: argparse.Namespace, python: Path, partition: str, seed: int, found: dict[str, Any]
) -> None:
    """Both methods on one partition, as far as they are missing."""
    asked = {"partition": partition, "seed": seed, "private": options.private}
    asked |= {"parties": options.parties, "rounds": options.rounds, "epochs": options.epochs}
    done = {row["method"] for row in found["rows"] if asked.items() <= row.items()}
    missing = [name for name in METHODS if name not in done]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as folder:
        options.seed = seed
        run = run_of(options, options.parties, partition, "none", 1)
        average_maps(options, run)
        _write(run, Path(folder) / "parties.safetensors")
        for name in missing:
            recipe = Recipe(
                parties=options.parties,
                rounds=options.rounds,
                epochs=options.epochs,
                mu=METHODS[name],
                seed=seed,
                cpus=options.threads,
            )
            told = _trained(python, Path(folder), recipe)
            row = {"method": name, **asked, **told, "accuracy": told["accuracies"][-1]}
            found["rows"].append(row)
            text = ",\n".join(json.dumps(each) for each in found["rows"])
            options.out.write_text(f'{{"rows": [\n{text}\n]}}\n', encoding="utf-8")
            print(json.dumps(row), flush=True)


def _write(run: Run, path: Path) -> None:
    """What each party has, standardised, and the test images."""
    splits = run.splits
    assert isinstance(splits, PartedSplits)
    named = {str(i): own for i, own in enumerate(splits.shares())} | {"test": splits.test}
    tensors = {}
    for name, samples in named.items():
        held = standardised(samples, splits.scale)
        tensors[f"images.{name}"] = held.images.flatten(1).contiguous()
        tensors[f"labels.{name}"] = held.labels.contiguous()
    save_file(tensors, path)


def _trained(python: Path, folder: Path, recipe: Recipe) -> dict[str, Any]:
    """What Flower made of it; SystemExit with its last words where it failed."""
    (folder / "asked.json").write_text(json.dumps(asdict(recipe)), encoding="utf-8")
    files = [folder / name for name in ("parties.safetensors", "asked.json", "answer.json")]
    command = [python, Path(__file__).with_name("federated_app.py"), *files]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    if done.returncode:
        sys.exit(f"Flower failed:\n{done.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(files[-1].read_text(encoding="utf-8"))
    return told


if __name__ == "__main__":
    main()
