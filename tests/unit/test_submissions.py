"""Which cells a stranger's plugin has to run, and what a submission says of itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from handed_in import TOML, described, make_board, submit, used

from harness.api import UsageError
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.boards.protocol import Board
from harness.submissions.cells import choose, fitting, places, settled
from harness.submissions.folder import (
    FILE,
    Plugin,
    SubmissionFolder,
    board_of,
    protocol_of,
)

pytestmark = pytest.mark.core

BOARD = """
name = "b"
title = "B"
options = { dataset = "fashion-mini", threads = 1 }

[[tracks]]
name = "once"
title = "Encodings"
defenses = ["none", "mixup[k=2|4]"]

[[tracks.cells]]
attacks = ["linear", "lmmse"]
seeds = [0, 1]

[[tracks.cells]]
attacks = ["unfold"]
defenses = ["none"]

[[tracks.cells]]
attacks = ["similarity"]
options = { threat_model = "candidates" }

[[tracks]]
name = "gradients"
title = "Gradients"
options = { victim = "strided" }
defenses = ["gradprune", "mixup"]
cells = [{ attacks = ["gradmatch"] }]

[[tracks]]
name = "features"
title = "Features"
options = { victim = "lenet5", targets_from = "heldout" }
defenses = ["none", "mixcon"]
cells = [{ attacks = ["linear"] }]
"""


@pytest.fixture(scope="module")
def board() -> Board:
    return Board.model_validate(tomllib.loads(BOARD))


@pytest.mark.parametrize(
    ("what", "kind", "tracks"),
    [
        ("noise", "defense", ["once"]),
        ("gradnoise", "defense", ["gradients"]),
        ("gradprune+instahide", "defense", ["gradients"]),
        ("unicon", "defense", ["features"]),
        ("wiener", "attack", ["once"]),
        ("gradmatch[steps=9]", "attack", ["gradients"]),
        ("inversion", "attack", ["features"]),
        ("unet", "attack", ["once", "features"]),
    ],
)
def test_a_plugin_belongs_where_its_kind_of_release_is(
    board: Board, what: str, kind: str, tracks: list[str]
) -> None:
    chosen = choose(what, None, "quick", registry())
    assert chosen.kind == kind
    assert fitting(board, chosen, registry()) == tracks


def test_a_defense_meets_every_attack_as_the_tracks_own_do(board: Board) -> None:
    cells = settled(places(board, "defense", "noise[scale=1|2]", ["once"]), registry())
    met = {
        (c.request.defense, c.request.attack, c.request.threat_model, c.request.seed) for c in cells
    }
    attacks = [
        ("linear", "informed", 0),
        ("linear", "informed", 1),
        ("lmmse", "informed", 0),
        ("lmmse", "informed", 1),
        ("unfold", "informed", 0),
        ("similarity", "candidates", 0),
    ]
    assert met == {(f"noise[scale={s}]", *attack) for s in (1, 2) for attack in attacks}
    assert [cell.request.seed for cell in cells] == sorted(cell.request.seed for cell in cells)


@pytest.mark.parametrize(
    ("what", "threat_model", "seeds"),
    [("wiener", "informed", {0, 1}), ("sphere", "candidates", {0})],
)
def test_an_attack_meets_every_defense_on_the_first_terms_that_let_it_work(
    board: Board, what: str, threat_model: str, seeds: set[int]
) -> None:
    cells = settled(places(board, "attack", what, ["once"]), registry())
    assert {c.request.defense for c in cells} == {"none", "mixup[k=2]", "mixup[k=4]"}
    assert {c.request.threat_model for c in cells} == {threat_model}
    assert {c.request.seed for c in cells} == seeds
    assert len(cells) == 3 * len(seeds)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("nosie", "Did you mean 'noise'"),
        ("suite", "has to be one defense, one stack or one attack"),
        ("linear+noise", "has to be one defense, one stack or one attack"),
        ("noise[colour=1]", "no option 'colour'"),
        ("noise[", "Cannot read"),
    ],
)
def test_what_cannot_be_handed_in(what: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        choose(what, None, "quick", registry())


def test_a_name_for_it() -> None:
    chosen = choose("gradprune[p=0.9|0.99]+mixup", None, "quick", registry())
    assert chosen.slug == "gradprune-mixup"


def test_its_description_survives_its_file(tmp_path: Path) -> None:
    folder = submit(make_board(tmp_path / "board"))
    told = folder.description
    assert told.paper == '"quoted" \\ – ünïcode'
    assert len(told.records) == 3
    folder = SubmissionFolder(tmp_path)
    folder.describe(told)
    assert folder.description == told


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('authors = "A. Stranger"', "authors = 3", "authors"),
        ("A. Stranger", "A.\\u0000Stranger", "authors"),
        ("license", "colour", "colour"),
        ("missing = 0", "missing = -1", "missing"),
        ("records = [", 'records = ["x",', "records"),
        ("records = [", "records = [,", "not valid TOML"),
    ],
)
def test_a_description_that_cannot_be(tmp_path: Path, old: str, new: str, told: str) -> None:
    folder = submit(make_board(tmp_path / "board"))
    text = (folder.path / FILE).read_text(encoding="utf-8")
    (folder.path / FILE).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UsageError, match=told):
        _ = folder.description


def test_a_protocol_is_what_runs_and_not_what_is_said_of_it() -> None:
    board = Board.model_validate(tomllib.loads(TOML))
    (track,) = board.tracks
    reworded = track.model_copy(update={"about": "other words"})
    smaller = track.model_copy(update={"defenses": ("none",)})
    assert protocol_of(board) == protocol_of(board.model_copy(update={"tracks": (reworded,)}))
    assert protocol_of(board) != protocol_of(board.model_copy(update={"tracks": (smaller,)}))
    assert protocol_of(board) != protocol_of(board.model_copy(update={"options": {"seed": 1}}))


def test_a_submission_is_for_the_board_it_lies_in(tmp_path: Path) -> None:
    board = make_board(tmp_path / "board")
    folder = submit(board)
    assert board_of(folder.path, "small").path == board.path.absolute()
    with pytest.raises(UsageError, match="to the board 'other', not to 'small'"):
        board_of(folder.path, "other")


def test_what_was_asked_for_is_a_request(board: Board) -> None:
    """Cells of a submission differ from the board's in the plugin alone."""
    (((cell,),),) = places(board, "defense", "unicon", ["features"])
    options = {"dataset": "fashion-mini", "threads": 1, "victim": "lenet5"}
    asked = make_request(**options, targets_from="heldout", defense="unicon", attack="linear")
    assert cell.request == asked


def test_a_described_plugin_is_named_by_its_source(tmp_path: Path) -> None:
    plugin = Plugin(**used("mixup", "defenses").model_dump(include=set(Plugin.model_fields)))
    told = described(make_board(tmp_path / "board"), "mixup", [], plugin)
    assert "[[plugins]]" in told.toml()
    assert tomllib.loads(told.toml())["plugins"] == [plugin.model_dump()]
