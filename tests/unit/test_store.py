"""Artifacts on disk: wholly there or not at all, made once, checked on reading."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.api import IntegrityError
from harness.api.errors import StoreError
from harness.store import Artifact, Store, cache_root
from harness.store.paths import disk_errors, holding, listed, lock, scratch_folder, write_atomically


def artifact(value: float = 1.0) -> Artifact:
    import torch

    return Artifact({"x": torch.full((2, 3), value)}, {"value": value, "nested": {"a": [1, 2]}})


def taken(
    store: Store, make: Callable[[], Artifact], *, force: bool = False
) -> tuple[Artifact, bool]:
    """An artifact as stages take it, made in their turn if it is not there; and whether it was."""
    with store.turn("load", "key", force=force) as found:
        if found is not None:
            return found, True
        made = make()
        store.write("load", "key", made)
        return made, False


def values(found: Artifact) -> list[float]:
    return sorted(set(found.tensors["x"].flatten().tolist()))


# -- writing -------------------------------------------------------------------------------------


@pytest.mark.core
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device; free some space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.core
def test_a_scratch_folder_is_gone_whatever_happens(tmp_path: Path) -> None:

    def interrupted() -> None:
        with scratch_folder(tmp_path, "run") as folder:
            (folder / "file").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.core
@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space \\(`harness cache prune`"),
        (errno.EACCES, "let this user read and write it"),
        (errno.EROFS, "nothing can be written there"),
        (errno.ENOTDIR, "a file is in the way"),
        (errno.EFBIG, "raise the limit on file sizes"),
        (errno.EIO, "check the disk"),
    ],
)
def test_what_the_system_refuses_is_said_with_advice(number: int, advice: str) -> None:
    with pytest.raises(StoreError, match=f"^/there: .*; {advice}"), disk_errors(Path("/there")):
        raise OSError(number, os.strerror(number))


@pytest.mark.core
@pytest.mark.parametrize(
    ("path", "helps"),
    [("cache", True), ("cache/records", True), ("leaderboards/cifar10-v2", False), ("", False)],
)
def test_another_cache_is_advised_where_it_is_of_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, helps: bool
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(StoreError) as told, disk_errors(tmp_path / path):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    assert ("set HARNESS_CACHE" in str(told.value)) is helps


@pytest.mark.core
def test_what_cannot_be_listed_is_not_empty(tmp_path: Path) -> None:
    """Root reads everything, so that the refusals here are others than of permission."""
    assert listed(tmp_path / "nowhere") == []
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, reason in (("file", "Not a directory"), ("loop", "symbolic links")):
        with pytest.raises(StoreError, match=f"{name}: .*{reason}"):
            listed(tmp_path / name)
        with pytest.raises(StoreError, match=f"{name}: .*{reason}"):
            holding(tmp_path / name, "board.toml")


@pytest.mark.core
def test_what_is_listed_has_its_ending_and_order(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "c.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in listed(tmp_path, ".json")] == ["a.json", "b.json"]
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "board.toml").touch()
    assert holding(tmp_path, "board.toml") == [tmp_path / "board"]


@pytest.mark.core
def test_the_cache_is_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "new"))
    assert cache_root() == tmp_path / "new"
    monkeypatch.setenv("HARNESS_CACHE", "~/somewhere")
    assert cache_root() == Path.home() / "somewhere"
    monkeypatch.delenv("HARNESS_CACHE")
    assert cache_root().name == "encoding-harness"


def test_a_crash_before_the_end_leaves_no_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename is the moment of birth."""
    store = Store(tmp_path)

    def crash(_self: Path, _target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            store.write("load", "key", artifact())
    assert not store.has("load", "key")
    assert list((tmp_path / "tmp").iterdir()) == []
    store.write("load", "key", artifact())
    assert values(store.read("load", "key")) == [1.0]


def test_a_folder_without_facts_was_never_finished(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write("load", "key", artifact())
    (tmp_path / "artifacts" / "load" / "key" / "facts.json").unlink()
    assert not store.has("load", "key")
    found, cached = taken(store, lambda: artifact(2.0))
    assert (values(found), cached) == ([2.0], False)
    assert values(store.read("load", "key")) == [2.0]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write("load", "key", artifact(0.1))
    found = store.read("load", "key")
    assert found.facts == artifact(0.1).facts
    assert found.tensors["x"].equal(artifact(0.1).tensors["x"])
    folder = tmp_path / "artifacts" / "load" / "key"
    kept = store.identity("load", "key")
    assert kept["bytes"] == (folder / "tensors.safetensors").stat().st_size


def test_an_artifact_that_is_half_removed_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.write("load", "key", artifact())

    def crash(_path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", crash)
    with pytest.raises(KeyboardInterrupt):
        store.remove(tmp_path / "artifacts" / "load" / "key")
    assert not store.has("load", "key")


# -- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tensors.safetensors", b"\x80\x3f", b"\x80\x40"),
        ("facts.json", b'"value": 1.0', b'"value": 9.0'),
        ("facts.json", b'"facts"', b'"fakes"'),
        ("facts.json", b"}", b""),
        ("facts.json", b'"sha256"', b'"sha512"'),
    ],
)
def test_bytes_that_changed_are_refused(tmp_path: Path, name: str, old: bytes, new: bytes) -> None:
    store = Store(tmp_path)
    store.write("judge", "key", artifact())
    path = tmp_path / "artifacts" / "judge" / "key" / name
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))
    with pytest.raises(IntegrityError, match=r"judge/key: .*cache verify --remove"):
        store.read("judge", "key")


# -- taking turns ---------------------------------------------------------------------------------


def test_what_is_not_there_is_made_once_and_read_then(tmp_path: Path) -> None:
    assert values(taken(Store(tmp_path), artifact)[0]) == [1.0]
    found, cached = taken(Store(tmp_path), lambda: artifact(2.0))
    assert (values(found), cached) == ([1.0], True)


def test_force_makes_anew_but_once(tmp_path: Path) -> None:
    taken(Store(tmp_path), artifact)
    store = Store(tmp_path)
    found, cached = taken(store, lambda: artifact(2.0), force=True)
    assert (values(found), cached) == ([2.0], False)
    found, cached = taken(store, lambda: artifact(3.0), force=True)
    assert (values(found), cached) == ([2.0], True)


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    def fail() -> Artifact:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        taken(Store(tmp_path), fail)
    assert taken(Store(tmp_path), artifact)[1] is False


def test_those_who_want_the_same_take_turns(tmp_path: Path) -> None:
    made: list[int] = []

    def slow() -> Artifact:
        made.append(1)
        time.sleep(0.2)
        return artifact()

    def want(force: bool) -> None:
        taken(Store(tmp_path), slow, force=force)

    for force in (False, True):
        made.clear()
        threads = [threading.Thread(target=want, args=(force,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 1


@pytest.mark.core
def test_one_lock_has_one_holder(tmp_path: Path) -> None:
    held: list[str] = []

    def hold(name: str) -> None:
        with lock(tmp_path, "one"):
            held.append(f"{name} in")
            time.sleep(0.05)
            held.append(f"{name} out")

    threads = [threading.Thread(target=hold, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held in (["a in", "a out", "b in", "b out"], ["b in", "b out", "a in", "a out"])
