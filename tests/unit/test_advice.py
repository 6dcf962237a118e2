"""Advice: what qualifies, what an attacker got, and when nothing can be said."""

from __future__ import annotations

from typing import Any

import pytest
from board_records import OPTIONS, board, ended, material, passed, record, utility

from harness.advice import Advice, Wish, advise
from harness.api import UsageError
from harness.boards.protocol import Board
from harness.cli.advise import _lines
from harness.results.material import Material
from harness.scoring.utility import Utility

pytestmark = pytest.mark.core
ATTACKS = ("linear", "lmmse")
RELEASED = frozenset({"encodings", "public"})
INFORMED = RELEASED | {"weights"}
KNOWING: dict[str, Any] = {"channels_used": ("encodings", "weights")}


def made(*records: Any, controls: tuple[str, ...] = ("linear", "lmmse")) -> Material:
    return material(
        board(("noise", "mixup[k=2]")), *records, controls=[passed(each) for each in controls]
    )


WHOLE = made(
    record("noise", gains=(9, 9, 9, 9), right=88, **KNOWING),
    record("noise", "lmmse", gains=(2, 2, 2, 2), right=88),
    record("mixup[k=2]", gains=(6, 6, 6, 6), right=60, **KNOWING),
    record("mixup[k=2]", "lmmse", right=60),
)


def ask(of: Material = WHOLE, least: float = 0.4, **more: Any) -> Advice:
    wish = {"attacker": "informed", "grants": INFORMED, "dataset": "fashion-mini", **more}
    return advise([of], Wish(min_accuracy=least, **wish))


def test_what_leaks_least_comes_first() -> None:
    advice = ask()
    offers = [(o.defense, o.leak and o.leak.gain.value) for o in advice.recommended]
    assert offers == [("mixup[k=2]", 6.0), ("noise", 9.0)]
    assert advice.refusal == ""


def test_attacks_that_need_more_than_the_attacker_holds_do_not_count() -> None:
    advice = ask(attacker="released", grants=RELEASED)
    offers = [(o.defense, o.leak and o.leak.gain.value) for o in advice.recommended]
    assert offers == [("mixup[k=2]", 1.0), ("noise", 2.0)]
    assert (advice.recommended[0].attacks, advice.recommended[0].of) == (1, 2)


def test_an_accuracy_must_be_sure() -> None:
    accuracy = ask().recommended[0].accuracy
    assert accuracy.ci is not None
    assert accuracy.ci[0] < 0.55 < accuracy.value
    assert [offer.defense for offer in ask(least=0.55).recommended] == ["noise"]


def test_no_protection_is_no_defense() -> None:
    bare = material(board(), *(record(attack=a, right=90) for a in ("linear", "lmmse")))
    assert ask(bare).refusal.startswith("No defense")


def test_an_undefended_row_is_no_offer_though_it_was_trained_apart_from_its_reference() -> None:
    apart = {"utility": utility(88, reference=92)}
    bare = material(board(), *(record(attack=a, **apart) for a in ("linear", "lmmse")))
    assert ask(bare).refusal.startswith("No defense")


def test_a_defense_that_costs_no_accuracy_is_offered() -> None:
    """Its share of the unprotected accuracy is exactly 1."""
    same = {"utility": utility(90, reference=90)}
    found = ask(made(*(record("noise", a, **same) for a in ("linear", "lmmse"))))
    assert [offer.defense for offer in found.recommended] == ["noise"]


def test_the_front_is_of_those_that_keep_the_accuracy() -> None:
    """A row that surely leaks less, and does not qualify, takes nobody's place."""
    vague = {"utility": wide(0.9, (0.35, 1.0))}
    rows = [
        *(record("noise", a, gains=(7, 7, 7, 7), right=88) for a in ("linear", "lmmse")),
        *(record("mixup[k=2]", a, gains=(3, 3, 3, 3), **vague) for a in ("linear", "lmmse")),
    ]
    assert [o.defense for o in ask(made(*rows), least=0.3).recommended] == ["mixup[k=2]"]
    assert [o.defense for o in ask(made(*rows), least=0.5).recommended] == ["noise"]


def test_what_is_unsafe_to_rely_on_takes_nobody_s_place() -> None:
    rows = [
        *(record("noise", a, right=95, flags=["still_rising"]) for a in ("linear", "lmmse")),
        *(record("mixup[k=2]", a, gains=(9, 9, 9, 9), right=60) for a in ("linear", "lmmse")),
    ]
    advice = ask(made(*rows))
    assert [offer.defense for offer in advice.recommended] == ["mixup[k=2]"]
    assert [offer.defense for offer in advice.doubtful] == ["noise"]


def wide(accuracy: float, interval: tuple[float, float]) -> Utility:
    return utility(90).model_copy(update={"accuracy": accuracy, "interval": interval})


def test_nothing_qualifies() -> None:
    advice = ask(least=0.99)
    assert not advice.recommended
    assert "surely keeps an accuracy of 0.99 on 'fashion-mini'" in advice.refusal


@pytest.mark.parametrize(
    ("second", "controls", "doubt"),
    [
        (record("noise", "lmmse", flags=["still_rising"]), ("linear", "lmmse"), "still_rising"),
        (ended("timeout", "out of time", "noise", "lmmse"), ("linear", "lmmse"), "incomplete"),
        (record("noise", "lmmse"), ("linear",), "control_not_run"),
    ],
)
def test_what_is_unsafe_to_rely_on_is_not_recommended(
    second: Any, controls: tuple[str, ...], doubt: str
) -> None:
    advice = ask(made(record("noise"), second, controls=controls))
    assert not advice.recommended
    assert "unsafe to rely on" in advice.refusal
    (offer,) = advice.doubtful
    assert [each.name for each in offer.doubts] == [doubt]


def test_where_no_attack_is_within_reach_nothing_is_known() -> None:
    both = [record("noise", attack, **KNOWING) for attack in ("linear", "lmmse")]
    (offer,) = ask(made(*both), grants=RELEASED).doubtful
    assert (offer.leak, offer.attacks, offer.of) == (None, 0, 2)
    assert [each.name for each in offer.doubts] == ["no_attack"]


def test_a_defense_that_no_ranking_metric_scored_is_doubtful() -> None:
    rows = [record("noise", a, metric="blur", leaks_more="lower") for a in ("linear", "lmmse")]
    (offer,) = ask(made(*rows)).doubtful
    assert (offer.leak, offer.attacks, offer.of) == (None, 2, 2)
    assert [each.name for each in offer.doubts] == ["not_scored"]


def test_a_dataset_without_a_board_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"'fashion'\. Did you mean 'fashion-mini'\?"):
        ask(dataset="fashion")


def test_leakage_may_be_asked_for_by_any_metric_that_was_scored() -> None:
    """Also by one that the board does not rank by."""

    def both(defense: str, attack: str, gain: float) -> Any:
        gains = (gain,) * 4
        theirs = record(defense, attack, gains=gains, metric="blur", leaks_more="lower")
        usual = record(defense, attack, gains=(9 - gain,) * 4)
        by_image = {**usual.by_image, **theirs.by_image}
        return theirs.model_copy(update={"by_image": by_image}).sealed()

    rows = [
        both(defense, attack, gain)
        for defense, gain in (("noise", 1), ("mixup[k=2]", 2))
        for attack in ("linear", "lmmse")
    ]
    (offer,) = ask(made(*rows), metric="blur").recommended
    assert offer.leak is not None
    assert (offer.defense, offer.leak.metric, offer.leak.gain.value) == ("noise", "blur", 1.0)
    assert [each.defense for each in ask(made(*rows)).recommended] == ["mixup[k=2]"]


def test_a_metric_that_does_not_rank_is_refused() -> None:
    with pytest.raises(UsageError, match="Rows are not ranked by 'ssim'"):
        ask(metric="ssim")
    assert ask(metric="snr_db") == ask()


def two_tracks(*records: Any, **second: Any) -> Material:
    """The tiny board with a track more, which differs in these options."""
    both = board(("noise", "mixup[k=2]")).model_dump(mode="json")
    other = {**both["tracks"][0], "name": "again", "title": "Again", "options": second}
    values = {**both, "tracks": [both["tracks"][0], other]}
    return material(Board.model_validate(values), *records, controls=map(passed, ATTACKS))


def released(advice: Advice) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for offer in (*advice.recommended, *advice.doubtful):
        found.setdefault(offer.released, []).append(offer.defense)
    return found


def test_offers_say_what_would_be_released() -> None:
    once = [record("noise", attack, right=88) for attack in ATTACKS]
    often = [record("noise", attack, right=88, asked={"rounds": 4}) for attack in ATTACKS]
    assert released(ask(two_tracks(*once, *often, rounds=4))) == {
        "encodings, 8 images, each once": ["noise"],
        "encodings, 8 images, each 4 times": ["noise"],
    }


def test_what_is_learned_by_chance_is_marked_and_takes_nobody_s_place() -> None:
    """It leaks least of all, and would be the whole front."""
    rows = [
        *(record("noise", a, gains=(0, 0, 0, 0), right=10) for a in ATTACKS),
        *(record("mixup[k=2]", a, gains=(3, 3, 3, 3), right=60) for a in ATTACKS),
    ]
    advice = ask(made(*rows), least=0.01)
    assert [(o.defense, o.chance) for o in advice.recommended] == [("mixup[k=2]", 0.1)]
    (lost,) = advice.doubtful
    assert (lost.defense, [doubt.name for doubt in lost.doubts]) == ("noise", ["at_chance"])


def test_a_board_that_was_only_looked_at_quickly_says_so() -> None:
    quick = [record("noise", attack, right=88, flags=["unranked"]) for attack in ATTACKS]
    assert "only with the preset 'quick', which ranks nothing" in ask(made(*quick)).refusal


def test_a_board_that_names_no_dataset_is_of_the_default_one() -> None:
    rows = [record("noise", attack, right=88) for attack in ATTACKS]
    options = {name: value for name, value in OPTIONS.items() if name != "dataset"}
    bare = board(("noise", "mixup[k=2]"), options=options)
    found = ask(material(bare, *rows, controls=map(passed, ATTACKS)))
    assert [offer.defense for offer in found.recommended] == ["noise"]


def test_a_dataset_with_options_may_be_asked_for_by_its_name() -> None:
    own = board(("noise", "mixup[k=2]"), options={**OPTIONS, "dataset": "folder[path=scans]"})
    for written in ("folder", "folder[path=scans]"):
        assert "No accuracy on" in ask(material(own), dataset=written).refusal


def printed(advice: Advice) -> list[str]:
    return list(_lines(advice))


def test_what_is_the_same_of_all_is_printed_once() -> None:
    rows = [
        *(record("noise", a, gains=(2, 2, 2, 2), right=88) for a in ATTACKS),
        *(record("mixup[k=2]", a, gains=(1, 1, 1, 1), right=60) for a in ATTACKS),
    ]
    lines = printed(ask(made(*rows, controls=())))
    (doubt,) = [line for line in lines if "nobody has seen them break anything" in line]
    assert doubt.startswith("  control_not_run (all of these): ")
    (met,) = [line for line in lines if "need no more than this attacker knows" in line]
    assert met == "  2 of 2 attacks need no more than this attacker knows"
    assert [line for line in lines if line.startswith("released: ")] == [
        "released: encodings, 8 images, each once  (tiny: All of it)"
    ]


def test_one_reason_stands_once_though_it_is_of_other_attacks() -> None:
    rows = [
        *(record("noise", a, gains=(2, 2, 2, 2), right=88) for a in ATTACKS),
        record("mixup[k=2]", "linear", gains=(1, 1, 1, 1), right=60),
        ended("not_applicable", "cannot be", "mixup[k=2]", "lmmse"),
    ]
    lines = printed(ask(made(*rows, controls=())))
    (doubt,) = [line for line in lines if "nobody has seen them break anything" in line]
    assert doubt.startswith("  control_not_run (all of these): ")
    assert doubt.endswith(": linear, lmmse")


def test_a_reason_of_several_releases_stands_once_behind_them() -> None:
    plain = board(("noise",))
    (once,) = plain.model_dump()["tracks"]
    twice = {**once, "name": "twice", "options": {"rounds": 2}}
    of = type(plain).model_validate({**plain.model_dump(), "tracks": [once, twice]})
    rows = [record("noise", a, right=88, asked={"rounds": r}) for a in ATTACKS for r in (1, 2)]
    lines = printed(ask(material(of, *rows)))
    assert len([line for line in lines if line.startswith("released: ")]) == 2
    (at,) = [i for i, line in enumerate(lines) if "nobody has seen them break anything" in line]
    assert lines[at - 1] == "of several of these releases:"
    assert lines[at].startswith("  control_not_run (all of these): ")
