"""Records of one release agree on it, on what was learned from it, and on what guesses score.

Each forgery is sealed again: its id is right, and its own sums agree.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from handed_in import make_board, record_of, submit

from harness.api import IntegrityError
from harness.boards.cells import cells_of
from harness.boards.folder import BoardFolder
from harness.drawing.publishing import check_agreement
from harness.scoring.utility import Right, Utility, summed_up
from harness.store.record import RunRecord, parse_record
from harness.submissions.checks import Verdict, exit_code
from harness.submissions.folder import SubmissionFolder
from harness.submissions.siblings import disagreements
from harness.submissions.sums import faults
from harness.submissions.verification import Verifier

pytestmark = pytest.mark.core
COMMITTED = Path(__file__).parents[2]
Values = dict[str, Any]


@pytest.fixture
def board(tmp_path: Path) -> BoardFolder:
    return make_board(tmp_path / "board")


def learned(right: int) -> Values:
    """What a record says where so many of 40 test images were named rightly."""
    own, plain = (
        Right(inference="plain", counts={"plain": k}, chance=0.1, n=40) for k in (right, 30)
    )
    return summed_up([own], [plain]).model_dump(mode="json")


def easier_nulls(values: Values) -> None:
    """A guess that scores less on every image, so that the attack gains more over it."""
    score, kept = values["privacy"]["snr_db"], values["by_image"]["snr_db"]
    assert score["null_name"] == "class_mean"
    kept["guess"] = [each - 0.5 for each in kept["guess"]]
    score["null"] -= 0.5
    score["nulls"]["class_mean"] -= 0.5
    score["gain"] += 0.5
    score["gain_ci"] = [bound + 0.5 for bound in score["gain_ci"]]


def another_weak_null(values: Values) -> None:
    """A guess that is not the best: nothing else follows from it."""
    score, kept = values["privacy"]["snr_db"], values["by_image"]["snr_db"]
    kept["nulls"]["mean_image"] = [each - 1 for each in kept["nulls"]["mean_image"]]
    score["nulls"]["mean_image"] -= 1


FORGERIES: dict[str, Callable[[Values], object]] = {
    ": accuracy is": lambda v: v.update(utility=learned(20)),
    ": accuracy without protection is": lambda v: v["utility"].update(
        reference_accuracy=0.9,
        reference_interval=None,
        reference_accuracies={"plain": {"mean": 0.9, "interval": None, "trainings": [0.9]}},
    ),
    ": of one release they name": lambda v: v["artifacts"]["release"].update(sha256="0" * 64),
    ": snr_db: null 'class_mean' is": easier_nulls,
    ": snr_db: null 'mean_image' is": another_weak_null,
}


def forged(board: BoardFolder, change: Callable[[Values], object]) -> tuple[RunRecord, RunRecord]:
    """One record of a board, and what somebody puts in its place."""
    true = next(r for r in board.kept() if r.request.attack == "linear" and not r.request.seed)
    values = json.loads(true.json_text())
    change(values)
    lie = parse_record(values).sealed()
    board.keep(lie, instead=true.id)
    return true, lie


def verified(path: Path) -> list[Verdict]:
    with Verifier(path, judge=False) as verifier:
        return [*verifier.verify(str(path)), *verifier.together()]


def test_records_of_a_board_agree(board: BoardFolder) -> None:
    assert [*disagreements(board.kept())] == []
    check_agreement(board)


@pytest.mark.parametrize("told", FORGERIES)
def test_a_forged_record_disagrees_with_its_siblings(board: BoardFolder, told: str) -> None:
    _, lie = forged(board, FORGERIES[told])
    assert faults(lie) == [], "its own sums say nothing"
    found = verified(board.path)
    assert exit_code(found) == 3
    (note,) = (note for note in found[-1].notes if "disagree" in note)
    assert told in note
    named = [record.id[:12] for record in board.kept() if record.id[:12] in note]
    assert len(named) == 2
    assert lie.id[:12] in named
    with pytest.raises(IntegrityError, match=told):
        check_agreement(board)


@pytest.mark.parametrize("told", FORGERIES)
def test_it_is_seen_where_it_is_verified_alone(board: BoardFolder, told: str) -> None:
    _, lie = forged(board, FORGERIES[told])
    (found,) = verified(board.records.path(lie.id))
    assert found.outcome == "broken"
    assert "disagree" in found.notes[-1]


def test_records_in_no_board_are_held_against_each_other(
    board: BoardFolder, tmp_path: Path
) -> None:
    _, lie = forged(board, FORGERIES[": accuracy is"])
    loose = tmp_path / "loose"
    loose.mkdir()
    for record in board.kept():
        (loose / f"{record.id}.json").write_text(record.json_text())
    *alone, together = verified(loose)
    assert {each.depth for each in alone} == {"consistent"}
    assert (together.what, together.outcome) == ("records", "broken")
    assert lie.id[:12] in together.notes[0]


def test_records_of_other_source_do_not_share_a_release(board: BoardFolder) -> None:
    """On an open board rows of older source stay, and are marked."""
    older = {"source_sha256": "1" * 64}
    forged(board, lambda v: (v["defense"][0].update(older), v.update(utility=learned(20))))
    assert [*disagreements(board.kept())] == []


def test_what_was_trained_in_another_precision_may_have_learned_otherwise(
    board: BoardFolder,
) -> None:
    def reduced(values: Values) -> None:
        values["request"]["precision"] = values["precision"] = "bfloat16"
        values["utility"] = learned(20)

    _, other = forged(board, reduced)
    assert [*disagreements(board.kept())] == []
    assert other.precision == "bfloat16"


def test_most_records_are_believed(board: BoardFolder) -> None:
    cell = cells_of(board.board)[0]
    other = cell.request.model_copy(update={"attack": "lmmse"})
    third = record_of(cell).model_copy(update={"request": other}).sealed()
    liar = third.model_copy(update={"utility": Utility.model_validate(learned(20))}).sealed()
    for order in ([liar, record_of(cell), third], [third, liar, record_of(cell)]):
        (found,) = disagreements(order)
        assert found.other == liar
        assert found.more == 0


def handed_in(board: BoardFolder, change: Callable[[Values], object]) -> SubmissionFolder:
    """A submission of the board's own defense by another attack's name, after a change."""
    mine = submit(board)
    true = next(r for r in board.kept() if r.request.attack == "identity")
    values = json.loads(true.json_text())
    change(values)
    mine.records.save(parse_record(values).sealed())
    return mine


def told_of(mine: SubmissionFolder) -> Verdict:
    return next(each for each in verified(mine.path) if each.what == "submission")


def test_another_machine_may_learn_otherwise_within_intervals(board: BoardFolder) -> None:
    mine = handed_in(board, lambda v: v.update(utility=learned(28)))
    assert not any("disagree" in note for note in told_of(mine).notes)


def test_what_is_handed_in_is_held_against_the_board(board: BoardFolder) -> None:
    mine = handed_in(board, lambda v: v.update(utility=learned(5)))
    assert any("accuracy is 0.75 and 0.125; running it again" in n for n in told_of(mine).notes)
    toml = board.path / "board.toml"
    lies = [r.id for r in mine.kept() if r.utility and r.utility.accuracy < 0.5]
    toml.write_text(f"confirmed = {json.dumps(lies)}\n{toml.read_text()}")
    assert not any("disagree" in note for note in told_of(mine).notes)


@pytest.mark.parametrize(
    "folder", ["benchmarks", "leaderboards/cifar10-v2", "leaderboards/features-v2"]
)
def test_committed_records_agree(folder: str) -> None:
    kept = BoardFolder(COMMITTED / folder).kept()
    assert len(kept) > 10
    assert [*map(str, disagreements(kept))] == []
