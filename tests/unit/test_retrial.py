"""What an attack returned is judged again: without it, and without the defense where need be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from harness.api import UsageError
from harness.evaluation import evaluate
from harness.running.rejudge import Rejudged, rejudge
from harness.running.run import Observer
from harness.store import Store
from harness.store.record import Records, RunRecord, Used

SMALL: dict[str, Any] = {
    "dataset": "fashion-mini",
    "private_size": 12,
    "public_size": 40,
    "test_size": 20,
    "metrics": "snr_db,mse",
    "only": "privacy",
    "threads": 1,
}
CELLS: dict[str, dict[str, Any]] = {
    "matched within batches": {
        "defense": "gradprune[p=0.5]",
        "attack": "gradmatch[steps=2]",
        "victim": "strided",
        "targets": 4,
        "batch_size": 2,
    },
    "with hidden signs": {"defense": "instahide[k=2]", "attack": "linear"},
    "claims alone": {"defense": "mixup[k=2]", "attack": "normchannel"},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", params=CELLS)
def record(request: pytest.FixtureRequest, root: Path) -> RunRecord:
    made = evaluate(cache=root, **{**SMALL, **CELLS[request.param]})
    assert made.status == "ok", made.error
    return Records(root).load(Records(root).path(made.id))


def again(record: RunRecord, root: Path, *, kept: bool) -> Rejudged:
    """Judged again, with the release from a file or made by the defense."""
    paths = {
        stage: Store(root).tensors_path(stage, record.artifacts[stage].key)
        for stage in ("attack", "release")
    }
    release = paths["release"] if kept else None
    return rejudge(record, paths["attack"], release, Store(root), Observer())


@pytest.mark.parametrize("kept", [True, False])
def test_every_number_comes_out_the_same(record: RunRecord, root: Path, kept: bool) -> None:
    found = again(record, root, kept=kept)
    assert found.privacy == record.privacy
    assert found.by_image == record.by_image
    assert found.findings == record.findings
    assert found.identification == record.identification


def absent(used: Used) -> Used:
    """The same plugin under a name that nobody has installed."""
    return used.model_copy(update={"name": f"strange-{used.name}"})


def test_neither_attack_nor_defense_has_to_be_here(record: RunRecord, root: Path) -> None:
    strange = record.model_copy(
        update={
            "attack": absent(record.attack),
            "defense": tuple(map(absent, record.defense)),
            "request": record.request.model_copy(update={"attack": "gone", "defense": "gone"}),
        }
    )
    assert again(strange, root, kept=True).privacy == record.privacy
    with pytest.raises(UsageError, match="gone"):
        again(strange, root, kept=False)


def test_a_defense_of_another_version_does_not_stand_in(record: RunRecord, root: Path) -> None:
    older = tuple(used.model_copy(update={"version": "0"}) for used in record.defense)
    with pytest.raises(UsageError, match="version 0 ran"):
        again(record.model_copy(update={"defense": older}), root, kept=False)


def test_one_cell_with_two_answers_is_judged_twice(record: RunRecord, root: Path) -> None:
    """By one store, as `verify` does it: the keys name what came back, not who says so."""
    store = Store(root)
    answer = store.tensors_path("attack", record.artifacts["attack"].key)
    tensors = load_file(answer)
    other = root / "other.safetensors"
    twice = {n: 2 * t if t.is_floating_point() else t for n, t in tensors.items()}
    save_file(twice, other)
    first, second = (rejudge(record, path, None, store, Observer()) for path in (answer, other))
    assert (first.privacy, first.findings) == (record.privacy, record.findings)
    assert (second.privacy, second.findings) != (record.privacy, record.findings)
