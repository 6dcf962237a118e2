"""A stranger hands in a defense and an attack; others verify them, with and without the plugin."""

import json
import shutil

import pytest
import torch
from board_records import raised
from safetensors.torch import load_file, save_file
from strangers import Machine

from harness.boards.folder import BoardFolder
from harness.store.files import sha256_of_file
from harness.store.record import fingerprint, rest_of
from harness.submissions.folder import SubmissionFolder

BOARD = """
name = "tiny"
title = "A tiny board"

[options]
dataset = "fashion-mini"
private_size = 30
public_size = 60
test_size = 40
metrics = "snr_db,mse"
only = "privacy"
threads = 1

[[tracks]]
name = "once"
title = "Encodings"
defenses = ["none"]
cells = [{ attacks = ["linear"] }]

[[tracks]]
name = "features"
title = "Features"
options = { victim = "lenet5", targets_from = "heldout", targets = 10 }
defenses = ["none"]
cells = [{ attacks = ["linear"] }]
"""
WHO = ("--paper", "none", "--authors", "A. Stranger", "--license", "CC0-1.0")


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boards") / "tiny"
    folder.mkdir()
    (folder / "board.toml").write_text(BOARD)
    return folder


@pytest.fixture(scope="module")
def handed_in(machine, board):
    """A defense and an attack, each in a folder of the board."""
    made = [
        machine.harness("submit", what, "--board", str(board), *WHO, "--json")
        for what in ("blur[strength=0.5]", "sharpen")
    ]
    assert [each.code for each in made] == [0, 0], made
    return {each.json["name"]: each.json for each in made}


def verdicts(ran):
    return [each["outcome"] for each in ran.json["verdicts"]]


def test_what_would_run_is_shown_first(machine, board):
    plan = machine.harness("submit", "sharpen", "--board", str(board), "--dry-run", "--json")
    assert [cell["request"]["defense"] for cell in plan.json] == ["none"]
    assert not (board / "submissions" / "sharpen").exists()


def test_whose_it_is_has_to_be_said(machine, board):
    ran = machine.harness("submit", "blur", "--board", str(board), "--paper", "none")
    assert ran.code == 2
    assert "--authors, --license" in ran.err
    assert not (board / "submissions").exists()


def test_a_defense_comes_with_what_it_released_and_what_attacks_made_of_it(handed_in, board):
    told = SubmissionFolder(board / "submissions" / "blur").description
    assert (told.kind, told.tracks, told.missing) == ("defense", ("once",), 0)
    assert told.plugins[0].distribution == "harness-example"
    folder = board / "submissions" / "blur"
    assert len(list((folder / "records").iterdir())) == len(told.records) == 1
    assert len(list((folder / "reconstructions").iterdir())) == 1
    assert len(list((folder / "releases").iterdir())) == 1


def test_an_attack_comes_with_its_controls(handed_in, board):
    assert handed_in["sharpen"]["control"] == "passed"
    assert len(list((board / "submissions" / "sharpen" / "controls").iterdir())) == 1
    assert not (board / "submissions" / "sharpen" / "releases").exists()


def test_the_same_command_has_nothing_left_to_do(machine, handed_in, board):
    folder = board / "submissions" / "blur"
    before = {path: path.stat().st_mtime_ns for path in folder.glob("re*/*")}
    again = machine.harness("submit", "blur[strength=0.5]", "--board", str(board))
    assert again.code == 0, again.err
    assert {path: path.stat().st_mtime_ns for path in folder.glob("re*/*")} == before


def test_another_plugin_does_not_go_into_its_folder(machine, handed_in, board):
    ran = machine.harness("submit", "blur[strength=2]", "--board", str(board), *WHO)
    assert ran.code == 2
    assert "holds a submission of 'blur[strength=0.5]'" in ran.err


def test_everybody_judges_it_again_without_the_plugin(handed_in, board, tmp_path):
    elsewhere = Machine(tmp_path / "cache")
    ran = elsewhere.harness("verify", str(board), "--json")
    assert set(verdicts(ran)) == {"ok"}, ran.out
    judged = [each for each in ran.json["verdicts"] if each["notes"] == ["judged again: the same"]]
    assert len(judged) == 2


def test_running_it_again_gives_the_same_bits(machine, handed_in, board):
    record = next((board / "submissions" / "blur" / "records").iterdir())
    ran = machine.harness("verify", str(record), "--rerun", "--json")
    assert (ran.code, verdicts(ran)) == (0, ["ok"])
    assert ran.json["verdicts"][0]["notes"][1] == "run again: the same to the bit"


def test_a_release_that_does_not_give_the_scores_is_caught(machine, handed_in, board, tmp_path):
    shutil.copytree(board, tmp_path / "board")
    folder = tmp_path / "board" / "submissions" / "blur"
    path, release = (next((folder / name).iterdir()) for name in ("records", "releases"))
    tensors = load_file(release)
    tensors["out.encodings"] = torch.zeros_like(tensors["out.encodings"])
    release.unlink()
    save_file(tensors, release)
    values = json.loads(path.read_bytes())
    values["artifacts"]["release"]["sha256"] = sha256_of_file(release, "release")
    release.rename(release.with_name(f"{values['artifacts']['release']['sha256']}.safetensors"))
    rename(folder, path, values)
    ran = machine.harness("verify", str(folder), "--no-judge", "--rerun", "--json")
    told = ran.json["verdicts"][0]
    assert told["outcome"] == "differs", told
    assert "run on the kept release" in told["notes"][-1]
    assert "snr_db is 0, outside of" in told["notes"][-1]


def lie(folder, by):
    """Raise every score of a record by hand, sums and all, and name it as it should be named."""
    path = sorted((folder / "records").iterdir())[0]
    values = json.loads(path.read_bytes())
    raised(values, by)
    rename(folder, path, values)


def rename(folder, path, values):
    """Write a record that was edited under the id that it should then have."""
    old, values["id"], values["rest"] = values["id"], fingerprint(values), rest_of(values)
    path.unlink()
    path.with_name(f"{values['id']}.json").write_text(json.dumps(values))
    returned = folder / "reconstructions"
    (returned / f"{old}.safetensors").rename(returned / f"{values['id']}.safetensors")
    description = folder / "submission.toml"
    description.write_text(description.read_text().replace(old, values["id"]))


def test_a_score_that_was_raised_by_hand_is_caught(machine, handed_in, board, tmp_path):
    shutil.copytree(board, tmp_path / "board")
    folder = tmp_path / "board" / "submissions" / "sharpen"
    lie(folder, by=-3.0)
    assert len(BoardFolder(folder).kept()) == 1, "hashes and names are all right"
    shallow, judged, rerun = machine.series(
        [
            ["verify", str(folder), "--no-judge", "--json"],
            ["verify", str(folder), "--json"],
            ["verify", str(folder), "--no-judge", "--rerun", "--json"],
        ]
    )
    assert (shallow.code, judged.code, rerun.code) == (0, 1, 1)
    assert "differs" in verdicts(judged)
    assert "differs" in verdicts(rerun)


def test_an_interrupted_submission_says_what_is_missing(machine, handed_in, board, tmp_path):
    shutil.copytree(board, tmp_path / "board")
    folder = tmp_path / "board" / "submissions" / "blur"
    next((folder / "records").iterdir()).unlink()
    ran = machine.harness("verify", str(folder), "--no-judge", "--json")
    assert ran.code == 3
    told = " ".join(ran.json["verdicts"][-1]["notes"])
    assert "1 cell without a record, and it says 0" in told
