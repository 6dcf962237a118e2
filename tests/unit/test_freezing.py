"""A frozen board names what it is made of by content, and nothing else can fill it."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from board_records import board, record

from harness.api import UsageError
from harness.asking.plan import plan
from harness.asking.registry import Registry, registry
from harness.boards.freezing import COMMENT, check_frozen, freeze, frozen, strange
from harness.boards.protocol import Board, read_board
from harness.store.record import Used

pytestmark = pytest.mark.core

TEXT = """\
# A board of mine.
name = "tiny"
title = "Tiny"   # with a remark

[options]
dataset = "fashion-mini"
preset = "standard"
metrics = "snr_db,lpips_vgg"
precision = "float32"

[[tracks]]
name = "once"
title = "All of it"
defenses = ["none", "gradprune[p=0.9|0.99]+mixup[k=2]"]

[[tracks.cells]]
attacks = ["linear"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "board.toml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def newer(name: str) -> Registry:
    """What is installed, with another version of a defense."""
    known = registry()
    entries = {kind: dict(found) for kind, found in known.entries.items()}
    entry = entries["defenses"][name]
    entries["defenses"][name] = replace(entry, spec=replace(entry.spec, version="99"))
    return Registry(entries, known.problems)


def test_everything_a_cell_is_made_of_has_a_hash(folder: Path) -> None:
    found = freeze(folder, registry())
    learners = registry().spec("learners", "standard").members or ("standard",)
    assert set(found) - {f"learner {name} (standard)" for name in learners} == {
        "attack linear (standard)",
        "asset fashion-mini",
        "asset lpips-vgg16",
        "dataset fashion-mini (standard)",
        "defense gradprune[p=0.99] (standard)",
        "defense gradprune[p=0.9] (standard)",
        "defense mixup[k=2] (standard)",
        "defense none (standard)",
        "metric lpips_vgg",
        "metric snr_db",
        "space pixels (standard)",
        "victim cnn (standard)",
    }
    assert read_board(folder).frozen == found


def test_freezing_leaves_the_rest_of_the_file_as_it_is(folder: Path) -> None:
    freeze(folder, registry())
    once = (folder / "board.toml").read_text(encoding="utf-8")
    assert once.startswith(TEXT)
    freeze(folder, registry())
    assert (folder / "board.toml").read_text(encoding="utf-8") == once


def test_a_table_of_ones_own_is_not_written_over(folder: Path) -> None:
    own = f"{TEXT}\n[frozen]\nmine = 'x'\n"
    (folder / "board.toml").write_text(own, encoding="utf-8")
    with pytest.raises(UsageError, match="remove its \\[frozen\\] table"):
        freeze(folder, registry())
    assert (folder / "board.toml").read_text(encoding="utf-8") == own
    assert COMMENT not in own


def test_a_board_that_is_not_frozen_takes_what_is_installed(folder: Path) -> None:
    check_frozen(read_board(folder), newer("mixup"))


def test_another_version_cannot_fill_a_frozen_board(folder: Path) -> None:
    freeze(folder, registry())
    check_frozen(read_board(folder), registry())
    with pytest.raises(UsageError, match=r"defense mixup\[k=2\] \(standard\) is another"):
        check_frozen(read_board(folder), newer("mixup"))


def test_a_record_of_another_version_is_found() -> None:
    known = registry()
    of = board(attacks=["linear"])
    of = of.model_copy(update={"frozen": frozen(of, known)})
    genuine = genuinely_used(record("mixup[k=2]"), known)
    assert strange(of, genuine) == []
    other = genuine.model_copy(
        update={"defense": (genuine.defense[0].model_copy(update={"version": "0"}),)}
    )
    assert strange(of, other) == ["defense mixup[k=2] (standard)"]
    lying = genuine.model_copy(
        update={"attack": genuine.attack.model_copy(update={"source_sha256": "0" * 64})}
    )
    assert strange(of, lying) == ["attack linear (standard)"]


def genuinely_used(made, known):  # type: ignore[no-untyped-def]
    """A record made by hand, with its plugins as they are installed."""
    cell = plan(made.request, known)
    parts = {"attack": cell.attack, "dataset": cell.dataset, "victim": cell.victim}

    parts |= {"space": cell.space}
    update = {name: Used.of(known, f"{name}s", resolved) for name, resolved in parts.items()}
    defenses = tuple(Used.of(known, "defenses", each) for each in cell.defenses)
    return made.model_copy(update={**update, "defense": defenses})


def test_a_board_must_be_scored_by_what_it_is_ranked_by(folder: Path) -> None:
    text = f'ranked_by = ["snr_bd"]\n{TEXT}'
    (folder / "board.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"no score 'snr_bd' to rank by\. Did you mean 'snr_db'\?"):
        read_board(folder)
    (folder / "board.toml").write_text(text.replace("snr_bd", "lpips_vgg"), encoding="utf-8")
    assert read_board(folder).ranking == ("lpips_vgg",)


def test_a_board_that_is_ranked_by_no_metric_is_not_run() -> None:
    with pytest.raises(UsageError, match=r"no score 'snr_bd' to rank by\. Did you mean"):
        check_frozen(board(ranked_by=["snr_bd"]), registry())
    check_frozen(board(ranked_by=["mse"]), registry())


def test_a_board_that_leaves_precision_to_machines_is_not_frozen():
    left = TEXT.replace('precision = "float32"\n', "")
    board = Board.model_validate(tomllib.loads(left))
    with pytest.raises(UsageError, match="leaves the precision of training to the machine"):
        frozen(board, registry())
