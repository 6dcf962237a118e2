"""What was reached beside its ceiling: in rows, tables and pages."""

from __future__ import annotations

from typing import Any

import pytest
from board_records import board, material, passed, record

from harness.drawing.markdown import readme
from harness.drawing.pages import render
from harness.results.build import board_view
from harness.results.view import BoardView, RowView
from harness.scoring.ceilings import Proof, Proven, Reached
from harness.store.record import RunRecord

pytestmark = pytest.mark.core
POOLED, LABELS = "pooled_snr_db", "pooled_snr_db_labels"


def proof(reached: dict[str, tuple[float, str]], vacuous: tuple[str, ...] = ()) -> Proof:
    return Proof(
        quantities={
            POOLED: Proven(value=4.0, interval=(3.7, 4.3)),
            LABELS: Proven(value=5.5, interval=(5.2, 5.8)),
        },
        reached={
            name: Reached(value=value, interval=(value - 0.2, value + 0.2), bound=bound)
            for name, (value, bound) in reached.items()
        },
        vacuous=vacuous,
    )


def held(attack: str, said: Proof, **more: Any) -> RunRecord:
    return record("mixup[k=2]", attack, (0.5,) * 4, ceilings={"exchangeable": said}, **more)


def view(*records: RunRecord) -> BoardView:
    reference = [record(attack=attack, right=90) for attack in ("linear", "lmmse")]
    controls = [passed("linear"), passed("lmmse")]
    return board_view(material(board(), *reference, *records, controls=controls))


def row(of: BoardView) -> RowView:
    return next(each for each in of.rows if each.defense == "mixup[k=2]")


def test_a_row_shows_the_attack_that_comes_nearest_to_its_own_ceiling() -> None:
    told = view(
        held("linear", proof({"linear": (3.9, LABELS), "identity": (1.0, POOLED)})),
        held("lmmse", proof({"lmmse": (3.6, POOLED)})),
    )
    found = row(told).bracket
    assert found is not None
    assert (found.attack, found.reached.value, found.ceiling.value) == ("lmmse", 3.6, 4.0)
    assert not found.labels
    assert "3.60 … 4.00" in readme(told)
    assert "**Reached … ceiling**" in readme(told)
    page = render(told)
    assert "lmmse reached 3.60 dB [3.40, 3.80], and no single attack that names its" in page


def test_a_vacuous_ceiling_says_nothing_and_stands_behind_others() -> None:
    loud = held("linear", proof({"linear": (5.4, LABELS)}, vacuous=(LABELS,)))
    both = view(loud, held("lmmse", proof({"lmmse": (1.0, POOLED)})))
    assert row(both).bracket is not None
    assert row(both).bracket.attack == "lmmse"  # type: ignore[union-attr]
    alone = view(loud)
    assert "5.40 … (5.50)" in readme(alone)
    assert "the ceiling is vacuous" in render(alone)


def test_where_every_ceiling_is_vacuous_the_attack_that_reached_most_stands() -> None:
    reached = {"linear": (1.0, LABELS), "nearest": (-0.2, POOLED)}
    found = row(view(held("linear", proof(reached, vacuous=(POOLED, LABELS))))).bracket
    assert found is not None
    assert (found.attack, found.reached.value) == ("linear", 1.0)


def test_where_there_is_none_the_page_says_why() -> None:
    told = view(held("linear", Proof(reason="no noise is added")))
    assert row(told).bracket is None
    assert row(told).unbounded == "no noise is added"
    assert "No ceiling: no noise is added." in render(told)


def test_boards_that_asked_for_none_are_as_they_were() -> None:
    plain = view(record("mixup[k=2]", "linear", (0.5,) * 4))
    assert row(plain).bracket is None
    assert row(plain).unbounded == ""
    assert "ceiling" not in readme(plain).lower()


def test_an_attack_that_nothing_bounds_has_no_bracket() -> None:
    assert row(view(held("linear", proof({"linear": (9.0, "")})))).bracket is None
