"""Attack and learners make of a release that was kept what they made of it when it left."""

import shutil

import torch
from safetensors.torch import load_file, save_file

from harness.evaluation import evaluate
from harness.running.rejudge import on_release
from harness.running.run import Observer, Run
from harness.sandbox.process import FORK_SERVERS
from harness.submissions.again import outside

CELL = {
    "defense": "mixup[k=2]",
    "attack": "regression",
    "learner": "ridge",
    "private_size": 60,
    "public_size": 100,
    "test_size": 100,
    "metrics": "snr_db",
    "threads": 1,
    "rounds": 2,
}


def test_the_same_bytes_give_the_same_and_others_do_not(tmp_path):
    with FORK_SERVERS.kept():
        record = evaluate(cache=tmp_path, **CELL)
        run = Run.open(CELL, cache=tmp_path)
        kept = tmp_path / "kept.safetensors"
        stored = run.store.tensors_path("release", record.artifacts["release"].key)
        shutil.copy(stored, kept)
        again = on_release(record, kept, run.cell, run.store, Observer())
        assert (again.privacy, again.utility) == (record.privacy, record.utility)
        tensors = load_file(kept)
        tensors["out.encodings"] = torch.zeros_like(tensors["out.encodings"])
        save_file(tensors, kept)
        told = "; ".join(outside(record, on_release(record, kept, run.cell, run.store, Observer())))
    assert "snr_db is" in told
    assert "accuracy is" in told
