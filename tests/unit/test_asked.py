"""What follows from what was asked: which cells cannot be, and which results do not count."""

from __future__ import annotations

import pytest
from board_records import board, ended, record

from harness.results.material import unproven
from harness.scoring.flags import Flag
from harness.store.record import RunRecord
from harness.submissions.checks import of_absence, of_counting, of_knowledge, ruled_out

pytestmark = pytest.mark.core
FLAGGED = Flag(name="unranked", message="a quick look")


def flagged(made: RunRecord) -> RunRecord:
    return made.model_copy(update={"flags": (FLAGGED,)}).sealed()


def test_planning_says_which_cells_cannot_be() -> None:
    by_plan = ended("not_applicable", "'luo' reads encodings", "mixcon", "luo")
    assert ruled_out(by_plan)
    assert list(of_absence(by_plan, board())) == []
    assert not ruled_out(ended("not_applicable", "it reads gradients", "mixup[k=2]", "linear"))


def test_of_what_is_not_installed_nothing_follows() -> None:
    strange = ended("not_applicable", "it cannot be", "fog", "linear")
    assert not ruled_out(strange)
    ((outcome, told),) = of_absence(strange, board())
    assert outcome == "cannot"
    assert "--rerun" in told


def test_another_version_may_have_been_able() -> None:
    made = ended("not_applicable", "'luo' reads encodings", "mixcon", "luo")
    older = made.attack.model_copy(update={"version": "0"})
    assert not ruled_out(made.model_copy(update={"attack": older}))


@pytest.mark.parametrize(
    ("made", "outcomes"),
    [
        (record(), []),
        (flagged(record()), ["broken"]),
        (record(asked={"preset": "quick"}), ["broken"]),
        (flagged(record(asked={"preset": "quick"})), []),
        (flagged(record(asked={"threat_model": "oracle"})), []),
        (record(asked={"threat_model": "oracle"}), ["broken"]),
        (flagged(record(attack="haze")), ["cannot"]),
        (record(attack="haze"), []),
        (flagged(ended("failed", "no memory")), []),
    ],
)
def test_a_result_is_left_out_for_what_was_asked_alone(
    made: RunRecord, outcomes: list[str]
) -> None:
    assert [outcome for outcome, _ in of_counting(made)] == outcomes


def test_an_attack_knew_what_it_is_granted() -> None:
    given = ("encodings", "n_private", "sources", "weights")
    assert list(of_knowledge(record(channels_used=given))) == []
    ((outcome, told),) = of_knowledge(record(channels_used=given[:1]))
    assert (outcome, "n_private, sources, weights" in told) == ("broken", True)


def test_what_cannot_be_has_no_scores() -> None:
    by_plan = ended("not_applicable", "'luo' reads encodings", "mixcon", "luo")
    claimed = by_plan.model_copy(update={"status": "ok", "error": None})
    outcomes = [(outcome, told) for outcome, told in of_knowledge(claimed)]
    assert [outcome for outcome, _ in outcomes] == ["broken"]
    assert "such a cell cannot be" in outcomes[0][1]


def test_a_quick_look_does_not_count_whoever_looks() -> None:
    """Of an attack that is not installed too."""
    unknown = record(attack="sharpen", asked={"preset": "quick"})
    assert list(of_counting(flagged(unknown))) == []
    ((outcome, _),) = of_counting(flagged(record(attack="sharpen")))
    assert outcome == "cannot"


def test_a_result_that_is_left_out_for_nothing_is_a_gap() -> None:
    assert unproven(flagged(record()), board())
    assert not unproven(flagged(record(asked={"preset": "quick"})), board())


@pytest.mark.parametrize(
    ("origin", "distribution", "doubted"),
    [
        ("", "encoding-harness", False),
        ("", "a-strangers", False),
        ("mine", "encoding-harness", False),
        ("mine", "a-strangers", True),
    ],
)
def test_what_a_board_shows_does_not_hang_on_a_strangers_package(
    origin: str, distribution: str, doubted: bool
) -> None:
    made = ended("not_applicable", "'luo' reads encodings", "mixcon", "luo")
    used = (made.attack, *made.defense)
    attack, defense = (u.model_copy(update={"distribution": distribution}) for u in used)
    own = made.model_copy(update={"attack": attack, "defense": (defense,)})
    assert unproven(own, board(), origin) is doubted


@pytest.mark.parametrize("origin", ["", "mine"])
def test_who_keeps_the_board_confirms_what_was_found_at_work(origin: str) -> None:
    found = ended("not_applicable", "it is too small", "mixup[k=3]", "linear")
    assert unproven(found, board(), origin)
    confirmed = board(confirmed=[found.id])
    assert not unproven(found, confirmed, origin)
    assert list(of_absence(found, confirmed)) == []
