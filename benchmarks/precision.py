"""What bfloat16 changes in what networks learn, and how much faster they are trained.

    python benchmarks/precision.py [--only unet] [--seeds 5] [--threads 1] [--out FILE]

Each case is evaluated in float32 and in bfloat16 with the same seeds, so with the same images,
weights to start from and batches. A line gives the mean of both, the mean difference with Student's
95 % interval over seeds, and the ratio of the seconds that learning took. A plugin's
`bfloat16=True` stands on its cases: the lower end of each interval lies above -1 point of accuracy,
or above -.1 dB. A learner trains a victim's network, and both have to say so: `network` stands on
the case of `cnn`, and a victim that does not stand is trained in float32 whoever trains it.
`--out benchmarks/precision.json` keeps what a test holds these flags to.

Ratios of seconds mean something on a quiet machine that multiplies bfloat16. Needs
`harness assets fetch fashion`. What is stored already is not run again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t

from harness import evaluate
from harness.store.record import RunRecord

PRECISIONS = ("float32", "bfloat16")
COMMON: dict[str, Any] = {"dataset": "fashion", "preset": "standard", "metrics": "snr_db"}
KNOWN: dict[str, Any] = {"private_size": 200, "public_size": 5000, "test_size": 200}
BLIND: dict[str, Any] = {**KNOWN, "private_size": 50, "rounds": 20, "threat_model": "released"}
LEARNED: dict[str, Any] = {"private_size": 1000, "public_size": 2000, "test_size": 5000}
LEAST = {"points": -1.0, "dB": -0.1}
"""What the lower end of a difference's interval must lie above."""


@dataclass(frozen=True)
class Case:
    """An evaluation whose networks are those of some plugins, by kind and name."""

    name: str
    plugins: tuple[str, ...]
    options: dict[str, Any]

    @property
    def unit(self) -> str:
        """Of what is compared."""
        return "points" if self.options.get("only") == "utility" else "dB"


def learned(victim: str, *plugins: str) -> Case:
    options = {"defense": "singmix[tau=1]", "victim": victim, "learner": "network"}
    return Case(
        f"network, {victim}",
        plugins,
        {**LEARNED, **options, "only": "utility"},
    )


def attacked(attack: str, defense: str, **options: Any) -> Case:
    name = attack.partition("[")[0]
    asked = {"attack": attack, "defense": defense, "only": "privacy", **options}
    return Case(f"{name}, {defense}", (f"attacks:{name}",), asked)


CASES = (
    learned("cnn", "learners:network", "victims:cnn"),
    learned("resnet18[width=16,epochs=8]", "victims:resnet18"),
    attacked("unet[base=16,epochs=3,images=5000]", "singmix[tau=1e-1]", **KNOWN),
    attacked("prior[epochs=3,images=5000]", "singmix[tau=1e-1]", **KNOWN),
    attacked("unfold[images=5000]", "instahide[k=2]", **KNOWN),
    attacked("carlini[pair_steps=150,images=5000]", "singmix[tau=1]", **BLIND),
    attacked("luo[pair_steps=150,compare_steps=150,fusion_steps=150]", "singmix[tau=1]", **BLIND),
)


@dataclass(frozen=True)
class Compared:
    """A case's results by seed, and how long learning took in float32 over bfloat16."""

    name: str
    plugins: tuple[str, ...]
    unit: str
    float32: tuple[float, ...]
    bfloat16: tuple[float, ...]
    faster: float

    @property
    def difference(self) -> tuple[float, float]:
        """Mean of bfloat16 less float32, and how far its interval reaches."""
        each = [b - a for a, b in zip(self.float32, self.bfloat16, strict=True)]
        reach = t.ppf(0.975, len(each) - 1) * stdev(each) / len(each) ** 0.5
        return fmean(each), float(reach)

    @property
    def as_well(self) -> bool:
        """Whether nothing was found to be lost."""
        mean, reach = self.difference
        return mean - reach > LEAST[self.unit]

    @property
    def line(self) -> str:
        """For people."""
        mean, reach = self.difference
        both = f"{fmean(self.float32):>9.2f}{fmean(self.bfloat16):>9.2f} {self.unit:<7}"
        change = f"{mean:+.2f} ({mean - reach:+.2f} to {mean + reach:+.2f})"
        return f"{self.name:<40}{both}{change:<26}{self.faster:>6.2f}{self.as_well:>4}"


def score(record: RunRecord) -> float:
    """Accuracy in points, or the mean SNR in dB."""
    assert record.status == "ok", record.error
    if record.utility:
        return 100 * record.utility.accuracy
    mean = record.privacy["snr_db"].mean
    assert mean is not None
    return mean


def seconds(record: RunRecord) -> float:
    """What learning took."""
    return sum(took for stage, took in record.timing.items() if stage.startswith(("learn", "prep")))


def compare(case: Case, seeds: int, threads: int) -> Compared:
    """Every seed in both precisions, in turns, so that a slow minute hits both."""
    records: dict[str, list[RunRecord]] = {precision: [] for precision in PRECISIONS}
    for seed in range(seeds):
        for precision in PRECISIONS:
            asked = {**COMMON, **case.options, "seed": seed, "threads": threads}
            records[precision].append(evaluate(**asked, precision=precision))
    scores = {name: tuple(round(score(r), 4) for r in each) for name, each in records.items()}
    plain, reduced = (sum(map(seconds, records[precision])) for precision in PRECISIONS)
    return Compared(case.name, case.plugins, case.unit, **scores, faster=round(plain / reduced, 2))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where to keep cases as they come")
    asked = parser.parse_args()
    kept = []
    for case in (case for case in CASES if asked.only in case.name):
        kept.append(compare(case, asked.seeds, asked.threads))
        print(kept[-1].line, flush=True)
        if asked.out:
            lines = ",\n".join(f" {json.dumps(asdict(each))}" for each in kept)
            asked.out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
