"""A board keeps what its strongest attacks brought back, small, and that is judged again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board_records import raised

from harness.api import IntegrityError
from harness.boards.cells import cells_of
from harness.boards.folder import BoardFolder
from harness.control import VOLATILE, run_controls
from harness.drawing.publishing import check_agreement
from harness.evaluation import evaluate
from harness.results import answers
from harness.results.answers import Keeping, keep_answers, keep_control_cells
from harness.results.build import board_view
from harness.results.material import gathered
from harness.rng import KeyedStream, board_key
from harness.scoring.summary import (
    OTHERS,
    ByImage,
    MetricScore,
    Values,
    array,
    guess_name,
    summarise,
)
from harness.store.answers import TARGETS, Answer, read_answer
from harness.store.provenance import sha256_of
from harness.store.record import RunRecord, parse_record
from harness.submissions.checks import Verdict, exit_code
from harness.submissions.sums import faults
from harness.submissions.verification import Verifier

TOML = """
name = "small"
title = "A small board"
stage = "open"

[options]
dataset = "fashion-mini"
preset = "standard"
private_size = 40
public_size = 120
test_size = 60
metrics = "snr_db,ssim,reidentification"
only = "privacy"
threads = 1

[[tracks]]
name = "once"
title = "Encodings"
defenses = ["none", "instahide[k=2]"]
cells = [{ attacks = ["lmmse"] }]
"""
DEFENSES = ("none", "instahide[k=2]")
Fields = dict[str, Any]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def filled(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board whose cells have run on this machine, with the answers that are kept."""
    folder = BoardFolder(tmp_path_factory.mktemp("boards") / "small")
    folder.path.mkdir()
    (folder.path / "board.toml").write_text(TOML)
    for cell in cells_of(folder.board):
        record = evaluate(cache=cache, **cell.request.model_dump(exclude_unset=True))
        assert record.status == "ok", record.error
        folder.keep(record)
    assert keep(folder, cache).kept == len(DEFENSES)
    return folder.path


@pytest.fixture
def board(filled: Path, tmp_path: Path) -> BoardFolder:
    return BoardFolder(Path(shutil.copytree(filled, tmp_path / "small")))


def keep(folder: BoardFolder, cache: Path) -> Keeping:
    return keep_answers(folder, board_view(gathered(folder)), cache)


def verified(board: BoardFolder, cache: Path, *, judge: bool = True) -> list[Verdict]:
    with Verifier(cache, judge=judge) as verifier:
        return list(verifier.verify(str(board.path)))


def by_defense(board: BoardFolder, defense: str) -> RunRecord:
    return next(record for record in board.kept() if record.request.defense == defense)


def test_every_row_keeps_its_strongest_attacks_answer(board: BoardFolder) -> None:
    assert len(board.answer_paths) == len(DEFENSES)
    for path in board.answer_paths:
        answer = read_answer(path)
        assert answer.images.shape == (TARGETS, 1, 28, 28)
        assert path.stat().st_size < TARGETS * 28 * 28 * 2 + 1000


def test_eight_bits_hold_images_to_half_a_step() -> None:
    draw = np.random.default_rng(0)
    images = draw.uniform(0, 1, (5, 3, 4, 4)).astype(np.float32)
    kept = Answer.of(images, np.ones(5))
    assert np.abs(kept.values - images).max() <= kept.half_step.max() * 1.0001
    assert kept.half_step.max() == pytest.approx(0.5 / 255)
    exact = np.round(images * 255) / np.float32(255)
    assert np.abs(Answer.of(exact, np.ones(5)).values - exact).max() < 1e-6


def test_features_are_held_to_half_a_step_of_their_own_range() -> None:
    features = np.random.default_rng(0).normal(0, 7, (3, 8, 2, 2)).astype(np.float32)
    kept = Answer.of(features, np.ones(3))
    assert (np.abs(kept.values - features) <= kept.half_step * 1.0001).all()


def test_what_is_kept_is_judged_again(board: BoardFolder, cache: Path) -> None:
    *records, whole = verified(board, cache)
    assert {each.depth for each in records} == {"judged again"}, [r.notes for r in records]
    assert {each.outcome for each in (*records, whole)} == {"ok"}
    told = f"judged again: {TARGETS} of 40 answers and all guesses score the same"
    assert {each.notes for each in records} == {(told,)}
    assert "2 answers are kept" in whole.notes


def test_without_judging_it_is_consistent(board: BoardFolder, cache: Path) -> None:
    *records, _ = verified(board, cache, judge=False)
    assert {each.depth for each in records} == {"consistent"}


def weaker_guesses(values: Fields) -> None:
    """A guess that scores less, wherever it stands."""
    score, kept = values["privacy"]["snr_db"], values["by_image"]["snr_db"]
    kept["nulls"]["mean_image"] = [value - 0.05 for value in kept["nulls"]["mean_image"]]
    score["nulls"]["mean_image"] -= 0.05


def less_luck(values: Fields) -> None:
    """The attack's answers score less where others are true: all is summed up anew from that."""
    kept = values["by_image"]["snr_db"]
    kept["misplaced"] = [value - 2 for value in kept["misplaced"]]
    score, columns = values["privacy"]["snr_db"], ByImage.model_validate(kept)
    nulls = {name: array(column) for name, column in columns.nulls.items()}
    nulls[guess_name(MetricScore.model_validate(score))] = array(columns.guess)
    nulls[OTHERS] = (columns.draws + columns.corrections).mean(0)
    own = Values(array(columns.attack), nulls, "higher", "dB")
    stream = KeyedStream(board_key(0)).stream(stage="judge").stream(use="bootstrap")
    again = summarise({"snr_db": own}, stream)["snr_db"]
    assert again.gain is not None
    assert again.gain > score["gain"]
    values["privacy"]["snr_db"] = again.model_dump(mode="json")


def forge(board: BoardFolder, defense: str, change: Callable[[Fields], None]) -> RunRecord:
    """A record in place of a true one, sealed again, with the true one's answer."""
    true = by_defense(board, defense)
    values = json.loads(true.json_text())
    change(values)
    lie = parse_record(values).sealed()
    data = board.answer_path(true.id).read_bytes()
    board.keep(lie, instead=true.id)
    board.answer_path(lie.id).write_bytes(data)
    return lie


FORGERIES: dict[str, tuple[str, Callable[[Fields], None]]] = {
    "32 of 32 answers score otherwise": ("instahide[k=2]", raised),
    "the guess 'mean_image' scores otherwise": ("instahide[k=2]", weaker_guesses),
    "answers score otherwise where others are true": ("instahide[k=2]", less_luck),
}


@pytest.mark.parametrize("told", FORGERIES)
def test_what_agrees_with_itself_is_refused_when_it_is_judged_again(
    board: BoardFolder, cache: Path, told: str
) -> None:
    defense, change = FORGERIES[told]
    lie = forge(board, defense, change)
    assert faults(lie) == [], "its own sums say nothing"
    found = verified(board, cache)
    assert exit_code(found) != 0
    (bad,) = (each for each in found if lie.id in each.path)
    assert bad.depth != "judged again"
    assert bad.outcome == "differs"
    assert any(told in note for note in bad.notes), bad.notes


def test_a_guess_that_is_another_record_of_the_same_images_disagrees(
    board: BoardFolder, cache: Path
) -> None:
    """Seen without judging: guesses depend on the images alone, whatever the defense."""
    forge(board, "instahide[k=2]", weaker_guesses)
    assert exit_code(verified(board, cache, judge=False)) == 3
    with pytest.raises(IntegrityError, match="null 'mean_image' is"):
        check_agreement(board)


def test_an_answer_that_shows_nothing_hides_no_score(board: BoardFolder, cache: Path) -> None:
    record = by_defense(board, "none")
    path = board.answer_path(record.id)
    kept = read_answer(path)
    empty = Answer(kept.images, kept.low, kept.high, np.zeros_like(kept.found))
    path.write_bytes(empty.to_bytes())
    (found,) = (each for each in verified(board, cache) if record.id in each.path)
    assert found.outcome == "differs"


@pytest.mark.parametrize("data", [b"", b"[" * 100, b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_a_file_that_is_no_answer_is_named(board: BoardFolder, cache: Path, data: bytes) -> None:
    record = by_defense(board, "none")
    board.answer_path(record.id).write_bytes(data)
    (found,) = (each for each in verified(board, cache) if record.id in each.path)
    assert found.outcome == "broken"
    assert "is no answer that is kept" in found.notes[0]


def test_answers_of_other_shapes_are_none(tmp_path: Path) -> None:
    images = np.zeros((2, 1, 2, 2), np.float32)
    good = Answer.of(images, np.ones(2))
    path = tmp_path / "x.safetensors"
    for bad in (
        Answer(good.images[:1], good.low, good.high, good.found),
        Answer(good.images[0], good.low, good.high, good.found),
        Answer(good.images, good.low.astype(np.float64), good.high, good.found),
        Answer(good.images, good.high, good.low, good.found),
        Answer(good.images, good.low, np.full(2, np.inf, np.float32), good.found),
    ):
        path.write_bytes(bad.to_bytes())
        with pytest.raises(IntegrityError, match="of other shapes"):
            read_answer(path)


def test_an_answer_without_a_record_is_a_fault(board: BoardFolder, cache: Path) -> None:
    board.records.path(by_defense(board, "none").id).unlink()
    found = verified(board, cache, judge=False)
    assert any("belongs to no record" in note for note in found[-1].notes)


def test_what_no_row_needs_is_removed_and_what_is_elsewhere_stays(
    board: BoardFolder, tmp_path: Path
) -> None:
    stray = board.answer_path("0" * 64)
    stray.write_bytes(b"")
    found = keep(board, tmp_path / "another cache")
    assert (found.kept, found.lacking, found.changed) == (2, 0, (stray,))
    board.answer_path(by_defense(board, "none").id).unlink()
    assert keep(board, tmp_path / "another cache").lacking == 1


def test_answers_are_cut_to_the_room_there_is(
    board: BoardFolder, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "BOARD", 2 * (10 * 28 * 28 + answers.ASIDE))
    assert keep(board, cache).targets == 10
    assert sum(path.stat().st_size for path in board.answer_paths) <= answers.BOARD
    with Verifier(cache) as verifier:
        assert {each.outcome for each in verifier.verify(str(board.path))} == {"ok"}


def test_a_record_that_leaves_takes_its_answer_along(board: BoardFolder) -> None:
    record = by_defense(board, "none")
    board.drop(record.id)
    assert not board.answer_path(record.id).exists()


@pytest.fixture(scope="module")
def controlled(filled: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The board with a report on the controls of `identity`, and the cells that these ran."""
    folder = BoardFolder(tmp_path_factory.mktemp("controlled") / "small")
    shutil.copytree(filled, folder.path)
    folder.keep_control(run_controls("identity", root=cache, threads=1))
    keep_control_cells(folder, cache)
    return folder.path


@pytest.fixture
def watched(controlled: Path, tmp_path: Path) -> BoardFolder:
    return BoardFolder(Path(shutil.copytree(controlled, tmp_path / "controlled")))


def test_what_controls_brought_back_is_judged_again(watched: BoardFolder, cache: Path) -> None:
    found = verified(watched, cache)
    assert exit_code(found) == 0, found
    cells = [each for each in found if "/controls/records/" in each.path]
    assert len(cells) == 1
    assert cells[0].depth == "judged again"
    assert (
        (watched.path / "controls" / "answers" / Path(cells[0].path).stem)
        .with_suffix(".safetensors")
        .is_file()
    )


def test_a_report_says_what_its_records_give(watched: BoardFolder, cache: Path) -> None:
    (path,) = watched.controls.glob("*.json")
    values = json.loads(path.read_bytes())
    values["results"][0]["reached"] += 1
    values["results"][0]["ci"] = None
    values["id"] = sha256_of({k: v for k, v in values.items() if k not in VOLATILE})
    path.write_text(json.dumps(values))
    found = verified(watched, cache, judge=False)
    assert exit_code(found) == 3
    (report,) = (each for each in found if each.what == "control")
    assert "is not what record" in report.notes[0]


def test_a_control_cell_that_no_report_names_is_a_fault_until_it_is_removed(
    watched: BoardFolder, cache: Path
) -> None:
    (path,) = watched.controls.glob("*.json")
    path.unlink()
    found = verified(watched, cache, judge=False)
    assert any("no report on controls names it" in note for each in found for note in each.notes)
    keep_control_cells(watched, cache)
    assert watched.control_cells.kept() == []
    assert watched.control_cells.answer_paths == []


@pytest.mark.parametrize(
    ("named", "found"),
    [("random_public", "random_public"), ("answers_to_others", "codebook"), (None, "codebook")],
)
def test_of_equal_guesses_the_same_one_is_best_in_any_order(named, found):
    """Records keep the best one's scores apart from the others', and JSON sorts names."""
    nulls = {"random_public": 0.3, "codebook": 0.3, "class_mean": 0.1, "answers_to_others": 0.4}
    for order in (sorted(nulls), sorted(nulls, reverse=True)):
        score = score_of({name: nulls[name] for name in order}, named)
        assert guess_name(score) == found


def score_of(nulls, named):
    return MetricScore.model_construct(leaks_more="higher", nulls=nulls, null_name=named)
