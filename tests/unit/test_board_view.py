"""From records to rows: worst cases over attacks, seeds, flags, and what is missing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from board_records import GUESS, OPTIONS, board, ended, learned, material, passed, record, used

from harness.api import IntegrityError, UsageError
from harness.control import AnyReport, ControlReport
from harness.drawing.heat import heat_map
from harness.drawing.markdown import readme
from harness.drawing.pages import record_path, render
from harness.drawing.plane import Plane, row_plane
from harness.results.build import board_view
from harness.results.headline import key_findings
from harness.results.material import Kept, Material, Reported
from harness.results.ranks import attacks_in_order
from harness.results.trust import Controls
from harness.results.view import WEAK, BoardView, CellView, RowView
from harness.scoring.identification import Identification
from harness.store.record import RunRecord, Used
from harness.submissions.folder import Kind, Submission

pytestmark = pytest.mark.core
CONTROLS = [passed("linear"), passed("lmmse")]


def seen(*records: RunRecord, **more: Any) -> BoardView:
    """The view of a board of two defenses and two attacks that passed their controls."""
    controls = more.pop("controls", CONTROLS)
    return board_view(material(board(**more), *records, controls=controls))


def row(view: BoardView, defense: str = "none") -> RowView:
    (track,) = view.tracks
    return next(each for each in track.rows if each.defense == defense)


def cell(view: BoardView, attack: str = "linear", defense: str = "none") -> CellView:
    return next(each for each in row(view, defense).cells if each.attack == attack)


def test_of_each_image_the_strongest_attack_counts() -> None:
    view = seen(record(gains=(4, 0, 0, 0)), record(attack="lmmse", gains=(0, 2, 2, 0)))
    leak = row(view).leaks["snr_db"]
    assert leak.gain.value == 2.0  # (4 + 2 + 2 + 0) / 4
    assert leak.mean.value == 4.5  # guesses of 1, 2, 3, 4 and these gains
    assert (leak.null, leak.worst) == (2.5, 5.0)
    assert leak.strongest == "linear"  # two images each, and the first of equals


def test_a_gain_is_over_answers_to_other_images_that_are_as_lucky() -> None:
    lucky = [g + 3 for g in GUESS]
    view = seen(record(gains=(4, 4, 4, 4), misplaced=lucky), record(attack="lmmse"))
    assert row(view).leaks["snr_db"].gain.value == 1.0
    assert cell(view).leaks["snr_db"].gain.value == 1.0


def test_an_interval_is_that_of_the_images() -> None:
    leak = row(seen(record(gains=(0, 4, 0, 4)), record(attack="lmmse", gains=(0, 0, 0, 0))))
    found = leak.leaks["snr_db"].gain
    assert found.ci == (0.0, 4.0)  # one in sixteen resamples has the same gain four times
    same = row(seen(record(), record(attack="lmmse"))).leaks["snr_db"].gain
    assert same.ci == (1.0, 1.0)


def test_a_worst_case_is_over_seeds_on_which_most_attacks_ran() -> None:
    weak = [record(gains=(1, 1, 1, 1), seed=seed) for seed in (0, 1, 2)]
    strong = record(attack="lmmse", gains=(5, 5, 5, 5))
    view = seen(*weak, strong, seeds=(0, 1, 2))
    leak = row(view).leaks["snr_db"]
    assert (leak.gain.value, leak.seeds) == (5.0, (0,))  # not diluted by seeds without lmmse
    assert row(view).seeds == (0, 1, 2)


def test_accuracy_is_over_all_seeds() -> None:
    seeds = (record(seed=seed, right=right) for seed, right in ((0, 60), (1, 80)))
    view = seen(*seeds, seeds=(0, 1))
    found = row(view).accuracy
    assert found is not None
    assert found.value == 0.7
    assert found.ci is not None
    assert found.ci[1] - found.ci[0] > 2  # Student's t of two seeds that differ by 0.2


def both(defense: str, gain: float, right: int = 80, **more: Any) -> list[RunRecord]:
    """A row's records: each attack has so many decibels more than a guess."""
    gains = (gain,) * 4
    return [record(defense, a, gains=gains, right=right, **more) for a in ("linear", "lmmse")]


def ranks_of(view: BoardView) -> list[tuple[str, int | None]]:
    (track,) = view.tracks
    return [(each.defense, each.rank.get("snr_db")) for each in track.rows]


def test_the_front_keeps_accuracy_or_privacy() -> None:
    view = seen(
        *(each for args in (("noise", 9, 90), ("mixup[k=2]", 1, 60)) for each in both(*args)),
        *both("mixup[k=4]", 9, 60),
        defenses=["noise", "mixup[k=2|4]"],
    )
    assert ranks_of(view) == [("noise", 1), ("mixup[k=2]", 1), ("mixup[k=4]", 2)]


def test_the_reference_is_shown_and_not_ranked() -> None:
    view = seen(*both("none", 0, 99), *both("mixup[k=2]", 9, 60))
    assert ranks_of(view) == [("mixup[k=2]", 1), ("none", None)]
    assert (row(view).protected, row(view, "mixup[k=2]").protected) == (False, True)
    attack = view.tracks[0].attacks[0]
    assert (attack.cells, attack.gain["snr_db"].value) == (1, 9.0)


def test_a_row_that_lacks_cells_is_not_ranked() -> None:
    """The attack that is still to run may be the strongest."""
    view = seen(record("noise", right=95), *both("mixup[k=2]", 9), defenses=["noise", "mixup[k=2]"])
    assert ranks_of(view) == [("mixup[k=2]", 1), ("noise", None)]
    assert row(view, "noise").missing == 1


def test_a_row_that_lacks_seeds_is_not_ranked_and_says_so() -> None:
    view = seen(*both("mixup[k=2]", 9), seeds=(0, 1))
    found = row(view, "mixup[k=2]")
    assert (found.missing, found.rank, found.verified) == (2, {}, False)
    assert [flag.name for flag in found.flags] == ["seeds_missing"]
    assert found.flags[0].message == "not run yet on every seed: linear, lmmse"


def test_an_unverified_row_beats_no_verified_one() -> None:
    """A weak attack is not a strong defense."""
    weak = {"flags": ["still_rising"]}
    names = ["noise", "mixup[k=2|4]"]
    view = seen(
        *both("noise", 0, 90, **weak), *both("mixup[k=2]", 9), *both("mixup[k=4]", 9, **weak),
        defenses=names,
    )  # fmt: skip
    assert ranks_of(view) == [("noise", 1), ("mixup[k=2]", 1), ("mixup[k=4]", 2)]


@pytest.mark.parametrize(
    ("reports", "standing", "mark"),
    [
        ([learned("classmeans")], "passed", "80.0%**"),
        ([learned("classmeans", passes=False)], "failed", "80.0%**‡"),
        ([learned("ridge"), passed("classmeans")], "not run", "80.0%**‡"),
    ],
)
def test_a_learner_says_whether_it_learns_where_there_is_something_to_learn(
    reports: list[AnyReport], standing: str, mark: str
) -> None:
    """The attack of a learner's name is another plugin."""
    bare = record().utility
    assert bare
    told = bare.model_copy(update={"inference": "plain", "validation": {"plain": 0.8}})
    one = record(learners={"plain": used("classmeans", "learners")}, utility=told)
    view = board_view(material(board(), one, controls=reports))
    (learner,) = row(view, "none").learners
    assert learner.control == standing
    assert mark in readme(view).split("### Learners")[1]


def test_an_accuracy_that_is_not_surely_above_chance_is_named() -> None:
    view = seen(*both("noise", 1, 13), *both("mixup[k=2]", 1, 40), defenses=["noise", "mixup[k=2]"])
    found = {each.defense: each for each in view.tracks[0].rows}
    assert (found["noise"].chance, found["noise"].at_chance) == (0.1, True)
    assert not found["mixup[k=2]"].at_chance


def test_doing_worse_than_guessing_is_no_merit_of_a_defense() -> None:
    view = seen(*both("noise", -9), *both("mixup[k=2]", 0), defenses=["noise", "mixup[k=2]"])
    assert {r.rank["snr_db"] for r in view.tracks[0].rows} == {1}
    assert row(view, "noise").leaks["snr_db"].gain.value == -9.0  # what is shown stays what it is


def test_where_signs_are_hidden_what_leaks_more_ranks() -> None:
    plain = record("mixup[k=2]")
    folded = record("mixup[k=2]", gains=(7, 7, 7, 7), metric="snr_db_abs")
    hidden = plain.model_copy(
        update={
            "privacy": {**plain.privacy, **folded.privacy},
            "by_image": {**plain.by_image, **folded.by_image},
        }
    ).sealed()
    view = seen(hidden)
    assert set(row(view, "mixup[k=2]").leaks) == {"snr_db", "snr_db_abs"}
    assert view.metrics == ("snr_db",)
    assert view.tracks[0].attacks[0].gain["snr_db"].value == 7.0


def blurred(defense: str, gain: float, attack: str = "linear") -> RunRecord:
    """A record scored by a stranger's metric, of which lower leaks more, and by SNR."""
    gains = (gain,) * 4
    theirs = record(defense, attack, gains=gains, metric="blur", leaks_more="lower")
    usual = record(defense, attack, gains=(20 - gain,) * 4)
    both = {
        "privacy": {**usual.privacy, **theirs.privacy},
        "by_image": {**usual.by_image, **theirs.by_image},
    }
    return theirs.model_copy(update=both).sealed()


BLURRED = [
    blurred(defense, gain, attack)
    for defense, gain in (("noise", 0.5), ("mixup[k=2]", 0.25))
    for attack in ("linear", "lmmse")
]
NAMES = ["noise", "mixup[k=2]"]


def test_a_board_ranks_by_any_metric_that_its_records_have() -> None:
    view = seen(*BLURRED, defenses=NAMES, ranked_by=["blur"])
    assert view.metrics == ("blur",)
    leak = row(view, "noise").leaks["blur"]
    assert (leak.leaks_more, leak.unit) == ("lower", "")
    assert (leak.mean.value, leak.gain.value) == (2.0, 0.5)  # guesses of 1, 2, 3, 4, less 0.5
    assert [(r.defense, r.rank) for r in view.tracks[0].rows] == [
        ("mixup[k=2]", {"blur": 1}),
        ("noise", {"blur": 2}),
    ]
    assert [each.gain["blur"].value for each in view.tracks[0].attacks] == [0.375, 0.375]
    usual = seen(*BLURRED, defenses=NAMES)
    assert usual.metrics == ("snr_db",)
    assert ranks_of(usual) == [("noise", 1), ("mixup[k=2]", 2)]


def test_the_first_metric_that_a_board_names_comes_first() -> None:
    view = seen(*BLURRED, defenses=NAMES, ranked_by=["blur", "snr_db"])
    assert view.metrics == ("blur", "snr_db")
    assert view.tracks[0].rows[0].rank == {"blur": 1, "snr_db": 2}


def test_a_metric_that_is_none_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no score 'blurr' to rank by\. Did you mean 'blur'\?"):
        seen(*BLURRED, defenses=NAMES, ranked_by=["blurr"])
    assert seen(*BLURRED, defenses=NAMES, ranked_by=["psnr"]).metrics == ()  # installed, not scored


def test_quick_looks_and_told_attackers_do_not_count() -> None:
    view = seen(record(gains=(9, 9, 9, 9), flags=["unranked"]), record(attack="lmmse"))
    assert row(view).leaks["snr_db"].gain.value == 1.0
    assert cell(view).leaks == {}
    assert cell(view).flags[0].name == "unranked"


def test_cells_without_a_number_say_why() -> None:
    view = seen(
        ended("failed", "out of memory"),
        ended("not_applicable", "it reads gradients", attack="lmmse"),
    )
    assert (cell(view).status, cell(view).reason) == ("failed", "out of memory")
    assert cell(view, "lmmse").reason == "it reads gradients"
    assert cell(view, "lmmse", "mixup[k=2]").status == "missing"
    assert view.missing == 2
    assert [flag.name for flag in row(view).flags] == ["incomplete"]
    assert row(view).rank == {}


def test_a_row_is_verified_if_nothing_speaks_against_it() -> None:
    whole = [record(flags=["foreign_public"]), record(attack="lmmse")]
    assert row(seen(*whole)).verified
    assert cell(seen(*whole)).verified


@pytest.mark.parametrize(
    ("flags", "controls", "why"),
    [
        (["still_rising"], CONTROLS, "still_rising"),
        ([], [passed("linear")], "control_not_run"),
        ([], [passed("linear"), passed("lmmse", False)], "control_failed"),
    ],
)
def test_what_speaks_against_a_row(flags: list[str], controls: list[Any], why: str) -> None:
    view = seen(record(), record(attack="lmmse", flags=flags), controls=controls)
    assert [flag.name for flag in row(view).flags] == [why]
    assert not row(view).verified
    assert cell(view).verified
    assert not cell(view, "lmmse").verified


def test_a_weak_attack_is_held_against_a_row_only_where_no_other_stands() -> None:
    weak, strong = record(flags=["below_null"]), record(attack="lmmse")
    assert row(seen(weak, strong)).verified
    assert not cell(seen(weak, strong)).verified
    all_weak = seen(weak, record(attack="lmmse", flags=["below_null"]))
    assert [flag.name for flag in row(all_weak).flags] == ["only_weak_attacks"]


def test_a_row_that_only_weak_attacks_met_has_no_place_and_says_why() -> None:
    weak = [
        record("noise", attack, (-3.0,) * 4, right=89, flags=["below_null"])
        for attack in ("linear", "lmmse")
    ]
    strong = [record("mixup[k=2]", attack, right=60) for attack in ("linear", "lmmse")]
    view = seen(*weak, *strong, defenses=("noise", "mixup[k=2]"))
    found = row(view, "noise")
    assert (found.rank, found.only_weak) == ({}, True)
    assert row(view, "mixup[k=2]").rank == {"snr_db": 1}
    assert f"`noise`: {WEAK}." in key_findings(view)
    assert "1 of 1 ranked defense is on the front" in key_findings(view)[1]
    assert f"| no, {WEAK} |" in readme(view)
    assert f"<small>{WEAK}</small>" in render(view)
    (point,) = [p for p in _plane(view).points if p.name == "noise"]
    assert not point.front
    assert WEAK in point.tip


def _plane(view: BoardView) -> Plane:
    found = row_plane(view.tracks[0], view.tracks[0].rows, "snr_db")
    assert found is not None
    return found


def test_another_version_of_an_attack_has_not_passed_the_control() -> None:
    newer = record(attack="lmmse")
    newer = newer.model_copy(
        update={"attack": newer.attack.model_copy(update={"version": "2"})}
    ).sealed()
    view = seen(record(), newer)
    controls = {each.attack: each.control for each in view.tracks[0].attacks}
    assert controls == {"linear": "passed", "lmmse": "not run"}


def identified(top1: float) -> Identification:
    return Identification(
        top1=top1, top1_ci=None, top1_chance=0.1, top5=1, top5_ci=None, top5_chance=0.5,
        auc=1, auc_ci=None, n=4, candidates=8,
    )  # fmt: skip


def test_who_is_identified_could_be_reconstructed() -> None:
    nothing = {"gains": (0, 0, 0, 0)}
    told = record(**nothing, identification=identified(1.0))
    view = seen(told, record(attack="lmmse", **nothing))
    assert [flag.name for flag in row(view).flags] == ["identified_not_reconstructed"]
    assert cell(view).findings[0].startswith("identifies 100.0% of 4 images first among 8")
    shown = seen(record(identification=identified(1.0)), record(attack="lmmse"))
    assert row(shown).verified


def test_attacks_are_ranked_on_defenses_that_both_met() -> None:
    view = seen(
        record("noise", gains=(9, 9, 9, 9)),
        record("noise", "lmmse", gains=(9, 9, 9, 9)),
        record("mixup[k=2]", "lmmse", gains=(1, 1, 1, 1)),
        defenses=["noise", "mixup[k=2]"],
    )
    attacks = {each.attack: each for each in view.tracks[0].attacks}
    assert attacks["linear"].gain["snr_db"].value == 9.0
    assert attacks["lmmse"].gain["snr_db"].value == 5.0
    assert {each.rank["snr_db"] for each in attacks.values()} == {1}
    assert (attacks["linear"].cells, attacks["lmmse"].cells) == (1, 2)
    assert (attacks["linear"].strongest_of, attacks["lmmse"].strongest_of) == (4, 4)


def test_an_attack_that_gains_nothing_has_no_rank() -> None:
    view = seen(
        record("mixup[k=2]", gains=(5, 5, 5, 5)),
        record("mixup[k=2]", "lmmse", gains=(0, -1, 0, 0)),
        record(attack="lmmse", gains=(99, 99, 99, 99)),  # where nothing protects
    )
    assert [(a.attack, a.rank.get("snr_db")) for a in view.tracks[0].attacks] == [
        ("linear", 1),
        ("lmmse", None),
    ]


def test_attacks_come_by_rank_and_then_by_gain_wherever_they_are_shown() -> None:
    """Two that never met the same defense are not told apart; by name the other would be first."""
    view = seen(
        record("mixup[k=2]", "linear", gains=(3, 3, 3, 3)),
        record("noise", "lmmse", gains=(5, 5, 5, 5)),
        defenses=["noise", "mixup[k=2]"],
    )
    (track,) = view.tracks
    assert [(a.attack, a.rank["snr_db"]) for a in track.attacks] == [("lmmse", 1), ("linear", 1)]
    assert [attack for attack, _ in heat_map(track, "snr_db").columns] == ["lmmse", "linear"]
    assert attacks_in_order(track.attacks[::-1], "snr_db") == list(track.attacks)


def test_a_claim_stands_beside_what_was_measured() -> None:
    claims = [
        {"defense": "none", "attack": "linear", "metric": m, "value": 3.0, "source": "a paper"}
        for m in ("snr_db", "accuracy", "ssim")
    ]
    measured = [each.measured for each in seen(record(), claims=claims).claims]
    assert [each and each.value for each in measured] == [3.5, 0.8, None]


def test_a_command_repeats_the_cell() -> None:
    commands = cell(seen(record("mixup[k=2]"), seeds=(0, 3)), defense="mixup[k=2]").commands
    asked = (
        "harness evaluate --defense 'mixup[k=2]' --attack linear --dataset fashion-mini "
        "--preset standard --private-size 8 --test-size 100"
    )
    machine = "--precision float32 --threads 1"
    assert commands == (f"{asked} {machine}", f"{asked} --seed 3 {machine}")


def test_the_order_of_records_changes_nothing() -> None:
    records = [
        record(defense, attack, gains=tuple(np.random.default_rng(i).normal(size=4)), seed=seed)
        for i, (defense, attack, seed) in enumerate(
            (d, a, s) for d in ("none", "mixup[k=2]") for a in ("linear", "lmmse") for s in (0, 1)
        )
    ]
    view = seen(*records, seeds=(0, 1))
    random.Random(0).shuffle(records)
    assert seen(*records, seeds=(0, 1)) == view


def test_another_row_changes_no_number_of_this_one() -> None:
    own = [record(gains=(0, 4, 1, 2)), record(attack="lmmse")]
    other = [record("mixup[k=2]", gains=(3, 1, 4, 1))]
    assert row(seen(*own)).leaks == row(seen(*own, *other)).leaks


def test_records_of_other_images_are_refused() -> None:
    longer = record(attack="lmmse", gains=(1,) * 5, guess=(1.0,) * 5)
    with pytest.raises(IntegrityError, match="should be of the same images"):
        seen(record(), longer)


def test_scores_that_cannot_be_end_the_building() -> None:
    one = record()
    huge = one.by_image["snr_db"].model_copy(update={"attack": (1e308,) * 4})
    edited = one.model_copy(update={"by_image": {"snr_db": huge}}).sealed()
    with pytest.raises(IntegrityError, match="too large"):
        seen(edited)


def submitted(
    kind: Kind, what: str, *records: RunRecord, reports: Sequence[ControlReport] = ()
) -> BoardView:
    """The board of two defenses and two attacks, filled, with what a stranger hands in."""
    own = [record(d, a) for d in ("none", "mixup[k=2]") for a in ("linear", "lmmse")]
    told = Submission.model_construct(
        name="mine", kind=kind, what=what, board="tiny", tracks=("once",)
    )
    kept = (*map(Kept, own), *(Kept(each, "mine") for each in records))
    controls = (*map(Reported, CONTROLS), *(Reported(each, "mine") for each in reports))
    return board_view(Material(board(), kept, controls, (told,)))


def test_a_strangers_defense_is_a_row() -> None:
    view = submitted("defense", "noise", record("noise"), record("noise", "lmmse"))
    found = row(view, "noise")
    assert (found.origin, found.verified, found.rank) == ("mine", True, {"snr_db": 1})
    assert row(view).origin == ""


def test_attacks_that_a_strangers_defense_did_not_meet_are_gaps() -> None:
    view = submitted("defense", "noise", record("noise"))
    assert [flag.name for flag in row(view, "noise").flags] == ["incomplete"]
    assert view.missing == 1


def test_a_strangers_attack_counts_where_it_ran_and_is_no_gap_elsewhere() -> None:
    view = submitted("attack", "wiener", record(attack="wiener", gains=(5, 5, 5, 5)))
    assert row(view).leaks["snr_db"].strongest == "wiener"
    assert cell(view, "wiener").origin == "mine"
    assert not cell(view, "wiener").verified  # no report on its controls
    assert row(view).verified  # which takes nothing from the board's own attacks
    assert len(row(view, "mixup[k=2]").cells) == 2
    assert view.missing == 0


def test_a_strangers_report_speaks_for_what_came_with_it_alone() -> None:
    wiener = record(attack="wiener", gains=(5, 5, 5, 5))
    handed_in = submitted("attack", "wiener", wiener, reports=[passed("wiener")])
    assert cell(handed_in, "wiener").verified
    other_source = passed("wiener").model_copy(update={"attack": edited_source(wiener)}).sealed()
    assert not cell(
        submitted("attack", "wiener", wiener, reports=[other_source]), "wiener"
    ).verified
    own = [record(d, a) for d in ("none", "mixup[k=2]") for a in ("linear", "lmmse")]
    for reports in ((), (passed("lmmse", False),)):
        controls = map(Reported, [passed("linear"), *reports])
        stranger = Reported(passed("lmmse"), "mine")
        view = board_view(Material(board(), tuple(map(Kept, own)), (*controls, stranger)))
        assert not row(view).verified


def edited_source(of: RunRecord) -> Used:
    return of.attack.model_copy(update={"source_sha256": "1"})


def test_the_boards_own_report_comes_before_a_strangers() -> None:
    again = record("noise", "lmmse")
    kept = (Kept(again, "mine"), Kept(record("noise")))
    reports = (Reported(passed("lmmse", False)), Reported(passed("lmmse"), "mine"))
    assert Controls(reports).of(kept[:1]) == "failed"
    assert Controls(reports[1:]).of(kept[:1]) == "passed"
    assert Controls(reports[1:]).of(kept) == "not run"


def test_what_says_without_proof_that_it_cannot_be_is_a_gap() -> None:
    kept = [Kept(record()), Kept(ended("not_applicable", "it reads gradients", attack="lmmse"))]
    proven = board_view(Material(board(), tuple(kept), tuple(map(Reported, CONTROLS))))
    assert row(proven).verified
    kept[1] = replace(kept[1], unproven=True)
    claimed = board_view(Material(board(), tuple(kept), tuple(map(Reported, CONTROLS))))
    assert [flag.name for flag in row(claimed).flags] == ["incomplete"]


def test_a_cell_of_the_board_may_be_filled_by_a_stranger() -> None:
    theirs = record("mixup[k=2]", "lmmse")
    kept = (Kept(record("mixup[k=2]")), Kept(theirs, "mine"))
    view = board_view(Material(board(), kept, (Reported(passed("linear")),)))
    filled = cell(view, "lmmse", "mixup[k=2]")
    assert (filled.origin, filled.homes) == ("mine", {theirs.id: "mine"})
    assert record_path(filled, theirs.id) == f"submissions/mine/records/{theirs.id}.json"
    assert [flag.name for flag in row(view, "mixup[k=2]").flags] == ["control_not_run"]


def test_the_board_says_what_it_is_of() -> None:
    view = seen()
    assert (view.dataset, view.metrics, view.records, view.missing) == ("fashion-mini", (), 0, 4)
    assert view.tracks[0].protocol == {name: str(value) for name, value in OPTIONS.items()}
