"""Whatever is wrong with the input, one message says so, and mending it as told is enough."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commandline import PRIVACY, TINY, complaint, files, harness, python, record, start, succeed

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


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache with one evaluation in it, both halves."""
    cache = tmp_path_factory.mktemp("evaluated")
    return cache, record(*TINY, "--attack", "identity", cache=cache)


@pytest.fixture
def cache(tmp_path: Path, evaluated: tuple[Path, dict[str, Any]]) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(evaluated[0], tmp_path / "copy")


def flip(path: Path) -> None:
    """Change one bit in the middle of a file; of a record, of its scores."""
    data = bytearray(path.read_bytes())
    scores = data.find(b'"privacy":{')
    data[len(data) // 2 if scores < 0 else scores + 20] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    """Cut a file in half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def reword(path: Path) -> None:
    """Change a score, where there is one, and keep to the format."""
    path.write_text(path.read_text().replace("0.", "1.", 1))


DAMAGE = [
    ("load", "tensors.safetensors", flip),
    ("release", "tensors.safetensors", flip),
    ("learn", "facts.json", truncate),
    ("prepare", "tensors.safetensors", flip),
    ("attack", "tensors.safetensors", truncate),
    ("judge", "tensors.safetensors", flip),
    ("judge", "facts.json", reword),
]


@pytest.mark.parametrize(("stage", "name", "harm"), DAMAGE)
def test_a_damaged_artifact(
    cache: Path, evaluated: tuple[Path, dict[str, Any]], stage: str, name: str, harm: Any
) -> None:
    paths = list((cache / "artifacts" / stage).glob(f"*/{name}"))
    whole = [path.read_bytes() for path in paths]
    for path in paths:
        harm(path)
    assert [path.read_bytes() for path in paths] != whole
    shutil.rmtree(cache / "cells")
    forced = ("--force", "attack") if stage == "prepare" else ()
    command = (*TINY, "--attack", "identity", *forced)
    message = complaint(harness(*command, cache=cache), 3)
    assert f"artifacts/{stage}/" in message
    assert "`harness cache verify --remove`" in message
    assert not list((cache / "tmp").iterdir())
    assert harness("cache", "verify", cache=cache).returncode == 3
    assert "removed: " in succeed("cache", "verify", "--remove", cache=cache)
    assert record(*command, cache=cache)["id"] == evaluated[1]["id"]


@pytest.mark.parametrize("harm", [flip, truncate, reword])
def test_a_damaged_record(cache: Path, evaluated: tuple[Path, dict[str, Any]], harm: Any) -> None:
    kept = evaluated[1]
    harm(cache / "records" / f"{kept['id']}.json")
    for command in ((*TINY, "--attack", "identity"), ("show", kept["id"])):
        message = complaint(harness(*command, cache=cache), 3)
        assert "`harness cache verify --remove`" in message
    succeed("cache", "verify", "--remove", cache=cache)
    assert record(*TINY, "--attack", "identity", cache=cache)["id"] == kept["id"]


def test_a_record_in_anothers_place(cache: Path, evaluated: tuple[Path, dict[str, Any]]) -> None:
    """A genuine record of another cell does not answer for this one."""
    kept = evaluated[1]
    other = record(*PRIVACY, "--seed", "5", cache=cache)
    shutil.copy(cache / "records" / f"{other['id']}.json", cache / "records" / f"{kept['id']}.json")
    complaint(harness(*TINY, "--attack", "identity", cache=cache), 3)


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
