"""Audits on Fashion-MNIST: how large a budget is at least, by guesser, beside what is proven.

    python benchmarks/audits.py [--coins 1000] [--out FILE]

Each audit is one run of `harness audit`. All coins are guessed, which is said here and before any
audit is run: none is tried with several numbers. Then ten thousand audits are made of scores that
know nothing of their coins, once with all of them guessed and once with a tenth. Up to 5 % may find
an epsilon above 0; beside the share that does stands its exact chance.

Needs `harness assets fetch fashion`, and for `dpmix` and `dpsgd` the extra `dp`. A thousand coins
take seven minutes on one core. `--out benchmarks/audits.json` keeps what the table in
docs/measuring.md is made of.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from harness.auditing import AuditReport, Design, audit
from harness.cli.progress import Bars
from harness.scoring.audit import LEVEL, Guessed, least_epsilon, least_mu, named
from harness.store.provenance import code_state

DATASET, DELTA, SEED = "fashion", 1e-5, 0
NULLS = 10_000
NORMAL = "noise=gaussian,calibrate=public"
AUDITS: tuple[tuple[str, Mapping[str, str]], ...] = (
    *((f"singmix[tau={tau}]", {}) for tau in ("1e-2", "1e-4", "1e-6")),
    *((f"singmix[tau={tau},{NORMAL}]", {}) for tau in ("1e-2", "1e-4", "1e-6")),
    (f"singmix[tau=1e-2,{NORMAL}]", {"guesser": "matchedfilter"}),
    ("singmix[tau=1e-2]", {"guesser": "matchedfilter"}),
    ("dpmeans[epsilon=8]", {}),
    ("dpmeans[epsilon=2]", {}),
    ("dpmeans[epsilon=8]", {"guesser": "lira"}),
    ("none", {"guesser": "loss"}),
    ("none", {"guesser": "lira"}),
    ("mixup[k=2]", {}),
    ("mixup[k=2]", {"guesser": "innerproduct"}),
    ("mixup[k=2]", {"guesser": "loss"}),
    ("mixup[k=2]", {"guesser": "lira"}),
    ("instahide", {"guesser": "braverman"}),
    ("dpmix[epsilon=8]", {"guesser": "innerproduct"}),
    ("dpsgd[epsilon=8]", {"guesser": "loss", "victim": "mlp"}),
)
"""Defenses, and what is asked beside them."""
BOUNDS: Mapping[str, Callable[[Guessed], bool]] = {
    "any mechanism": lambda guessed: least_epsilon(guessed, DELTA) > 0,
    "Gaussian noise": lambda guessed: least_mu(guessed) > 0,
}
"""Whether an audit raises an alarm, and says that epsilon is above 0."""


def main() -> None:
    """Print the table, and how many null scores raised an alarm; exit 1 where too many did."""
    options = _options()
    found = list(_audited(options.coins))
    alarms = list(null_alarms(options.coins, NULLS))
    print(table(found))
    for each in alarms:
        counted = f"{each['alarms']} of {each['audits']} audits, {each['chance']:.2%} exactly"
        print(f"null scores, {each['guesses']} guesses, {each['bound']}: {counted}")
    if options.out:
        told = {"commit": code_state().get("commit"), "audits": found, "null": alarms}
        options.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(each["alarms"] > LEVEL * each["audits"] for each in alarms))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coins", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="Where to keep the same as JSON.")
    return parser.parse_args()


def _audited(coins: int) -> Iterator[dict[str, Any]]:
    design = Design(coins, coins, DELTA)
    for defense, asked in AUDITS:
        with Bars(quiet=True) as observer:
            options = {"defense": defense, "dataset": DATASET, "seed": SEED, "threads": 1, **asked}
            report = audit(design, observer, **options)
        print(report.defense, report.guesser, f"{report.right} right", file=sys.stderr, flush=True)
        yield {"asked": asked, **report.model_dump(mode="json")}


def null_alarms(coins: int, audits: int) -> Iterator[dict[str, Any]]:
    """How many of so many audits of null scores find an epsilon above 0, and how many should."""
    for guesses in (coins, coins // 10):
        rng = np.random.default_rng(SEED)
        right = [
            named(rng.normal(size=coins), rng.integers(0, 2, coins), guesses).right
            for _ in range(audits)
        ]
        for bound, raised in BOUNDS.items():
            least = next(v for v in range(guesses + 1) if raised(Guessed(coins, guesses, v)))
            chance = float(binom.sf(least - 1, guesses, 0.5))
            told = {"bound": bound, "guesses": guesses, "audits": audits, "chance": chance}
            yield {**told, "alarms": sum(each >= least for each in right)}


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """A row for each audit."""
    head = "| defense | guesser | right | ε at least | as Gaussian noise | ε at most |"
    return "\n".join([head, "|---|---|---|---|---|---|", *(_row(each) for each in found)])


def _row(told: Mapping[str, Any]) -> str:
    report = AuditReport.model_validate({k: v for k, v in told.items() if k != "asked"})
    full = ", all there is" if report.right == report.guesses else ""
    normal, most = (
        "–" if value is None else f"{value:.2f}"
        for value in (report.epsilon_at_least_gaussian, report.epsilon_at_most)
    )
    if report.apart is not None:
        most = f"– (of other neighbours {report.apart.epsilon:.2f})"
    guesser = told["asked"].get("guesser", "likelihood")
    least = f"{report.epsilon_at_least:.2f}{full}"
    return f"| `{report.defense}` | {guesser} | {report.right} | {least} | {normal} | {most} |"


if __name__ == "__main__":
    main()
