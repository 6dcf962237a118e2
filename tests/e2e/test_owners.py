"""Two owners and a server, on the command line: keys, packages, a model, and what it says."""

from __future__ import annotations

import csv
import json
import signal
import time
from pathlib import Path

import pytest
from commandline import complaint, fork, harness, succeed

LAW = "singmix[noise=gaussian,radius=40]"
SMALL = ("--dataset", "fashion-mini", "--private-size", "200", "--rounds", "2", "--threads", "1")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("owners")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def packages(place: Path, cache: Path) -> tuple[str, str]:
    """One owner chooses a law, the other releases like it."""
    keys = [str(place / f"{name}.key") for name in "ab"]
    outs = str(place / "a.release"), str(place / "b.release")
    for key in keys:
        succeed("keygen", key, cache=cache)
    own = ("--owner-key", keys[0], "--out", outs[0], "--part", "1/2", "--defense", LAW, "--yes")
    said = succeed("release", *SMALL, *own, cache=cache)
    assert "2 rounds of 100 encodings 1x28x28 with soft labels of 10 classes" in said
    assert "an attacker will know the law with all its parameters" in said
    assert "dp: epsilon" in said
    own = ("--owner-key", keys[1], "--out", outs[1], "--part", "2/2", "--like", outs[0], "--yes")
    values = json.loads(succeed("release", *SMALL, *own, "--json", cache=cache))
    assert values["bytes"] == Path(outs[1]).stat().st_size
    return outs


def test_a_package_says_what_it_holds(packages: tuple[str, str], cache: Path) -> None:
    said = json.loads(succeed("inspect", packages[0], "--json", cache=cache))
    assert said["law"]["config"]["radius"] == 40.0
    assert (said["rounds"], said["rows"]) == (2, 100)
    shown = succeed("inspect", packages[1], cache=cache)
    assert "every hash holds" in shown
    assert "its owner states of any one image in 2 rounds" in shown
    assert "proven of" not in shown


def test_a_server_learns_and_the_model_predicts(
    packages: tuple[str, str], place: Path, cache: Path
) -> None:
    model = str(place / "model")
    asked = ("--test", "fashion-mini", "--public", "fashion-mini", "--out", model)
    values = json.loads(succeed("learn", *packages, *asked, "--json", cache=cache))
    assert values["learned"]["accuracy"] > 0.5
    rows = list(csv.DictReader(succeed("predict", model, "fashion-mini", cache=cache).splitlines()))
    assert len(rows) == 2000
    assert set(rows[0]) == {"image", "class", "probability"}
    found = json.loads(succeed("predict", model, "fashion-mini", "--json", cache=cache))
    assert [each["predicted"] for each in found] == [row["class"] for row in rows]


def test_killed_after_the_first_learner_the_same_command_goes_on(
    packages: tuple[str, str], tmp_path: Path
) -> None:
    """To the model that a command made that nobody stopped."""
    small = ("--learner", "standard", "--victim", "mlp[epochs=1,width=8]")
    asked = ("learn", *packages, *small, "--test", "fashion-mini", "--public", "fashion-mini")
    caches, models = (tmp_path / "quiet", tmp_path / "killed"), tmp_path / "models"
    models.mkdir()
    succeed(*asked, "--out", str(models / "undisturbed"), cache=caches[0])
    out = ("--out", str(models / "model"))
    for number, signal_ in enumerate((signal.SIGKILL, signal.SIGINT), 1):
        with fork(*asked, *out, cache=caches[1]) as process:
            while len(kept(caches[1])) < number:
                assert process.poll() is None, process.communicate()
                time.sleep(0.005)
            process.send_signal(signal_)
        assert process.returncode != 0
        assert [path.name for path in models.iterdir()] == ["undisturbed"]
    before = len(kept(caches[1]))
    done = harness(*asked, *out, cache=caches[1])
    assert done.returncode == 0, done.stderr
    assert before == done.stderr.count(": stored")
    assert "learn classmeans: stored" in done.stderr
    assert "stored    classmeans" in done.stdout
    assert "note      encoded is left out" in done.stdout
    one, other = ({p.name: p.read_bytes() for p in each.iterdir()} for each in models.iterdir())
    assert one == other


def kept(cache: Path) -> list[Path]:
    """What learners made, each in whole."""
    return list(cache.glob("artifacts/learned/*/facts.json"))


def test_a_package_is_attacked_and_judged(
    packages: tuple[str, str], place: Path, cache: Path
) -> None:
    truth = ("--truth", "fashion-mini", "--private-size", "200", "--part", "1/2")
    small = ("--public-size", "500", "--test-size", "200", "--threads", "1", "--only", "privacy")
    asked = ("evaluate", "--package", packages[0], *truth, *small, "--metrics", "snr_db")
    plain = json.loads(succeed(*asked, "--attack", "nearest", "--json", cache=cache))
    assert (plain["threat_model"], plain["splits"]["private"]) == ("released", 100)
    assert plain["seeds"]["owner_key"].startswith("package ")
    done = harness(*asked, "--attack", "linear", "--threat-model", "informed", cache=cache)
    assert "--owner-key makes them again" in complaint(done, 2)
    key = ("--owner-key", str(place / "a.key"))
    said = succeed(*asked, "--attack", "linear", *key, cache=cache)
    assert "(informed, quick, 100 targets, 2 rounds)" in said


def test_a_changed_byte_ends_with_three(
    packages: tuple[str, str], place: Path, cache: Path
) -> None:
    data = bytearray(Path(packages[0]).read_bytes())
    data[-100] ^= 4
    (place / "changed.release").write_bytes(data)
    changed = str(place / "changed.release")
    for command in (
        ("inspect", changed),
        ("learn", changed, "--out", str(place / "none")),
        ("evaluate", "--package", changed, "--truth", "fashion-mini"),
    ):
        done = harness(*command, cache=cache)
        assert "does not have the hash" in complaint(done, 3)
    assert not (place / "none").exists()


def test_owners_are_asked_where_nothing_is_proven(place: Path, cache: Path) -> None:
    key, out = str(place / "c.key"), place / "c.release"
    succeed("keygen", key, cache=cache)
    ledger = Path(f"{key}.ledger")
    fresh = ledger.read_bytes()
    asked = ("release", *SMALL, "--defense", "mixup", "--owner-key", key, "--out", str(out))
    done = harness(*asked, cache=cache)
    assert "Nothing was written: nothing bounds what leaks" in complaint(done, 2)
    said = succeed(*asked, "--dry-run", cache=cache)
    assert "WARNING     nothing bounds what leaks" in said
    assert "the law states no noise" in said
    assert "and not: the images" not in said
    assert not out.exists()
    assert ledger.read_bytes() == fresh
    succeed(*asked, "--yes", cache=cache)
    assert out.exists()
    ledger.unlink()
    done = harness(*asked[:-1], str(place / "lost"), "--yes", cache=cache)
    assert "--new-ledger begins another" in complaint(done, 2)
    other = str(place / "d.key")
    succeed("keygen", other, cache=cache)
    weak = ("release", *SMALL, "--defense", LAW, "--owner-key", other, "--out", str(place / "d"))
    assert "allows an epsilon of" in complaint(harness(*weak, cache=cache), 2)
    assert not (place / "d").exists()


REFUSED = {
    "release --out x.release": "Missing option '--owner-key'",
    "release --owner-key no.key --out x.release": "`harness keygen no.key` draws one",
    "keygen no/where.key": "There is no folder",
    "inspect nothing": "There is no package nothing",
    "learn nothing --out model": "There is no package nothing",
    "evaluate --package nothing --truth fashion-mini": "There is no package nothing",
    "evaluate --package nothing": "name them with --truth",
    "evaluate --part 1/2": "name it with --package",
    "evaluate --package nothing --truth fashion-mini --dry-run": "looks at no package",
    "predict nothing x.png": "nothing is not a model",
}


@pytest.mark.parametrize("written", REFUSED)
def test_what_cannot_be_is_said_in_words(tmp_path: Path, written: str) -> None:
    done = harness(*written.split(), cache=tmp_path / "cache", cwd=tmp_path)
    assert REFUSED[written] in complaint(done, 2)
