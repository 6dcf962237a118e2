"""Six small cells whose records must not move when the house is rearranged.

What a cell scores depends on the machine's instructions in its last digits, so scores and hashes
are held exactly on the class of machine where the record was made, and scores within `SPREAD`
anywhere else. Source hashes are blanked: moving shared code changes those, and should.

    python tests/golden/test_golden_records.py

writes the records anew, on purpose and never to make a test pass.
"""

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from harness import evaluate

pytestmark = pytest.mark.numeric

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
    "precision": "float32",
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
    "ceiling": {
        "defense": "singmix[tau=1e-2,noise=gaussian,calibrate=public]",
        "attack": "lmmse",
        "only": "privacy",
        "ceiling": True,
    },
    "not applicable": {"defense": "none", "attack": "lmmse", "threat_model": "fl-strong"},
    "failed": {"defense": "mixcon", "attack": "linear", "victim": "lenet5[lr=1e30]"},
}
SPREAD = {"snr_db": 0.05, "ssim": 0.004, "accuracy": 0.025}
"""What a number may differ by on another class of machine.

Over MKL's, oneDNN's, ATen's and OpenBLAS's instruction sets of x86, SSE to AVX-512, and one and two
threads, the mean scores moved by 0.016 dB and 0.0012 at most, those of the suite's `inversion`;
this is three times that. No accuracy moved; this is two of the 80 test images.
"""
LIMITS = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX",
    "OPENBLAS_CORETYPE": "Prescott",
}


def machine() -> str:
    """Where bits are the same: processor, its widest instructions, libraries, and their bits."""
    import numpy as np
    import scipy
    import torch

    processor = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        said = dict(re.findall(r"^(\w[\w ]*?)\s*: (.*)$", cpu.read_text(encoding="utf-8"), re.M))
        model = [said.get(name, "") for name in ("vendor_id", "cpu family", "model")]
        wide = [f for f in said.get("flags", "").split() if f.startswith(("avx", "amx", "fma"))]
        processor = " ".join([platform.machine(), *model, *sorted(wide)])
    capability = torch.backends.cpu.get_cpu_capability()
    libraries = ", ".join(f"{m.__name__} {m.__version__}" for m in (torch, np, scipy))
    return f"{processor}, {capability}, {libraries}, bits {bits()}"


def bits() -> str:
    """What the libraries make of a few numbers here; other instructions make other last digits.

    The environment may forbid a library what the processor could do, each by a variable of its own.
    """
    import numpy as np
    import torch

    values = (np.arange(96 * 96, dtype=np.float32) * 29 % 101 / 101).reshape(96, 96)
    square, maps = torch.from_numpy(values), torch.from_numpy(values).view(4, 16, 12, 12)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the cells have it
    made = [
        torch.linalg.eigvalsh(square @ square.T).numpy(),  # MKL
        torch.nn.functional.conv2d(maps, square[:48].reshape(32, 16, 3, 3)).numpy(),  # oneDNN
        square.softmax(1).numpy(),  # ATen
        values[:48, :48] @ values[:48, :48],  # OpenBLAS
    ]
    torch.set_num_threads(threads)
    return hashlib.sha256(b"".join(each.tobytes() for each in made)).hexdigest()[:12]


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
    for held in ("status", "flags"):
        assert found[held] == wanted[held]
    for named in ("artifacts", "scores"):
        assert found[named].keys() == wanted[named].keys()
    for who, score in wanted["scores"].items():
        assert found["scores"][who] == pytest.approx(score, abs=SPREAD[who.split()[-1]]), who
    assert found["accuracy"] == pytest.approx(wanted["accuracy"], abs=SPREAD["accuracy"])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the limits are those of x86")
def test_a_machine_whose_instructions_are_limited_is_another():
    asked = [sys.executable, "-c", "import test_golden_records as it; print(it.machine())"]
    free = {k: v for k, v in os.environ.items() if k not in LIMITS}
    told = [
        subprocess.check_output(asked, cwd=GOLDEN.parent, env={**free, **limit}, text=True)
        for limit in ({}, *({name: value} for name, value in LIMITS.items()))
    ]
    assert len(set(told)) == 1 + len(LIMITS)


if __name__ == "__main__":
    with TemporaryDirectory() as cache:
        cells = {name: made(Path(cache), name) for name in CELLS}
    golden = {"machine": machine(), "cells": cells}
    GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n", encoding="utf-8")
