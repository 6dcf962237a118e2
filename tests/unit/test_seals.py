"""What lies in a cache bears its seal: what anybody else wrote there is found, named and mended."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from test_record import made

from harness.api import IntegrityError
from harness.store import Artifact, Store
from harness.store.paths import KEY, KEY_BYTES, seal, sealed
from harness.store.record import CELLS, FAILURES, Records, RunRecord
from harness.store.upkeep import adopt, verify

CELL, OTHER = "cell", "other"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two judgements, and two cells' records."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    for number, key in enumerate((CELL, OTHER)):
        artifact = Artifact({}, {"privacy": {"snr_db": number}})
        Store(tmp_path).write("judge", key, artifact)
        Records(tmp_path).save(made(seeds={"seed": number}), key)
    return tmp_path


def judgement(root: Path, key: str = CELL) -> Path:
    return root / "artifacts" / "judge" / key / "facts.json"


def pointer(root: Path) -> Path:
    return root / CELLS / CELL


def kept(root: Path) -> Path:
    return Records(root).path(made(seeds={"seed": 0}).id)


def rewrite(root: Path) -> Path:
    """A better score, with the hash that goes with it."""
    path = judgement(root)
    facts = json.loads(path.read_bytes())
    facts["facts"]["privacy"]["snr_db"] = 120.0
    text = json.dumps(facts["facts"], sort_keys=True)
    facts["facts_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(facts))
    return path.parent


def exchange(root: Path) -> Path:
    """A genuine judgement of another cell."""
    shutil.copy(judgement(root, OTHER), judgement(root))
    return judgement(root).parent


def strip(root: Path) -> Path:
    """No seal at all."""
    path = judgement(root)
    facts = json.loads(path.read_bytes())
    del facts["seal"]
    path.write_text(json.dumps(facts))
    return path.parent


def repoint(root: Path) -> Path:
    """Another record under the first one's seal."""
    path = pointer(root)
    told = path.read_text().split()[1]
    path.write_text(f"{made(seeds={'seed': 1}).id} {told}")
    return path


def misplace(root: Path) -> Path:
    """A genuine pointer of another cell."""
    shutil.copy(root / CELLS / OTHER, pointer(root))
    return pointer(root)


def plain(root: Path) -> Path:
    """As they were before there were seals."""
    path = pointer(root)
    path.write_text(path.read_text().split()[0])
    return path


def empty(root: Path) -> Path:
    pointer(root).write_bytes(b"")
    return pointer(root)


def fail(root: Path) -> Path:
    """A failure that nobody recorded."""
    path = root / FAILURES / CELL
    path.parent.mkdir()
    shutil.copy(pointer(root), path)
    return path


def hasten(root: Path) -> Path:
    """A time that no id covers."""
    path = kept(root)
    path.write_text(path.read_text().replace('"timing":{}', '"timing":{"attack":1.5}'))
    return path


def plant(root: Path) -> Path:
    """A whole record, never made here."""
    record = made(seeds={"seed": 9})
    Records(root, cache=False).save(record)
    return Records(root).path(record.id)


def read(root: Path) -> None:
    """All that a run would read."""
    Store(root).facts("judge", CELL)
    Store(root).identity("judge", CELL)
    records = Records(root)
    records.failure(CELL)
    records.answer(CELL)
    for path in (root / "records").iterdir():
        records.load(path)


POISONS = [
    *(rewrite, exchange, strip),
    *(repoint, misplace, plain, empty, fail),
    *(hasten, plant),
]


@pytest.mark.parametrize("poison", POISONS)
def test_what_was_written_by_hand_is_found_named_and_dropped_by_one_command(
    root: Path, poison: Callable[[Path], Path]
) -> None:
    read(root)
    assert verify(remove=False) == []
    path = poison(root)
    with pytest.raises(IntegrityError) as told:
        read(root)
    assert str(path) in str(told.value)
    assert "`harness cache verify --remove`" in str(told.value)
    (fault,) = verify(remove=True)
    assert str(path) in fault
    assert not path.exists()
    assert verify(remove=False) == []


@pytest.mark.parametrize("poison", [strip, plain, plant])
def test_what_is_whole_is_sealed_by_one_command_that_says_so(
    root: Path, poison: Callable[[Path], Path]
) -> None:
    poison(root)
    assert adopt() == 1
    read(root)
    assert verify(remove=False) == []
    assert adopt() == 0


def test_what_has_its_hash_can_be_adopted_by_whoever_trusts_it(root: Path) -> None:
    exchange(root)
    assert adopt() == 1
    read(root)


def test_what_is_damaged_is_not_adopted(root: Path) -> None:
    judgement(root).write_bytes(judgement(root).read_bytes()[:40])
    kept(root).write_bytes(kept(root).read_bytes()[:40])
    empty(root)
    assert adopt() == 0
    assert len(verify(remove=False)) == 3


def test_a_record_whose_time_was_changed_is_not_adopted(root: Path) -> None:
    hasten(root)
    assert adopt() == 0
    assert len(verify(remove=False)) == 1


def test_a_cache_without_its_key_is_trusted_by_nobody(root: Path) -> None:
    (root / KEY).unlink()
    with pytest.raises(IntegrityError, match="does not bear this cache's seal"):
        read(root)
    assert len(verify(remove=False)) == 6
    assert not (root / KEY).exists()
    assert adopt() == 6
    read(root)


@pytest.mark.parametrize("data", [b"", b"short", bytes(KEY_BYTES + 1)])
def test_a_damaged_key_is_named_and_all_that_it_sealed_goes_with_it(
    root: Path, data: bytes
) -> None:
    (root / KEY).write_bytes(data)
    with pytest.raises(IntegrityError, match=f"{root / KEY} is no key.*cache verify --remove"):
        read(root)
    with pytest.raises(IntegrityError, match="is no key"):
        Records(root).save(made())
    assert len(verify(remove=False)) == 1
    assert len(verify(remove=True)) == 7
    assert verify(remove=False) == []
    Records(root).save(made(), CELL)
    assert Records(root).answer(CELL) == made()


def test_the_key_is_its_owners_alone(root: Path) -> None:
    assert stat.S_IMODE((root / KEY).stat().st_mode) == 0o600
    assert len((root / KEY).read_bytes()) == KEY_BYTES


def test_no_two_caches_seal_alike(root: Path, tmp_path: Path) -> None:
    told = seal(root, "a", "b")
    assert sealed(root, told, "a", "b")
    assert not sealed(root, told, "ab", "")
    assert not sealed(tmp_path / "other", told, "a", "b")
    assert seal(tmp_path / "other", "a", "b") != told


def test_processes_that_begin_at_once_make_one_key(tmp_path: Path) -> None:
    with get_context("spawn").Pool(4) as pool:
        told = pool.starmap(seal, [(tmp_path / "new", "a")] * 16)
    assert len(set(told)) == 1
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [KEY, "locks"]


def test_writers_of_the_same_record_leave_it_sealed(tmp_path: Path) -> None:
    """Whose times win does not matter; that one's are sealed."""
    records: list[RunRecord] = [made(timing={"attack": float(i)}) for i in range(30)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda each: Records(tmp_path).save(each, CELL), records))
    assert Records(tmp_path).answer(CELL) in records


def test_folders_that_are_no_cache_have_no_key(tmp_path: Path) -> None:
    Records(tmp_path, cache=False).save(made())
    assert [path.name for path in tmp_path.iterdir()] == ["records"]
