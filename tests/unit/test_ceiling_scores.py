"""What was reached beside its ceiling, and who is surely above one."""

import math

import pytest
import torch
from views import stream

from harness.api import Bound, Quantity, Table
from harness.scoring.ceilings import Proof, Shown, compared

POOLED, LABELS = "pooled_snr_db", "pooled_snr_db_labels"
TARGETS = 80


def errors(seed, mean=1.0, targets=TARGETS):
    generator = torch.Generator().manual_seed(seed)
    return mean * (0.5 + torch.rand(targets, generator=generator, dtype=torch.float64))


def held_against(shown, bound=None, energies=None):
    energies = torch.full((TARGETS,), 4.0).double() if energies is None else energies
    return compared(shown, {POOLED: errors(0)} if bound is None else bound, energies, stream())


def test_the_pooled_ratio_is_of_sums_and_not_a_mean_of_decibels():
    energies, had = torch.tensor([1.0, 9.0]).double(), torch.tensor([1.0, 1.0]).double()
    reached, _ = held_against([Shown("a", had, "")], {}, energies)
    assert reached["a"].value == pytest.approx(10 * math.log10(5))
    assert reached["a"].bound == ""
    assert reached["a"].over is None


def test_who_is_below_is_not_flagged_and_who_is_surely_above_is():
    worse, better = Shown("worse", errors(0, 1.3), POOLED), Shown("better", errors(0, 0.7), POOLED)
    reached, flags = held_against([worse, better])
    assert [flag.name for flag in flags] == ["above_ceiling"]
    assert "'better' has a squared error 30.0% below" in flags[0].message
    assert reached["worse"].over == pytest.approx(0.3)
    assert reached["better"].over == pytest.approx(-0.3)
    low, high = reached["better"].interval
    assert low < reached["better"].value < high


def test_each_is_held_against_the_bound_that_it_is_under():
    """Below the ceiling with labels, and above the one without: whoever reads labels may be."""
    had, bounds = errors(3, 0.8), {POOLED: errors(3), LABELS: errors(3, 0.6)}
    assert held_against([Shown("reads", had, LABELS)], bounds)[1] == []
    assert len(held_against([Shown("reads none", had, POOLED)], bounds)[1]) == 1
    assert held_against([Shown("is told", had * 0.1, "")], bounds)[1] == []


@pytest.mark.parametrize("power", [4.0, 0.0])
def test_a_bound_without_any_error_gives_numbers_that_a_record_can_hold(power):
    """Where the posterior has one image alone, what is left of its error is nothing at all."""
    nothing, energies = torch.zeros(TARGETS).double(), torch.full((TARGETS,), power).double()
    shown = [Shown("some", errors(1), POOLED), Shown("all", nothing, POOLED)]
    reached, flags = held_against(shown, {POOLED: nothing}, energies)
    assert flags == []
    assert 1 <= reached["some"].over < 2e12
    assert reached["all"].over == 0


def test_without_a_ceiling_with_labels_nothing_bounds_whoever_reads_them():
    reached, flags = held_against([Shown("reads", errors(0, 0.1), LABELS)], {POOLED: errors(0)})
    assert (reached["reads"].bound, flags) == ("", [])


def test_targets_that_were_left_out_of_the_ceiling_are_left_out_here():
    bound = errors(0)
    bound[:40] = torch.nan
    had = errors(0)
    had[:40] = 1e-9
    reached, flags = held_against([Shown("a", had, POOLED)], {POOLED: bound})
    assert flags == []
    assert reached["a"].over == pytest.approx(0.0)


def test_many_attacks_at_their_ceiling_raise_few_flags():
    """Ten that are exactly as good as the ceiling, a hundred times: one in twenty at the most."""
    alarms = 0
    for trial in range(100):
        gaps = [errors(1000 * trial + attack) for attack in range(10)]
        bound = errors(1000 * trial + 999)
        shown = [Shown(str(attack), each, POOLED) for attack, each in enumerate(gaps)]
        alarms += bool(held_against(shown, {POOLED: bound})[1])
    assert alarms <= 12  # 5 of 100 are due, and 12 come by chance once in 250


def test_a_record_holds_all_that_a_ceiling_says():
    bound = Bound(
        {"mu": Quantity(1.5), POOLED: Quantity(2.0, (1.0, 3.0), "N = 101")},
        ("a prior",),
        ("a note",),
        vacuous=(POOLED,),
        tables=(Table("trend", ("n", "dB"), ((100.0, 2.0),)),),
    )
    proof = Proof.of(bound)
    assert Proof.model_validate_json(proof.model_dump_json()) == proof
    assert proof.quantities[POOLED].interval == (1.0, 3.0)
    assert proof.tables[0].rows == ((100.0, 2.0),)
    assert proof.vacuous == (POOLED,)
    assert Proof.of("no noise").reason == "no noise"
