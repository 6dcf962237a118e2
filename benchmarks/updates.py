"""What a federated server reads off parties' updates, by the number of their local steps.

    python benchmarks/updates.py --out benchmarks/updates.json
    python benchmarks/updates.py --table --out benchmarks/updates.json

Images of Fashion-MNIST (`fashion-mini`), parties that take 1, 5 and 20 steps of plain SGD at a rate
of 0.01, and a server that knows neither labels nor what is shuffled how (`fl-realistic`). Each cell
is an evaluation like any other; what is measured is written at once, and not measured again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from harness import evaluate

STEPS = (1, 5, 20)
COMMON: dict[str, Any] = {
    "dataset": "fashion-mini",
    "defense": "none",
    "release": "updates",
    "local_lr": 0.01,
    "threat_model": "fl-realistic",
    "private_size": 100,
    "public_size": 200,
    "test_size": 50,
    "only": "privacy",
    "metrics": "snr_db",
    "threads": 1,
}
DENSE = {"attack": "firstlayer", "victim": "mlp", "targets": 16}
PLANTED = {"attack": "firstlayer", "victim": "planted", "victim_epochs": 0, "targets": 16}
MATCHED = {"attack": "gradmatch[steps=100]", "victim": "strided[width=16]", "targets": 8}
ROWS: dict[str, dict[str, Any]] = {
    "`firstlayer`, `mlp`, one image": DENSE,
    "`firstlayer`, `mlp`, four images at once": {**DENSE, "batch_size": 4},
    "`firstlayer`, `planted`, eight images at once": {**PLANTED, "batch_size": 8},
    "`gradmatch`, `strided`, one image": MATCHED,
    "`gradmatch`, `strided`, four images at once": {**MATCHED, "batch_size": 4},
    "`gradmatch`, `strided`, four images one by one": {**MATCHED, "local_images": 4},
}
Found = dict[str, dict[str, dict[str, float]]]


def fits(asked: dict[str, Any], steps: int) -> bool:
    """Whether so many steps get through all of a party's images."""
    images: int = asked.get("local_images", 1)
    return steps >= images


def measured(asked: dict[str, Any], steps: int) -> dict[str, float]:
    """The mean SNR of one cell with its interval, and that of the best guess; dB."""
    record = evaluate(**COMMON, **asked, local_steps=steps)
    if record.status != "ok":
        raise SystemExit(f"{asked} after {steps} steps: {record.error}")
    score = record.privacy["snr_db"]
    low, high = score.ci
    return {
        "snr_db": round(score.mean, 2),
        "low": round(low, 2),
        "high": round(high, 2),
        "guess": round(score.null, 2),
        "images": score.n,
    }


def fill(out: Path, found: Found) -> None:
    """Measure what is missing, and write after each cell."""
    for steps in STEPS:
        for name, asked in ROWS.items():
            cells = found.setdefault(name, {})
            if str(steps) in cells or not fits(asked, steps):
                continue
            cells[str(steps)] = measured(asked, steps)
            out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(name, steps, cells[str(steps)], flush=True)


def table(found: Found) -> list[str]:
    """Markdown: SNR in dB with its interval, by row and number of steps."""
    lines = [
        "| SNR in dB after | 1 step | 5 steps | 20 steps | best guess |",
        "|---|---|---|---|---|",
    ]
    for name in ROWS:
        cells = found[name]
        shown = [_shown(cells[str(steps)]) if str(steps) in cells else "" for steps in STEPS]
        guess = next(iter(cells.values()))["guess"]
        lines.append(f"| {name} | {' | '.join(shown)} | {guess:.1f} |")
    return lines


def _shown(cell: dict[str, float]) -> str:
    mean, low, high = (f"{cell[n]:.1f}".replace("-", "−") for n in ("snr_db", "low", "high"))
    return mean if low == high else f"{mean} ({low} to {high})"


def main() -> None:
    """Measure, or print the table of what was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    found = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out.exists() else {}
    if not asked.table:
        fill(asked.out, found)
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
