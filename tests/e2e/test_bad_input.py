"""Whatever is wrong with the input, one message says so, and mending it as told is enough."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commandline import PRIVACY, complaint, files, harness, python, record, start, succeed

from harness import evaluate
from harness.api import IntegrityError
from harness.running.run import NAMES
from harness.sandbox.process import FORK_SERVERS
from harness.store.artifacts import FACTS, TENSORS, Store
from harness.store.record import Records
from harness.store.upkeep import verify

MISWRITTEN = {
    "--defense singmx": "Unknown defense 'singmx'. Did you mean 'singmix'?",
    "--defense singmix[tua=1]": "has no option 'tua'. Did you mean 'tau'?",
    "--defense singmix[tau=0]": "tau='0': Input should be greater than 0",
    "--defense singmix[tau=-1]": "tau='-1': Input should be greater than 0",
    "--defense singmix[tau=much]": "tau='much': Input should be a valid number",
    "--defense singmix[tau=nan]": "tau='nan'",
    "--defense singmix[alpha=0.4]": "alpha='0.4': Input should be greater than or equal to 0.5",
    "--defense singmix[alpha=1]": "alpha='1': Input should be less than 1",
    "--defense singmix[noise=spheres]": "noise='spheres'",
    "--defense singmix[preset=papr]": "has no preset 'papr'. Did you mean 'paper'?",
    "--defense singmix[tau": "Cannot read 'singmix[tau'",
    "--defense singmix+none": "at most one encoding defense",
    "--attack une": "Unknown attack 'une'. Did you mean 'unet'?",
    "--dataset fashion_mini": "Unknown dataset 'fashion_mini'. Did you mean 'fashion-mini'?",
    "--public fashon-mini": "Unknown dataset 'fashon-mini'. Did you mean 'fashion-mini'?",
    "--victim cn": "Unknown victim 'cn'. Did you mean 'cnn'?",
    "--space pixel": "Unknown space 'pixel'. Did you mean 'pixels' or 'pixels-imagenet'?",
    "--threat-model informd": "Unknown threat model 'informd'. Did you mean 'informed'?",
    "--metrics snr-db": "Unknown metric 'snr-db'. Did you mean 'snr_db'?",
    "--metrics snr": "Unknown metric 'snr'. Did you mean 'snr_db'?",
    "--metrics reid": "Unknown metric 'reid'. Did you mean 'reidentification'?",
    "--defense mix": "Unknown defense 'mix'. Did you mean 'mixup' or 'mixcon'?",
    "--attack indist": "Unknown attack 'indist'. Did you mean 'indistinguishability'?",
    "--space efficient": "Unknown space 'efficient'. Did you mean 'efficientnet-lite0'?",
    "--preset quik": "'quik' is not one of 'quick', 'standard', 'paper'",
    "--only privat": "'privat' is not one of 'privacy', 'utility'",
    "--sed 1": "No such option",
    "--seed -1": "seed: Input should be greater than or equal to 0, not -1",
    "--seed one": "'one' is not a valid integer",
    "--rounds 0": "rounds: Input should be greater than or equal to 1, not 0",
    "--rounds 1000000000": "1000000000 rounds of 1000 private images, which attacks hold at once, "
    "would take 3.14 PB of memory at 28 x 28 values an image; more than 1 TB is refused",
    "--rounds 1000000000 --dry-run": "would take 3.14 PB of memory",
    "--rounds 1000000000 --only utility": "1000000000 rounds of 1000 private images, encoded and "
    "learned from at 1,000,000 a second, would take 12 days at the very least; more than 7",
    "--private-size 1000000000": "would take 3.14 TB of memory",
    "--public-size 1000000000": "would take 3.14 TB of memory",
    "--test-size 1000000000": "would take 3.14 TB of memory",
    "--repeats 1000000000": "1000000000 trainings of a second each would take 11,574 days",
    "--defense gradprune --attack gradmatch --victim-epochs 1000000000": "would take 12 days",
    "--threads 100000": "threads: Input should be less than or equal to 1024",
    "--seconds 0": "seconds: Input should be greater than 0",
    "--seconds inf": "seconds: Input should be a finite number",
    "--seconds nan": "seconds: Input should be a finite number",
    "--defense noise[scale=nan]": "scale='nan': Input should be a finite number",
    "--defense none --attack linear[lr=nan]": "lr='nan': Input should be a finite",
    "--victim cnn[lr=inf]": "lr='inf': Input should be a finite number",
    "--private-size 40 --targets 41": "targets=41 is more than the private images there are (40)",
    "--dataset cifar10": "harness assets fetch cifar10",
    "--config nowhere.toml": "There is no file nowhere.toml",
    "--config /": "cannot be read: Is a directory",
    "--owner-key nowhere.key": "nowhere.key cannot be read: No such file",
    "--force atack --dry-run": "'atack' is not a stage. Did you mean 'attack'?",
    "--force rel --dry-run": "'rel' is not a stage. Did you mean 'release'?",
}
OTHER_COMMANDS = {
    "evalute": "Did you mean 'evaluate'?",
    "eval": "Did you mean 'evaluate'?",
    "describe indist": "Did you mean 'indistinguishability'?",
    "assets where tiny": "Did you mean 'tiny-imagenet'?",
    "check mixup --only det": "Did you mean 'determinism'?",
    "check mixup --seconds nan": "nan is not a finite number",
    "advise --dataset cifar10 --min-accuracy nan": "nan is not a finite number",
    "cache prune --days nan": "nan is not a finite number",
    "cache prune --days inf": "inf is not a finite number",
    "list attack": "'attack' is not one of",
    "describe singmx": "Did you mean 'singmix'?",
    "describe unet --dataset fashion-mini": "Only a defense can be analysed",
    "check singmx": "Did you mean 'singmix'?",
    "check mixup --only memry": "There is no check 'memry' of encoding defenses.",
    "check informed": "only declares channels: there is nothing to check",
    "new-plugin defence fog": "'defence' is not one of",
    "new-plugin defense SoftMix": "'soft-mix' would do",
    "new-plugin defense mixup": "'mixup' is taken: plugin 'mixup' of distribution",
    "new-plugin attack fog --stage training": "--stage says where a defense works",
    "matrix --defense none --attack identity --rounds 1000000000 --dry-run": "would take "
    "3.14 PB of memory",
    "matrix --board cifar --dry-run": "Did you mean 'cifar10-v2'?",
    "leaderboard build feat": "Did you mean 'features-v2'?",
    "show nothing": "There is no record 'nothing'",
    "show " + 300 * "a": "File name too long",
    "assets where fashion-min": "Did you mean 'fashion-mini'?",
    "assets where cifar10": "harness assets fetch cifar10",
    "cache prune --days -1": "-1.0 is not in the range",
    "schema records": "'records' is not one of",
}


@pytest.mark.core
@pytest.mark.parametrize("written", MISWRITTEN)
def test_an_evaluation_that_cannot_be(tmp_path: Path, written: str) -> None:
    done = harness("evaluate", *written.split(), cache=tmp_path / "cache", cwd=tmp_path)
    assert MISWRITTEN[written] in complaint(done, 2)
    assert not list((tmp_path / "cache").glob("[!a]*"))


@pytest.mark.core
@pytest.mark.parametrize("written", OTHER_COMMANDS)
def test_a_command_that_cannot_be(tmp_path: Path, written: str) -> None:
    done = harness(*written.split(), cache=tmp_path)
    assert OTHER_COMMANDS[written] in complaint(done, 2)


@pytest.mark.core
def test_what_is_written_wrong_is_said_without_importing_torch(tmp_path: Path) -> None:
    command = ("-X", "importtime", "-m", "harness", "evaluate", "--defense", "singmx")
    with python(*command, cache=tmp_path) as process:
        _, listing = process.communicate(timeout=120)
    names = {line.rpartition("|")[2].strip() for line in listing.splitlines()}
    assert "harness.asking.registry" in names
    assert not names & {"torch", "numpy", "scipy", "matplotlib", "pandas"}


CONFIGS = {
    b"seed = = 1": "is not valid TOML",
    b"\xff\xfe": "is not valid TOML",
    b"sed = 1": "Unknown option 'sed' in {path}. Did you mean 'seed'?",
    b"private-size = 40": "Did you mean 'private_size'?",
    b"[attack]\nname = 'unet'": "attack: Input should be a valid string",
    b"seed = 'one'": "seed: Input should be a valid integer",
    b"seed = [1]": "seed: Input should be a valid integer",
    b"preset = 'quik'": "preset: Input should be 'quick', 'standard' or 'paper'",
    b"cache = 'elsewhere'": "Unknown option 'cache' in {path}",
    b"owner_key = 'secret'": "Unknown option 'owner_key' in {path}",
    b"observer = 1": "Unknown option 'observer' in {path}",
    b"force = 'attack'": "Unknown option 'force' in {path}",
}


@pytest.mark.core
@pytest.mark.parametrize("text", CONFIGS)
def test_a_file_of_options_that_cannot_be(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "cell.toml"
    path.write_bytes(text)
    done = harness("evaluate", "--config", str(path), cache=tmp_path / "cache")
    assert CONFIGS[text].format(path=path) in complaint(done, 2)


BOARD = """
name = "small"
title = "A board"
[options]
dataset = "fashion-mini"
[[tracks]]
name = "one"
title = "A track"
defenses = ["none"]
[[tracks.cells]]
attacks = ["identity"]
"""
BOARD_FILES = {
    "title = 'A board'": ("titel = 'A board'", "unknown key 'titel'. Did you mean 'title'?"),
    "defenses = ['none']": ("defences = ['none']", "key 'defences' in tracks.0. Did you mean 'def"),
    "attacks = ": ("attack = ", "key 'attack' in tracks.0.cells.0. Did you mean 'attacks'?"),
    "[options]": ("[option]", "unknown key 'option'. Did you mean 'options'?"),
    "dataset = ": ("datset = ", "options of the board cannot be datset. Did you mean 'dataset'?"),
    "'fashion-mini'": ("'fashion-mini'\nseconds = nan", "Input should be a finite number"),
}


@pytest.mark.core
@pytest.mark.parametrize("right", BOARD_FILES)
def test_a_boards_file_that_cannot_be(tmp_path: Path, right: str) -> None:
    wrong, message = (text.replace("'", '"') for text in BOARD_FILES[right])
    text = BOARD.replace(right.replace("'", '"'), wrong)
    (tmp_path / "board.toml").write_text(text, encoding="utf-8")
    done = harness("matrix", "--board", str(tmp_path), "--dry-run", cache=tmp_path / "cache")
    told = complaint(done, 2)
    assert message.replace('"', "'") in told
    assert "Field required" not in told


@pytest.mark.skipif(sys.platform == "darwin", reason="has it")
def test_a_device_that_is_not_here(tmp_path: Path) -> None:
    done = harness(*PRIVACY, "--device", "mps", cache=tmp_path)
    assert "torch sees no mps device here; leave --device at auto" in complaint(done, 2)


@pytest.mark.core
def test_an_owners_key_that_is_too_short(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"short")
    done = harness("evaluate", "--owner-key", str(path), cache=tmp_path / "cache")
    assert f"{path} has 5 bytes; it needs 16 at least" in complaint(done, 2)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (("--private-size", "7000"), "7000 private images were asked for, and there are 6000"),
        (("--test-size", "2001"), "2001 test images were asked for, and there are 2000"),
    ],
)
def test_more_images_than_there_are(tmp_path: Path, sizes: tuple[str, str], message: str) -> None:
    done = harness(*PRIVACY, *sizes, cache=tmp_path)
    assert message in complaint(done, 2)
    assert not list(tmp_path.glob("tmp/*"))
    assert not list(tmp_path.glob("artifacts/*/*"))


def test_more_rounds_than_this_machine_can_hold(tmp_path: Path) -> None:
    """Where the size of an image is known, which is before the first round is stacked."""
    import psutil

    rounds = psutil.virtual_memory().total // (40 * 28 * 28 * 4) + 1
    message = complaint(harness(*PRIVACY, "--rounds", str(rounds), cache=tmp_path), 2)
    assert "All encodings together take" in message
    assert "GB of memory: ask for fewer rounds" in message


# -- a cache that cannot be used -------------------------------------------------------------------


def test_a_file_where_the_cache_should_be(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_text("in the way")
    message = complaint(harness(*PRIVACY, cache=cache), 2)
    assert str(cache) in message
    assert "a file is in the way; remove it, or set HARNESS_CACHE to another folder" in message
    cache.unlink()
    record(*PRIVACY, cache=cache)


def test_a_cache_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = complaint(harness(*PRIVACY, cache=tmp_path / "file" / "cache"), 2)
    assert "HARNESS_CACHE" in message


@pytest.mark.core
@pytest.mark.parametrize("command", ["evaluate", "cache info", "assets list", "doctor", "show a"])
@pytest.mark.parametrize("name", [300 * "c", "~nobody-of-that-name/cache"])
def test_a_cache_with_an_impossible_name(tmp_path: Path, command: str, name: str) -> None:
    done = harness(*command.split(), cache=tmp_path / name if "~" not in name else Path(name))
    assert "HARNESS_CACHE" in complaint(done, 2)


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """A folder that this user cannot write in; root meets its limits in the kernel's own."""
    if os.geteuid() == 0:
        if not Path("/sys/kernel").is_dir():
            pytest.skip("nothing here is closed to root")
        return Path("/sys/kernel/harness-cache")
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    return folder


def test_a_cache_that_cannot_be_written(tmp_path: Path, unwritable: Path) -> None:
    message = complaint(harness(*PRIVACY, cache=unwritable), 2)
    assert str(unwritable) in message
    assert "set HARNESS_CACHE to another folder" in message
    assert harness("doctor", cache=unwritable).returncode == 1
    record(*PRIVACY, cache=tmp_path / "elsewhere")


def small_files_only(limit: int) -> None:
    """From here on no file of this process grows beyond `limit` bytes: a disk that is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


@pytest.mark.parametrize("limit", [1_000, 110_000], ids=["splits", "release"])
def test_no_room_left(tmp_path: Path, limit: int) -> None:
    """With these sizes the splits take 95 kB and the release 128 kB."""
    command = (*PRIVACY, "--public-size", "40", "--test-size", "40")
    with start(*command, cache=tmp_path, preexec_fn=lambda: small_files_only(limit)) as process:
        out, err = process.communicate(timeout=120)
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    assert "HARNESS_CACHE" in complaint(done, 2)
    assert not list(tmp_path.glob("tmp/*"))
    assert "Everything is what its hash says" in succeed("cache", "verify", cache=tmp_path)
    record(*command, cache=tmp_path)


# -- bytes that are not what they were -------------------------------------------------------------

SMALL = {
    **{"private_size": 40, "public_size": 120, "test_size": 60, "threads": 1},
    **{"metrics": "snr_db,mse", "learner": "classmeans", "victim": "mlp[epochs=1,width=8]"},
}
ENCODED = {**SMALL, "defense": "singmix[noise=gaussian]", "attack": "identity", "ceiling": True}
TRAINED = {**SMALL, "defense": "none", "attack": "linear[steps=1]", "release": "features"}
CELL_OF = {stage: TRAINED if stage == "train" else ENCODED for stage in NAMES}
"""Two cells that have every stage between them."""


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache with both of them."""
    cache = tmp_path_factory.mktemp("evaluated")
    with FORK_SERVERS.kept():
        for cell in (ENCODED, TRAINED):
            assert evaluate(cache=cache, **cell).status == "ok"
        yield cache


@pytest.fixture
def cache(tmp_path: Path, evaluated: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to be damaged."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "copy"))
    return shutil.copytree(evaluated, tmp_path / "copy")


def flip(path: Path) -> None:
    """Change one bit in the middle of a file; of a record, of its scores."""
    data = bytearray(path.read_bytes())
    scores = data.find(b'"privacy":{')
    data[len(data) // 2 if scores < 0 else scores + 20] ^= 1
    path.write_bytes(data)


def hasten(path: Path) -> None:
    """Change one bit of a time, which a record's id leaves out."""
    data = bytearray(path.read_bytes())
    data[re.search(rb'"timing":{"[^"]*":', data).end()] ^= 1  # type: ignore[union-attr]
    path.write_bytes(data)


def truncate(path: Path) -> None:
    """Cut a file in half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    """Leave its name alone, as a loss of power may."""
    path.write_bytes(b"")


def reword(path: Path) -> None:
    """Change a score, where there is one, and keep to the format."""
    path.write_text(path.read_text().replace("0.", "1.", 1))


def exchange(path: Path) -> None:
    """Put a genuine entry of another stage in its place."""
    entry = path.parent
    stages = entry.parents[1]
    other = min(each for each in stages.glob("*/*") if each.parent != entry.parent)
    shutil.rmtree(entry)
    shutil.copytree(other, entry)


HARMS: dict[str, Callable[[Path], object]] = {
    "one bit of tensors": lambda entry: flip(entry / TENSORS),
    "one bit of facts": lambda entry: flip(entry / FACTS),
    "tensors of no length": lambda entry: empty(entry / TENSORS),
    "facts of no length": lambda entry: empty(entry / FACTS),
    "half of the facts": lambda entry: truncate(entry / FACTS),
    "tensors gone": lambda entry: (entry / TENSORS).unlink(),
    "another in its place": lambda entry: exchange(entry / FACTS),
}


def entries(cache: Path, stage: str) -> list[Path]:
    return sorted((cache / "artifacts" / stage).iterdir())


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("stage", NAMES)
def test_a_damaged_entry_of_any_stage_is_found_when_it_is_read(
    cache: Path, stage: str, harm: str
) -> None:
    for entry in entries(cache, stage):
        HARMS[harm](entry)
        with pytest.raises(IntegrityError, match=f"corrupt: {entry}: .*cache verify --remove"):
            Store(cache).read(stage, entry.name)


@pytest.mark.parametrize(
    "harm", ["one bit of tensors", "facts of no length", "tensors gone", "another in its place"]
)
@pytest.mark.parametrize("stage", NAMES)
def test_a_damaged_stage_is_repaired_by_one_command_and_ends_in_the_same_record(
    cache: Path, stage: str, harm: str
) -> None:
    cell = {**CELL_OF[stage], "force": "attack" if stage == "prepare" else None}
    kept, harmed = evaluate(cache=cache, **CELL_OF[stage]), entries(cache, stage)
    for entry in harmed:
        HARMS[harm](entry)
    shutil.rmtree(cache / "cells")
    with pytest.raises(IntegrityError, match=f"artifacts/{stage}/.*cache verify --remove"):
        evaluate(cache=cache, **cell)
    assert not list((cache / "tmp").iterdir())
    named = verify(remove=True)
    assert all(str(entry) in fault for entry, fault in zip(harmed, named, strict=True))
    assert evaluate(cache=cache, **cell).id == kept.id
    assert verify(remove=False) == []


@pytest.mark.parametrize("harm", [flip, hasten, truncate, empty, reword])
def test_a_damaged_record(cache: Path, evaluated: Path, harm: Callable[[Path], None]) -> None:
    kept = evaluate(cache=cache, **ENCODED)
    path = cache / "records" / f"{kept.id}.json"
    harm(path)
    for again in (lambda: evaluate(cache=cache, **ENCODED), lambda: Records(cache).find(kept.id)):
        with pytest.raises(IntegrityError, match=f"{path} .*cache verify --remove"):
            again()
    (fault,) = verify(remove=True)
    assert str(path) in fault
    assert evaluate(cache=cache, **ENCODED).id == kept.id


def test_a_record_in_anothers_place(cache: Path) -> None:
    """A genuine record of another cell does not answer for this one."""
    kept, other = (evaluate(cache=cache, **cell) for cell in (ENCODED, TRAINED))
    shutil.copy(cache / "records" / f"{other.id}.json", cache / "records" / f"{kept.id}.json")
    with pytest.raises(IntegrityError):
        evaluate(cache=cache, **ENCODED)


def test_a_damaged_cache_says_so_once_and_one_command_mends_it(tmp_path: Path) -> None:
    command = (*PRIVACY, "--json")
    kept = record(*PRIVACY, cache=tmp_path)
    (pointer,) = (tmp_path / "cells").iterdir()
    pointer.write_text(f"{kept['id']} 0")
    for path in (tmp_path / "artifacts" / "judge").glob(f"*/{FACTS}"):
        reword(path)
    message = complaint(harness(*command, cache=tmp_path), 3)
    assert f"cells/{pointer.name} answers for no cell" in message
    assert "`harness cache verify --remove`" in message
    assert harness("cache", "verify", cache=tmp_path).returncode == 3
    assert "removed: " in succeed("cache", "verify", "--remove", cache=tmp_path)
    assert record(*PRIVACY, cache=tmp_path)["id"] == kept["id"]


def test_a_half_fetched_asset(tmp_path: Path) -> None:
    folder = tmp_path / "assets" / "cifar10"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(b"\0" * 3073)
    before = files(folder)
    done = harness("evaluate", "--dataset", "cifar10", cache=tmp_path)
    message = complaint(done, 3)
    assert "asset 'cifar10' is damaged: data_batch_1.bin: expected md5:" in message
    assert "harness assets fetch cifar10 --force" in message
    assert files(folder) == before
    listed = json.loads(succeed("assets", "list", "--json", cache=tmp_path))
    assert {a["name"]: a["state"] for a in listed}["cifar10"] == "damaged"
    assert harness("doctor", cache=tmp_path).returncode == 1
