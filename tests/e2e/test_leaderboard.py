"""`harness leaderboard` and `harness advise` as they are typed, where there is no torch."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from board_records import as_today, passed, reached, record, tiny_board
from click.testing import CliRunner, Result
from commandline import complaint, environment

from harness.api import UsageError
from harness.boards.folder import BoardFolder, every_board, find_board
from harness.cli import cli
from harness.store.record import Records, RunRecord

pytestmark = pytest.mark.core

WITHOUT_TORCH = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from harness.__main__ import main; sys.argv[0] = 'harness'; main()
"""
GIVEN = ("encodings", "n_private", "sources", "weights")
KEPT = [
    as_today(record(gains=(9, 9, 9, 9), right=90, channels_used=GIVEN)),
    as_today(record("mixup[k=2]", right=80, channels_used=GIVEN)),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with one board, its records and the report on its attack's controls."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "leaderboards" / "tiny"
    folder.mkdir(parents=True)
    (folder / "board.toml").write_text(tiny_board("linear"), encoding="utf-8")
    for each in KEPT:
        Records(folder, cache=False).save(each)
    found = {"results": reached("linear"), "attack": KEPT[0].attack}
    report = passed("linear").model_copy(update=found)
    BoardFolder(folder).keep_control(report.sealed())
    return tmp_path


def run(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments],
        cwd=here,
        env=environment(here / "cache"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def invoke(*arguments: str) -> Result:
    """The same in this process, in the current folder."""
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def test_what_is_built_is_what_the_records_give(here: Path) -> None:
    built = run(here, "leaderboard", "build")
    assert built.returncode == 0, built.stderr
    assert [line.partition(" s  ")[2] for line in built.stderr.splitlines()] == ["board tiny"]
    counts = "tiny: 2 records, 2 rows, 1 ranked, every cell run; the cache lacks answers of 2 rows"
    assert built.stdout.splitlines()[-1] == counts
    names = {path.name for path in (here / "leaderboards" / "tiny").iterdir()}
    assert names >= {"README.md", "leaderboard.csv", "index.html", "front.png"}
    assert {path.name for path in (here / "leaderboards").iterdir()} >= {"README.md", "index.html"}
    assert json.loads(invoke("leaderboard", "build", "--json").stdout) == {"written": []}
    checked = invoke("leaderboard", "check", "--complete")
    assert checked.return_value == 0, checked.stdout
    table = here / "leaderboards" / "tiny" / "README.md"
    table.write_text(table.read_text("utf-8").replace("90.0%", "95.0%"), encoding="utf-8")
    wrong = run(here, "leaderboard", "check", "tiny")
    assert wrong.returncode == 3
    assert "README.md is not what the records give" in wrong.stdout


def resealed(kept: RunRecord, **change: object) -> RunRecord:
    return kept.model_copy(update=change).sealed()


def test_a_record_that_does_not_belong_is_named(here: Path) -> None:
    folder = here / "leaderboards" / "tiny"
    Records(folder, cache=False).save(record("mixup[k=9]"))
    edited = KEPT[0].privacy["snr_db"].model_copy(update={"mean": 1.0, "gain": -1.5})
    Records(folder, cache=False).save(resealed(KEPT[0], privacy={"snr_db": edited}))
    found = invoke("leaderboard", "check", "tiny", "--json")
    assert found.return_value == 3
    (report,) = json.loads(found.stdout)
    faults = "\n".join(report["faults"])
    assert "(mixup[k=9] × linear): the board 'tiny' has no such cell for it" in faults
    assert "2 records are of one cell" in faults
    assert "mean 1 is not 11.5" in faults


def test_a_record_that_was_changed_ends_it(here: Path) -> None:
    path = Records(here / "leaderboards" / "tiny").path(KEPT[0].id)
    path.write_text(path.read_text("utf-8").replace('"n":100', '"n":1000'), encoding="utf-8")
    assert "do not match its id" in complaint(run(here, "leaderboard", "build", "tiny"), 3)


def test_missing_cells_are_a_fault_only_where_all_must_be_there(here: Path) -> None:
    Records(here / "leaderboards" / "tiny").path(KEPT[1].id).unlink()
    invoke("leaderboard", "build", "tiny")
    lenient = invoke("leaderboard", "check", "tiny")
    assert (lenient.return_value, lenient.stdout) == (
        0,
        "tiny: 1 record, 1 cell not run yet, unsigned: ok\n",
    )
    assert invoke("leaderboard", "check", "tiny", "--complete").return_value == 3


def test_a_frozen_board_names_records_of_other_plugins(here: Path) -> None:
    records = Records(here / "leaderboards" / "tiny", cache=False)
    records.path(KEPT[1].id).unlink()
    records.save(record("mixup[k=2]", right=80, channels_used=GIVEN))
    frozen = invoke("leaderboard", "freeze", "tiny", "--json")
    assert "defense mixup[k=2] (standard)" in json.loads(frozen.stdout)
    found = invoke("leaderboard", "check", "tiny")
    assert "defense mixup[k=2] (standard) is not what the board froze" in found.stdout


def test_unknown_boards_offer_the_nearest(here: Path) -> None:
    assert "Did you mean 'tiny'?" in complaint(run(here, "leaderboard", "build", "tinny"), 2)
    assert "no board below" in complaint(run(here / "leaderboards", "leaderboard", "check"), 2)


def test_scores_leave_as_a_table(here: Path) -> None:
    printed = run(here, "leaderboard", "export", "tiny")
    assert printed.returncode == 0, printed.stderr
    lines = list(csv.DictReader(StringIO(printed.stdout)))
    found = [(line["defense"], line["metric"], line["gain"], line["rank"]) for line in lines]
    assert found == [("none", "snr_db", "9.0", ""), ("mixup[k=2]", "snr_db", "1.0", "1")]
    written = invoke("leaderboard", "export", "tiny", "--format", "json", "--out", "tiny.json")
    assert written.stdout == "wrote tiny.json\n"
    values = json.loads((here / "tiny.json").read_text("utf-8"))
    assert [value["record"] for value in values] == [each.id for each in KEPT]
    refused = run(here, "leaderboard", "export", "tiny", "--format", "parquet")
    assert "say with --out where to write it" in complaint(refused, 2)


def test_advice_names_what_qualifies_and_calls_nothing_safe(here: Path) -> None:
    asked = ("advise", "--dataset", "fashion-mini", "--attacker", "informed")
    given = run(here, *asked, "--min-accuracy", "0.7")
    assert given.returncode == 0, given.stderr
    lines = given.stdout.splitlines()
    assert lines[1] == "released: encodings, 8 images, each once  (tiny: All of it)"
    assert lines[2] == "  mixup[k=2]"
    assert ", chance 10.0%" in lines[3]
    assert "linear got most: SNR +1.0 dB" in lines[4]
    assert "None of this calls a defense safe" in lines[-1]
    nothing = invoke(*asked, "--min-accuracy", "0.99", "--json")
    assert nothing.return_value == 1
    assert "surely keeps" in json.loads(nothing.stdout)["refusal"]
    told = run(here, "advise", "--dataset", "x", "--min-accuracy", "0.5", "--attacker", "oracle")
    assert "is handed the truth" in complaint(told, 2)


def test_a_board_here_goes_before_a_shipped_one_of_that_name(here: Path) -> None:
    known = {folder.path.name: folder.path for folder in every_board(shipped=True)}
    assert known.keys() > {"tiny"}
    (here / "leaderboards" / "paper-v1").mkdir()
    (here / "leaderboards" / "paper-v1" / "board.toml").write_text(tiny_board("linear"))
    assert find_board("paper-v1", shipped=True).path == Path("leaderboards", "paper-v1")
    assert find_board("cifar10-v2", shipped=True).path.parent.name == "leaderboards"
    with pytest.raises(UsageError, match="There is no board 'cifar10-v2' below leaderboards/"):
        find_board("cifar10-v2")
