"""The page on parties says what `benchmarks/parties.json` holds."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOUND = json.loads((ROOT / "benchmarks" / "parties.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "results" / "parties.md").read_text(encoding="utf-8")


def row(**wanted):
    return next(r for r in FOUND["rows"] if wanted.items() <= r.items())


def test_the_table_is_what_was_measured(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import parties

    lines = parties.table(FOUND["rows"])
    sys.modules.pop("parties")
    assert len(lines) > 3
    assert "\n".join(lines) in PAGE


def test_every_row_says_what_each_party_had_or_sent():
    assert all(("images" in r) != ("megabytes_per_party" in r) for r in FOUND["rows"])
    assert all(sum(r["images"]) == 45_000 for r in FOUND["rows"] if r["defense"] == "local")
    assert all(0.1 <= r["accuracy"] <= 0.9 for r in FOUND["rows"])


def test_the_papers_table_stands_beside_party_0_and_the_union():
    """Its table 4, and rows here of the same number of parties, dealt out evenly."""
    paper = {10: ("87.25", "90.63"), 20: ("85.56", "90.32"), 30: ("84.08", "88.23")}
    for parties, (alone, union) in paper.items():
        own = row(parties=parties, partition="iid", defense="local")["party_0"]
        mixed = row(parties=parties, partition="iid", defense="singmix[tau=1e-2]", rounds=1)
        line = (
            f"| {parties} | {alone} | {100 * own:.1f} | {union} | {100 * mixed['accuracy']:.1f} |"
        )
        assert line in PAGE
