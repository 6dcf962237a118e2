"""Six small cells whose records must not move when the house is rearranged.

What a cell scores depends on the machine's instructions in its last digits, so scores and hashes
are held exactly where the record was made, and scores closely anywhere else. Source hashes are
blanked: moving shared code changes those, and should.

    python tests/golden/test_golden_records.py

writes the records anew, on purpose and never to make a test pass.
"""

import json
import platform
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from harness import evaluate

GOLDEN = Path(__file__).with_name("records.json")
SMALL = {
    "dataset": "fashion-mini",
    "private_size": 40,
    "public_size": 120,
    "test_size": 80,
    "targets": 20,
    "victim": "cnn[epochs=2]",
    "metrics": "snr_db,ssim",
    "threads": 1,
    "device": "cpu",
}
CELLS = {
    "encodings": {"defense": "singmix[tau=1e-1]", "attack": "lmmse", "rounds": 2},
    "features": {"defense": "mixcon", "victim": "lenet5[epochs=2]", "attack": "linear[steps=20]"},
    "gradients": {
        "defense": "gradprune[p=0.5]",
        "victim": "strided[width=8,epochs=2]",
        "attack": "gradmatch[steps=20]",
        "targets": 4,
    },
    "suite": {
        "defense": "none",
        "attack": "suite",
        "release": "features",
        "victim": "lenet5[epochs=2]",
        "only": "privacy",
    },
    "not applicable": {"defense": "none", "attack": "lmmse", "threat_model": "fl-strong"},
    "failed": {"defense": "none", "attack": "lmmse", "victim": "cnn[lr=1e30]"},
}
SPREAD = 0.2
"""Of a mean score, dB or not, between instruction sets; the suite's networks move most."""


def machine() -> str:
    """Where bits are the same: processor, its widest instructions, libraries."""
    import torch

    processor = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        found = re.search(r"^flags\s*:(.*)$", cpu.read_text(encoding="utf-8"), re.MULTILINE)
        flags = set(found[1].split()) if found else set()
        wide = sorted(f for f in flags if f.startswith(("avx", "amx", "fma")))
        processor = f"{platform.machine()} {' '.join(wide)}"
    return f"{processor}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"


def summary(record) -> dict:
    """What is pinned: the id with sources blanked, hashes of artifacts, and mean scores."""
    values = record.canonical()
    blank = record.model_validate({**_blanked(values), "schema_": values["schema"]})
    members = {f"{name} ": each.privacy for name, each in record.members.items()}
    scored = {"": record.privacy, **members}
    return {
        "status": record.status,
        "id": blank.fingerprint(),
        "artifacts": {name: stored.sha256 for name, stored in record.artifacts.items()},
        "scores": {
            f"{who}{metric}": score.mean
            for who, privacy in scored.items()
            for metric, score in privacy.items()
            if score.mean is not None
        },
        "accuracy": record.utility.accuracy if record.utility else None,
        "flags": [flag.name for flag in record.flags],
    }


def _blanked(value):
    """JSON values without their schema's name, and with empty source hashes."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k != "schema"}
        return {k: "" if k == "source_sha256" else _blanked(v) for k, v in kept.items()}
    return [_blanked(v) for v in value] if isinstance(value, list) else value


def made(root: Path, name: str) -> dict:
    return summary(evaluate(cache=root, **{**SMALL, **CELLS[name]}))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("name", CELLS)
def test_a_golden_cell_gives_its_record(root, name):
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    wanted, found = golden["cells"][name], made(root, name)
    if golden["machine"] == machine():
        assert found == wanted
    assert (found["status"], found["artifacts"].keys()) == (
        wanted["status"],
        wanted["artifacts"].keys(),
    )
    assert found["scores"] == pytest.approx(wanted["scores"], abs=SPREAD)


if __name__ == "__main__":
    with TemporaryDirectory() as cache:
        cells = {name: made(Path(cache), name) for name in CELLS}
    golden = {"machine": machine(), "cells": cells}
    GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n", encoding="utf-8")
