"""Forged records and submissions: each is refused where its honest original is accepted.

Forgers seal what they write: ids are right wherever that helps. What nobody finds out without
running the cell again stands in a table of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from board_records import raised
from handed_in import make_board, report, submit

import harness
from harness.api import HarnessError
from harness.asking.registry import registry
from harness.boards.folder import BoardFolder
from harness.boards.freezing import freeze
from harness.control import VOLATILE
from harness.results.build import board_view
from harness.results.material import gathered
from harness.scoring.summary import share_interval
from harness.scoring.utility import Right, summed_up
from harness.store.provenance import sha256_of
from harness.store.record import RunRecord, fingerprint, parse_record, rest_of
from harness.submissions.checks import exit_code
from harness.submissions.verification import Verifier

Values = dict[str, Any]
Change = Callable[[Values], object]
Forge = Callable[[BoardFolder], object]
OWN, HANDED_IN = "records/*.json", "submissions/mine/records/*.json"
RECORD = "encoding-harness/record/"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board with records, a report on controls and a submission."""
    board = make_board(tmp_path_factory.mktemp("honest") / "board")
    submit(board)
    return board.path


@pytest.fixture
def board(honest: Path, tmp_path: Path) -> BoardFolder:
    return BoardFolder(shutil.copytree(honest, tmp_path / "board"))


@pytest.fixture
def frozen(board: BoardFolder) -> BoardFolder:
    freeze(board.path, registry())
    return BoardFolder(board.path)


def refused(board: Path) -> list[str]:
    """Why nothing of a board is taken as it is; nothing where all is."""
    with Verifier(board, judge=False) as verifier:
        found = list(verifier.verify(str(board)))
    notes = [note for each in found if each.outcome != "ok" for note in each.notes]
    assert bool(notes) == bool(exit_code(found))
    try:
        board_view(gathered(BoardFolder(board)))
    except HarnessError as error:
        notes.append(str(error))
    return notes


def linear(board: BoardFolder, where: str = OWN) -> Path:
    """A record of the attack `linear`, of seed 0."""
    paths = sorted(board.path.glob(where))
    asked = [json.loads(path.read_bytes())["request"] for path in paths]
    return next(
        path
        for path, each in zip(paths, asked, strict=True)
        if (each["attack"], each["seed"]) == ("linear", 0)
    )


def sealed(change: Change, where: str = OWN) -> Forge:
    """Edit a record, and everything that names it."""

    def forge(board: BoardFolder) -> None:
        path = linear(board, where)
        values = json.loads(path.read_bytes())
        old = values["id"]
        change(values)
        values |= {"id": fingerprint(values), "rest": rest_of(values)}
        path.unlink()
        path.with_name(f"{values['id']}.json").write_text(json.dumps(values))
        home = path.parents[1]
        for kept in home.glob(f"reconstructions/{old}.*"):
            kept.rename(kept.with_stem(values["id"]))
        if where == HANDED_IN:
            toml(old, values["id"])(board)

    return forge


def handed_in(change: Change) -> Forge:
    return sealed(change, HANDED_IN)


def raw(old: str, new: str) -> Forge:
    """Edit the text of a record, and no hash."""

    def forge(board: BoardFolder) -> None:
        path = linear(board)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8", errors="surrogatepass")

    return forge


def recoded(change: Callable[[bytes], bytes], where: str = OWN) -> Forge:
    return lambda b: linear(b, where).write_bytes(change(linear(b, where).read_bytes()))


def toml(old: str, new: str) -> Forge:
    """Edit what a submission says of itself."""

    def forge(board: BoardFolder) -> None:
        path = board.path / "submissions" / "mine" / "submission.toml"
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return forge


def signed(change: Change) -> Forge:
    """Edit the report on controls, and its id."""

    def forge(board: BoardFolder) -> None:
        (path,) = board.controls.glob("*.json")
        values = json.loads(path.read_bytes())
        change(values)
        values["id"] = sha256_of({k: v for k, v in values.items() if k not in VOLATILE})
        path.write_text(json.dumps(values))

    return forge


def instead(where: str, put: Callable[[Path], object]) -> Forge:
    """Something else in place of the first file of this kind."""

    def forge(board: BoardFolder) -> None:
        path = sorted(board.path.glob(where))[0]
        path.unlink()
        put(path)

    return forge


def long(path: Path, size: int = 1 << 40) -> None:
    """A file of a terabyte that takes no room."""
    path.touch()
    os.truncate(path, size)


def moved_away(board: BoardFolder) -> None:
    """The records of a submission lie elsewhere, and a link leads there."""
    folder = board.path / "submissions" / "mine" / "records"
    folder.symlink_to(folder.rename(board.path.with_name("elsewhere")))


def swapped(board: BoardFolder) -> None:
    """The answers of two records, each under the name of the other."""
    one, other, *_ = sorted(board.path.glob("submissions/mine/reconstructions/*"))
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)


def under_another_name(board: BoardFolder) -> None:
    """What one record says, in place of another."""
    one, other, *_ = sorted(board.path.glob(OWN))
    other.write_bytes(one.read_bytes())


def another_of_the_cell(board: BoardFolder) -> None:
    path = linear(board)
    values = json.loads(path.read_bytes()) | {"verdict": "all is well"}
    values["id"] = fingerprint(values)
    path.with_name(f"{values['id']}.json").write_text(json.dumps(values))


def learned(right: int, plain: int = 30) -> Values:
    """What a record says where so many of 40 test images were named rightly, sums and all."""
    told = (Right(inference="plain", counts={"plain": k}, chance=0.1, n=40) for k in (right, plain))
    own, reference = told
    return summed_up([own], [reference]).model_dump(mode="json")


def easier_null(values: Values) -> None:
    """A guess that scores less on every image, so that more is gained over it."""
    score, kept = values["privacy"]["snr_db"], values["by_image"]["snr_db"]
    kept["guess"] = [each - 0.5 for each in kept["guess"]]
    score["null"] -= 0.5
    score["nulls"]["class_mean"] -= 0.5
    score["gain"] += 0.5
    score["gain_ci"] = [bound + 0.5 for bound in score["gain_ci"]]


def narrow(values: Values) -> None:
    low, high = values["privacy"]["snr_db"]["gain_ci"]
    values["privacy"]["snr_db"]["gain_ci"] = [low + 0.1 * (high - low), high]


def old(version: int, **more: Any) -> Change:
    return lambda v: v.update(schema=f"{RECORD}{version}", **more)


def snr(values: Values) -> Values:
    score: Values = values["privacy"]["snr_db"]
    return score


def better_learned(values: Values) -> None:
    """Every test image is named rightly, as the record's own arithmetic has it."""
    utility = values["utility"]
    interval = share_interval([1.0], utility["n"])
    assert interval
    (name,) = utility["accuracies"]
    ever = {"mean": 1.0, "interval": list(interval), "trainings": [1.0]}
    utility.update(accuracy=1.0, interval=list(interval), accuracies={name: ever})


NOT_RUN = {
    "status": "not_applicable",
    "error": "it reads gradients",
    "privacy": {},
    "by_image": {},
    "utility": None,
    "artifacts": {},
    "channels_used": [],
}
OTHER = "0" * 64

OF_RECORDS: dict[str, tuple[Forge, str]] = {
    "schema of version 1": (sealed(old(1, by_image={})), "of version 1, whose gains nobody"),
    "schema of version 3, without scores by image": (
        sealed(old(3, by_image={})),
        "of version 3, whose gains nobody",
    ),
    "schema of version 6, without ceilings": (
        sealed(old(6, ceilings={})),
        "takes records of today's",
    ),
    "schema that never was": (sealed(old(33)), "no records of the schema"),
    "schema with a space": (
        sealed(lambda v: v.update(schema=f"{RECORD}7 ")),
        "no records of the schema",
    ),
    "members of a plain attack": (
        sealed(
            lambda v: v.update(members={"x": {"status": "ok", "attack": v["attack"]}}, by_image={})
        ),
        "names many attacks",
    ),
    "a gain's interval of one's choice": (sealed(narrow), "gain's interval is not"),
    "a mean's interval of one's choice": (
        sealed(lambda v: snr(v).update(ci=[snr(v)["mean"] - 0.1, snr(v)["mean"] + 0.1])),
        "interval is not",
    ),
    "no interval": (sealed(lambda v: snr(v).update(gain_ci=None)), "interval should be"),
    "a lower mean": (sealed(lambda v: snr(v).update(mean=1.0)), "mean 1 is not"),
    "a lower worst case": (sealed(lambda v: snr(v).update(worst=1.0)), "worst 1 is not"),
    "another null": (sealed(lambda v: snr(v).update(null=0.0)), "its null is not that of"),
    "an easier null, sums and all": (sealed(easier_null), "disagree.*null 'class_mean'"),
    "a null less": (
        sealed(lambda v: v["by_image"]["snr_db"]["nulls"].pop("mean_image")),
        "both a mean and scores by image",
    ),
    "no answers to others": (
        sealed(lambda v: v["by_image"]["snr_db"].update(misplaced=[])),
        "score where others are true",
    ),
    "another accuracy": (sealed(lambda v: v["utility"].update(accuracy=0.99)), "accuracy 0.99 is"),
    "another accuracy, sums and all": (
        sealed(lambda v: v.update(utility=learned(39))),
        "disagree.*accuracy is",
    ),
    "another reference, sums and all": (
        sealed(lambda v: v.update(utility=learned(30, 20))),
        "disagree.*accuracy without protection",
    ),
    "an accuracy of no number of images": (
        sealed(lambda v: v["utility"]["accuracies"]["plain"].update(trainings=[0.77])),
        "no share of 40 images",
    ),
    "the hash of another release": (
        sealed(lambda v: v["artifacts"]["release"].update(sha256=OTHER)),
        "disagree.*of one release",
    ),
    "another source": (
        sealed(lambda v: v["attack"].update(source_sha256=OTHER)),
        "attack linear .* is not what the board froze",
    ),
    "another source, and another accuracy": (
        sealed(
            lambda v: (v["defense"][0].update(source_sha256=OTHER), v.update(utility=learned(39)))
        ),
        "defense .* is not what the board froze",
    ),
    "another version": (
        sealed(lambda v: v["attack"].update(version="0")),
        "attack linear .* is not what the board froze",
    ),
    "options that moved": (
        sealed(lambda v: v["attack"]["config"].update(steps=1)),
        "attack linear .* is not what the board froze",
    ),
    "from another distribution": (
        sealed(lambda v: v["attack"].update(distribution="mine")),
        "'linear' comes with the harness",
    ),
    "another plugin than was asked for": (
        sealed(lambda v: v["attack"].update(name="identity")),
        "the attack 'linear' was asked for",
    ),
    "a request that moved": (
        sealed(lambda v: v["request"].update(private_size=39)),
        "has no such cell",
    ),
    "another preset": (sealed(lambda v: v["request"].update(preset="quick")), "has no such cell"),
    "another seed": (sealed(lambda v: v["seeds"].update(seed=5)), "the seed is 5"),
    "a key of one's own": (
        sealed(lambda v: v["seeds"].update(owner_key="mine")),
        "an owner's key of its own",
    ),
    "another threat model": (
        sealed(lambda v: v.update(threat_model="released")),
        "the threat model is",
    ),
    "more knowledge": (
        sealed(lambda v: v.update(channels_used=["candidates", *v["channels_used"]])),
        "its attack is given",
    ),
    "another kind of release": (
        sealed(lambda v: v.update(release_kind="features")),
        "such a cell releases encodings",
    ),
    "left out of the count": (
        sealed(lambda v: v["flags"].append({"name": "unranked", "message": "a first look"})),
        "nothing that was asked makes it so",
    ),
    "a flag that does not follow": (
        sealed(lambda v: v["flags"].append({"name": "below_null", "message": "it is"})),
        "do not bear out the flag below_null",
    ),
    "no result, for a reason of one's own": (
        sealed(lambda v: v.update(NOT_RUN)),
        "which only running it again",
    ),
    "failed, with scores": (
        sealed(lambda v: v.update(status="failed", error="no")),
        "it says failed and has scores",
    ),
    "scores of fewer targets": (
        sealed(lambda v: v["splits"].update(targets=7)),
        "not of its targets",
    ),
    "an id of one's own": (raw('"id":"', '"id":"0'), "do not match its id"),
    "what another record says": (under_another_name, "do not match its id"),
    "two records of one cell": (another_of_the_cell, "2 records are of one cell"),
    "another date": (raw('"created":"2026', '"created":"2027'), "its id does not cover"),
    "another time": (raw('"attack":1.0', '"attack":2.0'), "its id does not cover"),
    "confined, though it was not": (
        raw('"environment":{}', '"environment":{"confined":{"landlock":7,"seccomp":true}}'),
        "its id does not cover",
    ),
    "another commit": (raw('"code":{}', '"code":{"commit":"0"}'), "its id does not cover"),
    "more than a record says": (sealed(lambda v: v.update(rank=1)), "rank: Extra inputs"),
    "more than a plugin says": (
        sealed(lambda v: v["attack"].update(verified=True)),
        "attack.verified: Extra inputs",
    ),
    "a key twice": (raw('{"artifacts"', '{"status":"ok","artifacts"'), "'status' stands there twi"),
    "a key twice, deep inside": (raw('"seed":0', '"seed":1,"seed":0'), "'seed' stands there twice"),
    "NaN": (raw('"attack":1.0', '"attack":NaN'), "NaN is no number"),
    "infinity": (raw('"attack":1.0', '"attack":1e999'), "is not a record"),
    "UTF-16": (recoded(lambda data: data.decode().encode("utf-16")), "is not a record"),
    "a byte order mark": (recoded(lambda data: b"\xef\xbb\xbf" + data), "is not a record"),
    "half of a character": (raw('"verdict":""', '"verdict":"\\ud800"'), "is not a record"),
    "nested without end": (recoded(lambda _: b"[" * 100_000), "is not a record"),
    "text that turns around": (
        sealed(lambda v: v.update(verdict="leaks \u202enothing")),
        r"hides the character U\+202E",
    ),
    "a name with a letter that nobody sees": (
        sealed(lambda v: v["attack"].update(name="linear\u200b")),
        r"hides the character U\+200B",
    ),
    "a name that looks like another": (
        sealed(lambda v: v["attack"].update(name="line\u0430r")),
        "other letters than those of ASCII",
    ),
    "a metric that looks like another": (
        sealed(lambda v: v["privacy"].update({"\u0455sim": v["privacy"]["ssim"]})),
        "other letters than those of ASCII",
    ),
    "a hash that is a path": (
        sealed(lambda v: v["artifacts"]["release"].update(sha256="../../../../etc/passwd")),
        "artifacts.release.sha256: String should match pattern",
    ),
    "a link": (
        instead(OWN, lambda p: p.symlink_to("/etc/hostname")),
        "is a link",
    ),
    "a link to a device": (instead(OWN, lambda p: p.symlink_to("/dev/zero")), "is a link"),
    "a pipe": (instead(OWN, os.mkfifo), "is no plain file"),
    "a folder": (instead(OWN, Path.mkdir), "is no plain file"),
    "a terabyte": (instead(OWN, long), r"has 1,099,511,627,776 bytes"),
}
OF_REPORTS: dict[str, tuple[Forge, str]] = {
    "passed without reaching what was asked": (
        signed(lambda v: v["results"][0].update(reached=-9.0, ci=[-10.0, -8.0])),
        "did not end as it says",
    ),
    "an easier control": (
        signed(lambda v: v["results"][0]["control"].update(at_least=-99.0)),
        "are not those that 'linear' declares",
    ),
    "no controls": (signed(lambda v: v.update(results=[])), "it holds no controls"),
    "another word for the whole": (
        lambda b: b.keep_control(report(value=-9.0).model_copy(update={"passed": True}).sealed()),
        "does not say of the whole",
    ),
    "a report that is a pipe": (instead("controls/*.json", os.mkfifo), "is no plain file"),
    "a report that is a link": (
        instead("controls/*.json", lambda p: p.symlink_to(p.with_name("x"))),
        "is a link",
    ),
}
DEFENSE = "mixup[k=4]"
OF_SUBMISSIONS: dict[str, tuple[Forge, str]] = {
    "a schema of before": (handed_in(old(6, ceilings={})), "takes records of today's"),
    "another accuracy": (
        handed_in(lambda v: v.update(utility=learned(39))),
        "disagree.*accuracy is",
    ),
    "a source that is not installed": (
        handed_in(lambda v: v["attack"].update(source_sha256=OTHER)),
        "'linear' is not what",
    ),
    "options that are not what was asked": (
        handed_in(lambda v: v["attack"]["config"].update(steps=1)),
        "'linear' is not what",
    ),
    "a plugin under another's name": (
        handed_in(lambda v: v["attack"].update(distribution="mine")),
        "'linear' comes with the harness",
    ),
    "another defense than is handed in": (
        handed_in(lambda v: v["defense"][0].update(source_sha256=OTHER)),
        "'mixup' of this source is not what was handed in",
    ),
    "a cell of another defense": (toml(DEFENSE, "mixup[k=8]"), "has no such cell"),
    "no result, for a reason of one's own": (
        handed_in(lambda v: v.update(NOT_RUN)),
        "which only running it again",
    ),
    "answers swapped": (swapped, "its reconstruction does not have the hash"),
    "another answer of as many bytes": (
        instead("submissions/mine/reconstructions/*", lambda p: p.write_bytes(b"x" * 78)),
        "its reconstruction does not have the hash|belongs to no record|its reconstruction has",
    ),
    "no answer": (
        instead("submissions/mine/reconstructions/*", lambda _: None),
        "its reconstruction is not there",
    ),
    "an answer that is a pipe": (
        instead("submissions/mine/reconstructions/*", os.mkfifo),
        "is no plain file",
    ),
    "an answer that is a link": (
        instead("submissions/mine/reconstructions/*", lambda p: p.symlink_to("/dev/zero")),
        "is a link",
    ),
    "an answer of gigabytes": (
        instead("submissions/mine/reconstructions/*", lambda p: long(p, 1 << 32)),
        r"its reconstruction has 4,294,967,296 bytes",
    ),
    "an answer to nothing": (
        lambda b: (b.path / "submissions/mine/reconstructions/x.safetensors").write_bytes(b""),
        "belongs to no record",
    ),
    "another release": (
        instead("submissions/mine/releases/*", lambda p: p.write_bytes(b"relaesed")),
        "its release does not have the hash",
    ),
    "records that lie elsewhere": (moved_away, "is a link"),
    "the protocol of another board": (
        lambda b: toml(re.search("protocol_sha256.*", said(b))[0], f'protocol_sha256 = "{OTHER}"')(
            b
        ),
        "has changed since",
    ),
    "another board": (toml('board = "small"', 'board = "cifar10-v2"'), "cifar10-v2"),
    "a name of another": (toml('name = "mine"', 'name = "yours"'), "below submissions/yours"),
    "a track that is not there": (toml('"once"', '"twice"'), "has no track"),
    "controls of an attack": (toml('"no attack"', '"passed"'), "it says 'passed' of its controls"),
    "fewer cells than it says": (toml("missing = 0", "missing = 1"), "1 cell missing"),
    "a record's id that is a path": (
        toml("records = [\n", 'records = [\n  "../../../../etc/passwd",\n'),
        "records.0: String should match pattern",
    ),
    "a schema of tomorrow": (toml("submission/1", "submission/2"), "describes no submission"),
    "more than is asked": (toml("[[plugins]]", "[ranks]\nfirst = 1\n[[plugins]]"), "unknown key"),
    "a plugin's name that looks like another": (
        toml('name = "mixup"', 'name = "mi\u0445up"'),
        "plugins.0.name: String should match pattern",
    ),
    "authors who turn around": (
        toml("A. Stranger", "A. \u202estranger"),
        r"hides the character U\+202E",
    ),
    "a description in UTF-16": (
        lambda b: description(b).write_text(said(b), encoding="utf-16"),
        "is not valid TOML",
    ),
    "a description that is a pipe": (
        instead("submissions/mine/submission.toml", os.mkfifo),
        "is no plain file",
    ),
}


def description(board: BoardFolder) -> Path:
    return board.path / "submissions" / "mine" / "submission.toml"


def said(board: BoardFolder) -> str:
    return description(board).read_text(encoding="utf-8")


def check(board: BoardFolder, forgery: tuple[Forge, str]) -> None:
    """The original is accepted, and what was forged is refused for this very reason."""
    forge, told = forgery
    assert refused(board.path) == []
    forge(board)
    notes = refused(board.path)
    assert any(re.search(told, note) for note in notes), notes


@pytest.mark.core
@pytest.mark.parametrize("name", OF_RECORDS)
def test_a_forged_record_is_refused(frozen: BoardFolder, name: str) -> None:
    check(frozen, OF_RECORDS[name])


@pytest.mark.core
@pytest.mark.parametrize("name", OF_REPORTS)
def test_a_forged_report_on_controls_is_refused(frozen: BoardFolder, name: str) -> None:
    check(frozen, OF_REPORTS[name])


@pytest.mark.core
@pytest.mark.parametrize("name", OF_SUBMISSIONS)
def test_a_forged_submission_is_refused(board: BoardFolder, name: str) -> None:
    check(board, OF_SUBMISSIONS[name])


CELL = {
    "dataset": "fashion-mini",
    "defense": "mixup[k=2]",
    "attack": "lmmse",
    "private_size": 40,
    "public_size": 80,
    "test_size": 40,
    "targets": 8,
    "metrics": "snr_db",
    "learner": "classmeans",
    "threads": 1,
    "precision": "float32",
}
ONLY_BY_RUNNING: dict[str, Change] = {
    "every score of an attack, sums and intervals and all": lambda v: raised(v, -3.0),
    "what was learned, and what it sums up": better_learned,
}
"""What agrees with itself, where no sibling says otherwise and no answer is stored."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def ran(cache: Path) -> RunRecord:
    return harness.evaluate(cache=cache, **CELL)


def test_some_forgeries_are_found_by_running_again_alone(
    cache: Path, ran: RunRecord, tmp_path: Path
) -> None:
    paths = {"": tmp_path / "honest.json"}
    paths[""].write_text(ran.json_text())
    for name, change in ONLY_BY_RUNNING.items():
        values = json.loads(ran.json_text())
        change(values)
        paths[name] = tmp_path / f"{len(paths)}.json"
        paths[name].write_text(parse_record(values).sealed().json_text())
    for rerun in (False, True):
        with Verifier(cache, judge=False, rerun=rerun) as verifier:
            found = {name: next(verifier.verify(str(path))) for name, path in paths.items()}
        depths = {name: (each.outcome, each.depth) for name, each in found.items()}
        honest = ("ok", "run again" if rerun else "consistent")
        forged = ("differs", "consistent") if rerun else honest
        assert depths == {"": honest, **dict.fromkeys(ONLY_BY_RUNNING, forged)}, found
