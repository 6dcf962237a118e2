"""Evaluate cells and verify what came of them; both are printed as JSON. Run with both as JSON."""

import json
import sys
from pathlib import Path

from harness.evaluation import evaluate
from harness.sandbox.process import FORK_SERVERS
from harness.store.paths import cache_root
from harness.submissions.hidden import Hidden
from harness.submissions.verification import Verifier


def verified(path, hidden):
    with Verifier(cache_root(), judge=False, rerun=True, hidden=hidden) as verifier:
        (found,) = verifier.verify(str(path))
    return found.model_dump(mode="json")


def row(cell, *, plainly):
    record = evaluate(**cell)
    path = cache_root() / "records" / f"{record.id}.json"
    score = record.privacy.get("snr_db")
    return {
        "status": record.status,
        "error": record.error,
        "flags": [flag.name for flag in record.flags],
        "mean": score.mean if score else None,
        "hidden": verified(path, Hidden()),
        "again": verified(path, None) if plainly else None,
    }


if __name__ == "__main__":
    with FORK_SERVERS.kept():
        cells, plainly = map(json.loads, sys.argv[1:])
        found = {name: row(cell, plainly=name in plainly) for name, cell in cells.items()}
    Path("rows.json").write_text(json.dumps(found))
