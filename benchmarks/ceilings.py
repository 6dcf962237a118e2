"""What no attack exceeds on CIFAR-10 and Fashion-MNIST, and what the best linear attack reaches.

    python benchmarks/ceilings.py --out benchmarks/ceilings.json
    python benchmarks/ceilings.py --write

The first asks what `harness ceiling` asks, and `harness evaluate --ceiling` of
`lmmse[mean=public]`, which looks at no label; it takes some minutes for each data set. The second
puts that file's numbers between the marks of docs/ceilings.md. A test holds that they stand there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from front import put

from harness.evaluation import evaluate, foresee_ceilings
from harness.scoring.ceilings import LABELS, POOLED, Proof
from harness.store.provenance import code_state

ROOT = Path(__file__).parents[1]
TOLD = ROOT / "benchmarks" / "ceilings.json"
PAGE = ROOT / "docs" / "ceilings.md"
BEGIN = "<!-- Made by `python benchmarks/ceilings.py --write`: do not edit. -->"

TITLES = {"cifar10": "CIFAR-10, 32 px", "fashion": "Fashion-MNIST"}
ROUNDS = {"cifar10": (1, 10), "fashion": (1,)}
TAUS = ("1e-1", "1e-2", "1e-3", "1e-4", "1e-6")
QUIET = ("1e-3", "1e-4", "1e-6")
"""Where noise is loud enough that Bayes is as good as linear."""
OPTIONS: dict[str, Any] = {"preset": "standard", "private_size": 1000, "targets": 500}
DEFENSE = "singmix[tau={tau},noise=gaussian,calibrate=public]"
APART = "singmix[tau={tau},noise=gaussian,calibrate=public,fixed_points=no]"
LINEAR = "lmmse[mean=public]"
EXCHANGEABLE, DP = "exchangeable", "dp"
BLIND, NAMED = "blind_snr_db", "identification"

Cell = Mapping[str, Any]
"""One ceiling's numbers, or what one attack reached, with the cell that they are of."""


def main() -> None:
    """Measure, and write the file; or put the file's numbers on the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="Where to write what is measured, as JSON.")
    parser.add_argument("--write", action="store_true", help="Put the file's numbers on the page.")
    asked = parser.parse_args()
    if asked.out:
        asked.out.write_text(json.dumps(measured(), indent=1) + "\n", encoding="utf-8")
    if asked.write:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    if not (asked.out or asked.write):
        print(text(told()))


def measured() -> dict[str, Any]:
    """All of it, data set by data set."""
    ceilings = [cell for dataset in TITLES for cell in _ceilings(dataset)]
    reached = [_reached(dataset, tau) for dataset in TITLES for tau in QUIET]
    commit = code_state()["commit"]
    return {"options": {**OPTIONS, "commit": commit}, "ceilings": ceilings, "reached": reached}


def _ceilings(dataset: str) -> Iterator[dict[str, Any]]:
    taus = "|".join(TAUS)
    grids = {DEFENSE.format(tau=taus): ROUNDS[dataset], APART.format(tau="1e-4|1e-6"): (1,)}
    for grid, rounds in grids.items():
        for found in foresee_ceilings(grid, rounds, dataset=dataset, **OPTIONS):
            cell = {"dataset": dataset, "defense": found.defense, "rounds": found.rounds}
            print(*cell.values(), found.ceiling, flush=True)
            yield {**cell, "ceiling": found.ceiling, **_numbers(found.proof)}


def _numbers(proof: Proof) -> dict[str, Any]:
    """A proof's numbers, rounded: without its assumptions, which are always the same."""
    return {
        "quantities": {
            name: _rounded(each.value, each.interval) for name, each in proof.quantities.items()
        },
        "vacuous": list(proof.vacuous),
        "trend": [float(f"{row[1]:.4g}") for table in proof.tables for row in table.rows],
        "candidates": [row[0] for table in proof.tables for row in table.rows],
    }


def _reached(dataset: str, tau: str) -> dict[str, Any]:
    """What the linear attack reached, pooled."""
    defense = DEFENSE.format(tau=tau)
    asked = {"only": "privacy", "metrics": "snr_db", "ceiling": True}
    record = evaluate(defense=defense, attack=LINEAR, dataset=dataset, **asked, **OPTIONS)
    reached = record.ceilings[EXCHANGEABLE].reached[record.attack.name]
    print(dataset, defense, reached, flush=True)
    cell = {"dataset": dataset, "defense": defense, "rounds": 1, "attack": LINEAR}
    return {**cell, **_rounded(reached.value, reached.interval), "record": record.id}


def _rounded(value: float, interval: tuple[float, float] | None) -> dict[str, Any]:
    """To four digits: a machine's last bits say nothing."""
    ends = None if interval is None else [float(f"{end:.4g}") for end in interval]
    return {"value": float(f"{value:.4g}"), "interval": ends}


def told() -> dict[str, Any]:
    """What the file says."""
    found: dict[str, Any] = json.loads(TOLD.read_bytes())
    return found


def page(whole: str) -> str:
    """The page with the file's numbers between its marks."""
    return put(whole, text(told()), BEGIN)


def text(of: Mapping[str, Any]) -> str:
    """Tables of both data sets, what was reached, and what the noise is worth as privacy."""
    cells = of["ceilings"]
    blocks = [_table(cells, dataset) for dataset in TITLES]
    blocks += [_linear(of), _trend(cells), _left(cells), _epsilons(cells), _of_cifar(cells)]
    return "\n\n".join(blocks)


def _of(
    cells: Iterable[Cell], dataset: str, tau: str, rounds: int = 1, ceiling: str = EXCHANGEABLE
) -> Cell:
    """A ceiling's numbers under the defense without other options."""
    wanted = dataset, DEFENSE.format(tau=tau), rounds, ceiling
    names = ("dataset", "defense", "rounds", "ceiling")
    return next(cell for cell in cells if tuple(cell[name] for name in names) == wanted)


def _table(cells: Sequence[Cell], dataset: str) -> str:
    """A line for each ceiling and number of rounds, a column for each tau."""
    head = [TITLES[dataset], *(f"τ={tau}" for tau in TAUS), "no release"]
    lines = []
    for rounds in ROUNDS[dataset]:
        for suffix in ("", LABELS):
            of = [_of(cells, dataset, tau, rounds) for tau in TAUS]
            blind = of[0]["quantities"][f"{BLIND}{suffix}"]["value"]
            numbers = [_shown(cell, f"{POOLED}{suffix}") for cell in of]
            lines.append([_title(rounds, suffix), *numbers, _short(blind)])
    one = [_of(cells, dataset, tau) for tau in TAUS]
    chance = 1 / one[0]["candidates"][-1]
    shares = [_short(cell["quantities"][NAMED]["value"]) for cell in one]
    lines.append(["identification, one round", *shares, _short(chance)])
    rows = (head, ["---"] * len(head), *lines)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _title(rounds: int, suffix: str) -> str:
    times = "one round" if rounds == 1 else f"{rounds} rounds"
    return f"{times}, with labels" if suffix else times


def _shown(cell: Cell, name: str) -> str:
    """A number with its interval; what is vacuous has none that says anything."""
    found = cell["quantities"][name]
    if name in cell["vacuous"]:
        return f"{_short(found['value'])}, vacuous"
    low, high = (_short(end) for end in found["interval"])
    return f"{_short(found['value'])} [{low}, {high}]"


def _short(value: float) -> str:
    """Two digits after the point, or three in all; what is nearly 0 or 1 keeps what tells it."""
    if abs(value) >= 10:
        return f"{value:.3g}"
    if abs(value) < 0.01:
        text = f"{value:.1g}"
    else:
        text = f"{value:.3f}" if 0.99 < value < 1 else f"{value:.2f}"
    return _bare(text)


def _bare(text: str) -> str:
    """Without the zero before the point."""
    return text.removeprefix("0") if text.startswith("0.") else text


def _linear(of: Mapping[str, Any]) -> str:
    """How far below the ceiling without labels the best linear attack stays, pooled."""
    parts = []
    for dataset, title in TITLES.items():
        numbers = []
        for tau in QUIET:
            cell = next(
                each
                for each in of["reached"]
                if (each["dataset"], each["defense"]) == (dataset, DEFENSE.format(tau=tau))
            )
            ceiling = _of(of["ceilings"], dataset, tau)["quantities"][POOLED]["value"]
            below = ceiling - cell["value"]
            numbers.append(f"{_short(cell['value'])} dB at τ={tau} ({_below(below)})")
        parts.append(f"{_and(numbers)} on {title.partition(',')[0]}")
    return (
        f"Held against the ceiling without labels, `{LINEAR}`, which looks at none, reaches "
        f"{'; and '.join(parts)}."
    )


def _below(by: float) -> str:
    return f"{_bare(f'{abs(by):.3f}')} {'below' if by >= 0 else 'above'} it"


def _and(parts: Sequence[str]) -> str:
    *rest, last = parts
    return f"{', '.join(rest)} and {last}" if rest else last


def _trend(cells: Sequence[Cell]) -> str:
    """How far more candidates bring a ceiling down."""
    falling, still = (_of(cells, "cifar10", tau) for tau in ("1e-2", "1e-3"))
    among = _and([f"{n:,.0f}" for n in falling["candidates"]])
    down, flat = (_and([_short(v) for v in cell["trend"]]) for cell in (falling, still))
    return (
        f"Among {among} images of CIFAR-10 the ceiling is {down} dB at τ=1e-2: more candidates "
        f"still bring it down. At τ=1e-3 it is {flat} dB."
    )


def _left(cells: Sequence[Cell]) -> str:
    """What there is to find at most where hardly anything is."""
    found = _of(cells, "cifar10", "1e-4")["quantities"]
    left = found[POOLED]["value"] - found[BLIND]["value"]
    return (
        f"At τ=1e-4 on CIFAR-10 there is {_short(left)} dB to find over what no release gives, and "
        "no more."
    )


def _epsilons(cells: Sequence[Cell]) -> str:
    names = {"worst case": DEFENSE, "`fixed_points=no`": APART}
    taus = ("1e-4", "1e-6")
    head = ["ε at δ=1e-5, Fashion-MNIST, one round", *(f"τ={tau}" for tau in taus)]
    lines = [
        [name, *(f"{_epsilon(cells, 'fashion', defense.format(tau=tau)):.3g}" for tau in taus)]
        for name, defense in names.items()
    ]
    rows = (head, ["---"] * len(head), *lines)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _epsilon(cells: Iterable[Cell], dataset: str, defense: str) -> float:
    wanted = dataset, defense, 1, DP
    names = ("dataset", "defense", "rounds", "ceiling")
    cell = next(cell for cell in cells if tuple(cell[name] for name in names) == wanted)
    return float(cell["quantities"]["epsilon"]["value"])


def _of_cifar(cells: Sequence[Cell]) -> str:
    taus = TAUS[1:]
    found = [f"{_epsilon(cells, 'cifar10', DEFENSE.format(tau=tau)):.3g}" for tau in taus]
    return f"On CIFAR-10 ε is {_and(found)} at τ={_and(taus)} in one round: more values an image."


if __name__ == "__main__":
    main()
