"""Boards that are still open: what may come, what is marked, and accuracy at several numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from board_records import OPTIONS, as_today, board, ended, material, passed, record, utility
from pydantic import ValidationError

from harness.api import UsageError
from harness.asking.registry import OWN_DISTRIBUTION, Registry, registry
from harness.boards.answering import lacking
from harness.boards.cells import attacked, cells_of
from harness.boards.folder import BoardFolder
from harness.boards.freezing import check_frozen, freeze, frozen, older, strange
from harness.drawing.markdown import readme
from harness.results.build import board_view
from harness.results.headline import key_findings
from harness.results.material import gathered
from harness.results.view import BoardView, RowView
from harness.scheduling.matrix import Foreseen, foresee, to_do
from harness.scoring.utility import Accuracy, Utility
from harness.store.provenance import spec_source
from harness.store.record import RunRecord, Used
from harness.submissions.cells import places

pytestmark = pytest.mark.core

CURVE = {"private_size": [4, 16], "rounds": [1, 3]}
CONTROLS = [passed("linear"), passed("lmmse")]


def with_curve(**more: Any) -> Any:
    """A board of one track whose accuracy is asked for at other numbers too."""
    plain = board(**more)
    track = {**plain.tracks[0].model_dump(), "utility": [CURVE]}
    return type(plain).model_validate({**plain.model_dump(), "tracks": [track]})


def newer(kind: str, name: str) -> Registry:
    """What is installed, with a plugin made of another module."""
    known = registry()
    entries = {k: dict(found) for k, found in known.entries.items()}
    entry = entries[kind][name]
    factory = "harness_plugins.soft_labels:soft"
    entries[kind][name] = replace(entry, spec=replace(entry.spec, factory=factory))
    return Registry(entries, known.problems)


def built_in(kind: str, name: str) -> Used:
    """A plugin as a record names it, of the source that is installed."""
    spec = registry().spec(kind, name)
    return Used(
        name=name,
        version=spec.version,
        distribution=OWN_DISTRIBUTION,
        source_sha256=spec_source(spec),
        config={},
    )


def of_today(source: str = "") -> RunRecord:
    """A record of plugins that are installed; its attack may be of another source."""
    attack = built_in("attacks", "linear")
    today = as_today(record("mixup[k=2]", "linear"))
    defense = built_in("defenses", "mixup").model_copy(update={"config": today.defense[0].config})
    of = {"source_sha256": source or attack.source_sha256, "config": today.attack.config}
    made = {"defense": (defense,), "attack": attack.model_copy(update=of)}
    return today.model_copy(update=made).sealed()


def test_an_open_board_is_held_to_no_list() -> None:
    closed = board(frozen={"attack linear (standard)": "0" * 64})
    opened = closed.model_copy(update={"stage": "open"})
    assert strange(closed, record())
    assert not strange(opened, record())
    check_frozen(opened, registry())
    with pytest.raises(UsageError, match="is frozen, and here is not what it is made of"):
        check_frozen(closed, registry())


def test_an_open_board_is_closed_before_it_is_frozen(tmp_path: Path) -> None:
    text = (
        'name = "tiny"\ntitle = "Tiny"\nstage = "open"\n[options]\ndataset = "fashion-mini"\n'
        'precision = "float32"\n'
        '[[tracks]]\nname = "once"\ntitle = "All"\ndefenses = ["none"]\n'
        '[[tracks.cells]]\nattacks = ["linear"]\n'
    )
    (tmp_path / "board.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="is open: take `stage` out of"):
        freeze(tmp_path, registry())
    (tmp_path / "board.toml").write_text(text.replace('stage = "open"\n', ""), encoding="utf-8")
    assert freeze(tmp_path, registry())


def test_a_record_of_other_source_is_older() -> None:
    own = of_today()
    assert older(own, registry()) == []
    assert older(own, newer("defenses", "mixup")) == ["mixup"]
    assert older(own, newer("attacks", "linear")) == ["linear"]
    assert older(own, newer("attacks", "lmmse")) == []


def test_of_a_stranger_s_plugin_nothing_is_said() -> None:
    """Whoever builds the board need not have installed it."""
    assert older(record(), registry()) == []


def test_an_attack_that_did_not_run_makes_no_record_older() -> None:
    alone = of_today().request.model_copy(update={"only": "utility"})
    own = of_today().model_copy(update={"request": alone})
    assert older(own, newer("attacks", "linear")) == []
    assert older(own, newer("defenses", "mixup")) == ["mixup"]


@pytest.mark.parametrize("stage", ["open", "frozen"])
def test_rows_of_older_source_are_marked_while_a_board_is_open(stage: str, tmp_path: Path) -> None:
    """They stay verified: nothing says that their numbers would be others."""
    folder = BoardFolder(tmp_path)
    folder.__dict__["board"] = board(("mixup[k=2]",), ("linear",), stage=stage)
    folder.keep(of_today(source="0" * 64))
    (row,) = board_view(gathered(folder)).rows
    assert row.older == (("linear",) if stage == "open" else ())


def test_older_cells_run_again_where_that_is_asked_for() -> None:
    (cell, *_) = cells_of(board())
    kept: Any = {"cell": cell, "plan": None, "state": "done", "record": record()}
    old, new = Foreseen(**kept, older=True), Foreseen(**kept)
    assert to_do([old, new]) == []
    assert to_do([old, new], renew=True) == [old]


def test_accuracy_is_asked_for_at_every_number_of_images_and_rounds() -> None:
    alone = [cell for cell in cells_of(with_curve()) if cell.alone]
    asked = [cell.request for cell in alone if cell.request.defense == "none"]
    sizes = {(each.rounds, each.private_size) for each in asked}
    assert sizes == {(1, 4), (1, 16), (3, 4), (3, 16)}
    assert len(alone) == 2 * len(asked) == 8
    assert {each.only for each in asked} == {"utility"}
    assert {each.attack for each in asked} == {"linear"}  # the track's own: nothing more to freeze
    assert {cell.options["dataset"] for cell in alone} == {OPTIONS["dataset"]}
    assert alone[0].title == "none, learned from 4 images once, seed 0"


def test_such_cells_may_have_fewer_images_than_are_judged() -> None:
    of = with_curve(options={**OPTIONS, "targets": 8})
    assert [cell.request.targets for cell in cells_of(of) if cell.alone] == [None] * 8


def test_a_curve_may_be_of_some_defenses_only() -> None:
    plain = board()
    track = plain.tracks[0].model_dump()
    track["utility"] = [{"private_size": [4], "defenses": ["none"], "options": {"repeats": 2}}]
    of = type(plain).model_validate({**plain.model_dump(), "tracks": [track]})
    (cell,) = [cell for cell in cells_of(of) if cell.alone]
    assert (cell.request.defense, cell.request.repeats) == ("none", 2)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"defenses": ["noise"]}, "defenses that the track does not have: noise"),
        ({"options": {"dataset": "mnist"}}, "options of utility cannot be dataset"),
        ({"private_size": []}, "at least 1 item"),
        ({"private_size": [0]}, "greater than or equal to 1"),
    ],
)
def test_a_curve_that_cannot_be_is_refused(wrong: dict[str, Any], why: str) -> None:
    plain = board()
    track = {**plain.tracks[0].model_dump(), "utility": [{**CURVE, **wrong}]}
    with pytest.raises(ValidationError, match=why):
        type(plain).model_validate({**plain.model_dump(), "tracks": [track]})


def test_strangers_fill_the_cells_of_attacks_alone() -> None:
    of = with_curve()
    assert len(attacked(of)) == 4
    found = places(of, "defense", "noise", ["once"])
    assert {cell.request.only for place in found for cells in place for cell in cells} == {None}
    found = places(of, "attack", "wiener", ["once"])
    assert {cell.request.only for place in found for cells in place for cell in cells} == {None}


def test_freezing_needs_no_more_for_a_curve() -> None:
    assert frozen(with_curve(), registry()) == frozen(board(), registry())


def alone(private: int, right: int, rounds: int = 1, **more: Any) -> RunRecord:
    """A record of accuracy alone."""
    asked = {"private_size": private, "rounds": rounds, "only": "utility"}
    return record("mixup[k=2]", right=right, asked=asked, privacy={}, by_image={}, **more)


def row(*records: RunRecord) -> tuple[BoardView, RowView]:
    view = board_view(material(with_curve(), *records, controls=CONTROLS))
    return view, next(each for each in view.rows if each.defense == "mixup[k=2]")


def test_a_row_has_a_curve_and_its_own_number_is_on_it() -> None:
    own = [record("mixup[k=2]", attack, right=70) for attack in ("linear", "lmmse")]
    view, found = row(*own, alone(4, 60), alone(16, 90), alone(16, 95, rounds=3))
    points = {(e.rounds, e.private_size): e.accuracy and e.accuracy.value for e in found.curve}
    assert points == {(1, 4): 0.6, (1, 8): 0.7, (1, 16): 0.9, (3, 4): None, (3, 16): 0.95}
    assert found.accuracy is not None
    assert found.accuracy.value == 0.7
    assert [each.reason for each in found.curve if not each.accuracy] == ["not run yet"]
    lines = {rounds: [e.private_size for e in line] for rounds, line in found.lines.items()}
    assert lines == {1: [4, 8, 16], 3: [16]}
    assert found.missing == 0  # what leaks is known
    assert view.missing == 2 + 4 + 1  # of `none` two attacks and four numbers; here one number


def test_a_point_that_failed_says_why() -> None:
    lost = ended("failed", "the learner fell", "mixup[k=2]", "linear")
    asked = {"private_size": 4, "only": "utility"}
    request = lost.request.model_copy(update=asked)
    _, found = row(lost.model_copy(update={"request": request}).sealed())
    (point,) = [e for e in found.curve if (e.rounds, e.private_size) == (1, 4)]
    assert (point.accuracy, point.reason) == (None, "the learner fell")


def learned(chosen: str, **shares: float) -> Utility:
    """Utility by learner: 90 % of what each has was its validation."""
    return utility(80).model_copy(
        update={
            "accuracy": shares[chosen],
            "inference": chosen,
            "accuracies": {n: Accuracy.of([s], 100) for n, s in shares.items()},
            "validation": {n: 0.9 * s for n, s in shares.items()},
            "left_out": {"encoded": "this defense has no inference of its own"},
        }
    )


def test_all_learners_stand_in_the_row_the_chosen_first() -> None:
    told = learned("ridge", ridge=0.5, network=0.6, classmeans=0.4)
    _, found = row(record("mixup[k=2]", "linear", utility=told))
    assert [(e.name, e.chosen) for e in found.learners] == [
        ("ridge", True),  # by validation; the network was luckier on what is reported
        ("network", False),
        ("classmeans", False),
        ("encoded", False),
    ]
    assert found.learners[0].validation == 0.45
    assert found.learners[-1].reason == "this defense has no inference of its own"
    assert found.curve[1].learner == "ridge"


def moved_folder(where: Path, **more: Any) -> BoardFolder:
    """A board with a record of today, one whose attack's options have moved on, and two gaps."""
    folder = BoardFolder(where)
    folder.__dict__["board"] = board(**more)
    today, moved = (as_today(record("none", attack)) for attack in ("linear", "lmmse"))
    folder.keep(today)
    attack = moved.attack.model_copy(update={"config": {**moved.attack.config, "strange": 1}})
    folder.keep(moved.model_copy(update={"attack": attack}).sealed())
    return folder


@pytest.mark.parametrize("stage", ["open", "frozen"])
def test_page_and_planner_count_the_same_cells(stage: str, tmp_path: Path) -> None:
    """Frozen here says only that the board is not open: it has no list to be held to."""
    folder = moved_folder(tmp_path / "board", stage=stage)
    view = board_view(gathered(folder))
    foreseen = foresee(cells_of(folder.board), tmp_path / "cache", folder)
    assert len(to_do(foreseen)) == view.missing + view.again == 3
    assert Counter(each.state for each in foreseen) == {"done": 1, "again": 1, "missing": 2}
    said = "2 cells not run yet, 1 to run again"
    assert said in key_findings(view)[0]
    assert said in readme(view)


def test_what_has_moved_on_is_shown_and_marked_older(tmp_path: Path) -> None:
    reference = board_view(gathered(moved_folder(tmp_path, stage="open"))).rows[0]
    assert (reference.defense, reference.older, reference.again) == ("none", ("lmmse",), 1)
    assert [cell.status for cell in reference.cells] == ["ok", "ok"]


def test_a_board_that_is_held_to_its_list_has_nothing_to_run_again(tmp_path: Path) -> None:
    """`harness matrix` refuses to fill it with anything else."""
    folder = moved_folder(tmp_path, frozen={"attack linear (standard)": "0" * 64})
    assert board_view(gathered(folder)).again == 0


def test_cells_to_run_in_words() -> None:
    assert lacking(71, 52) == "71 cells not run yet, 52 to run again"
    assert lacking(0, 1) == "1 cell to run again"
    assert lacking(0, 0) == ""
