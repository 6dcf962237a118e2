"""No edit of what a ceiling says, or of what was reached of it, goes unseen.

The record's numbers come from the code that makes them; each forgery is sealed again.
"""

import json
import re

import pytest
import torch
from board_records import as_today, record, used
from views import stream

from harness.scoring.ceilings import Proof, Proven, Shown, compared
from harness.store.record import parse_record
from harness.submissions import checks
from harness.submissions.again import outside
from harness.submissions.siblings import disagreements
from harness.submissions.sums import faults

POOLED, LABELS = "pooled_snr_db", "pooled_snr_db_labels"
TARGETS = 40
CEILINGS = {"exchangeable": used("exchangeable", "ceilings")}


def decibels(energies, errors):
    return float(10 * torch.log10(energies.sum() / errors.sum()))


def bounded(attack="linear", better=1.0, seed=0, labels=False):
    """A record of an attack whose errors are so many times those that bound it."""
    generator = torch.Generator().manual_seed(seed)
    energies = 4 + torch.rand(TARGETS, generator=generator, dtype=torch.float64)
    bounds = {
        name: share * (0.8 + 0.4 * torch.rand(TARGETS, generator=generator, dtype=torch.float64))
        for name, share in ((POOLED, 1.0), (LABELS, 0.7))
    }
    name = LABELS if labels else POOLED
    errors = better * bounds[name]
    reached, flags = compared([Shown(attack, errors, name)], bounds, energies, stream())
    quantities = {
        each: Proven(value=value, interval=(value - 0.2, value + 0.2))
        for each, allowed in bounds.items()
        for value in (decibels(energies, allowed),)
    }
    proof = Proof(quantities=quantities, reached=reached, assumptions=("a prior",))
    scores = 10 * torch.log10(energies / errors)
    return (
        record(
            "mixup[k=2]",
            attack,
            guess=[0.0] * TARGETS,
            gains=scores.tolist(),
            channels_used=("encodings", *(["labels"] if labels else []), "public"),
            ceilings={"exchangeable": proof},
            ceiling_plugins=CEILINGS,
            flags=tuple(flag.name for flag in flags),
        )
        .model_copy(update={"flags": tuple(flags)})
        .sealed()
    )


def edited(of, change):
    values = json.loads(of.json_text())
    change(values)
    return parse_record(values).sealed()


def proof(values):
    return values["ceilings"]["exchangeable"]


def moved(values, by, name=POOLED):
    """A ceiling shifted with its interval, as whoever raises one would."""
    each = proof(values)["quantities"][name]
    each["value"] += by
    each["interval"] = [end + by for end in each["interval"]]


def reached(values, by, over=None):
    each = proof(values)["reached"]["linear"]
    each["value"] += by
    each["interval"] = [end + by for end in each["interval"]]
    if over is not None:
        each["over"] = over


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("better", [1.3, 1.0, 0.7])
def test_what_was_computed_agrees(better, labels):
    assert faults(bounded(better=better, labels=labels)) == []


EDITS = {
    r"0.79\d* dB below .*, and 1.79\d* by pooled_snr_db": lambda v: moved(v, 1.0),
    r"dB below .*, and -0.2\d* by pooled_snr_db": lambda v: moved(v, -1.0),
    r"4.99\d* is outside of its interval|is outside of its interval": lambda v: proof(v)[
        "quantities"
    ][POOLED].update(interval=[90.0, 91.0]),
    "dB below by its squared errors": lambda v: reached(v, -0.5),
    "is outside of its scores by image": lambda v: reached(v, 30.0),
    "what it reached, .* is outside of its interval": lambda v: proof(v)["reached"][
        "linear"
    ].update(interval=[0.0, 0.1]),
    "the record says nothing": lambda v: proof(v)["reached"]["linear"].update(bound="", over=None),
    "the record says 'pooled_snr_db_labels'": lambda v: proof(v)["reached"]["linear"].update(
        bound=LABELS
    ),
    "has a bound and no gap": lambda v: proof(v)["reached"]["linear"].update(over=None),
    "which the ceiling does not have": lambda v: proof(v)["quantities"].pop(POOLED),
    "numbers and a reason": lambda v: proof(v).update(reason="no noise"),
    "it has numbers and a reason why it has none, or neither": lambda v: proof(v).update(
        quantities={}, reached={}
    ),
    "says that mu is vacuous": lambda v: proof(v).update(vacuous=["mu"]),
}


@pytest.mark.parametrize("told", EDITS)
def test_an_edit_is_seen(told):
    found = faults(edited(bounded(better=1.2), EDITS[told]))
    assert any(re.search(told, fault) for fault in found), found


def test_who_is_surely_above_and_not_flagged_is_told_of():
    true = bounded(better=0.7)
    assert [flag.name for flag in true.flags] == ["above_ceiling"]
    hidden = edited(true, lambda v: v.update(flags=[]))
    assert any("surely above pooled_snr_db and not flagged" in fault for fault in faults(hidden))


def test_a_ceiling_raised_over_an_attack_with_its_gap_still_has_its_flag():
    """Whoever also edits the gap is told of by the flag that no longer follows."""

    def raise_all(values):
        moved(values, 2.0)
        old = proof(values)["reached"]["linear"]["over"]
        proof(values)["reached"]["linear"]["over"] = (1 + old) * 10**0.2 - 1

    found = faults(edited(bounded(better=0.7), raise_all))
    assert any("nothing that was reached bears out the flag above_ceiling" in f for f in found)


def test_a_flag_that_nothing_bears_out_is_told_of():
    message = "'linear' has a squared error 30.0% below what pooled_snr_db allows any attack"
    flag = {"name": "above_ceiling", "message": message}
    found = faults(edited(bounded(better=1.2), lambda v: v["flags"].append(flag)))
    assert any("nothing that was reached bears out" in fault for fault in found)


def lowered(values):
    """A ceiling and its gap together: the record's own numbers agree."""
    moved(values, -0.1)
    old = proof(values)["reached"]["linear"]["over"]
    proof(values)["reached"]["linear"]["over"] = (1 + old) * 10**-0.01 - 1


SIBLINGS = {
    "pooled_snr_db is .* and ": lowered,
    "pooled_snr_db_labels is .*, or its interval is another": lambda v: proof(v)["quantities"][
        LABELS
    ].update(interval=[0.0, 50.0]),
    "only one of them has a reason": lambda v: proof(v).update(
        reason="no noise", quantities={}, reached={}
    ),
    "only one of them says that it is vacuous": lambda v: proof(v).update(vacuous=[POOLED]),
}


@pytest.mark.parametrize("told", SIBLINGS)
def test_records_of_one_release_have_the_same_ceilings(told):
    true, other = bounded(better=1.2), bounded("lmmse", better=1.2)
    assert [*disagreements([true, other])] == []
    lie = edited(true, SIBLINGS[told])
    assert faults(lie) == [], "its own numbers agree"
    (found,) = disagreements([lie, other])
    assert re.search(told, found.told)


def test_records_of_one_release_prove_the_same_budget():
    def proven(attack, epsilon):
        told = {"guarantee.epsilon": epsilon, "guarantee.delta": 1e-5}
        sums = used("mixup[k=2]").model_copy(update={"resolved": told})
        return record("mixup[k=2]", attack).model_copy(update={"defense": (sums,)}).sealed()

    assert [*disagreements([proven("linear", 2.0), proven("lmmse", 2.0)])] == []
    (found,) = disagreements([proven("linear", 1.0), proven("lmmse", 2.0)])
    assert found.told == "'mixup' turned out with guarantee.epsilon 1.0 and 2.0"


@pytest.mark.parametrize("change", SIBLINGS.values())
def test_running_again_tells_another_ceiling(change):
    """Also where all scores are the same: a ceiling that was edited is no rounding."""
    true = bounded(better=1.2)
    assert outside(true, true) == []
    told = outside(edited(true, change), true)
    assert any(each.startswith("ceiling 'exchangeable': ") for each in told), told


def test_running_again_tells_what_was_reached_and_who_reached_nothing():
    true = bounded(better=1.2)
    less = edited(true, lambda v: reached(v, -2.0))
    assert [each for each in outside(less, true) if each.startswith("what 'linear' reached of")]
    nobody = edited(true, lambda v: proof(v).update(reached={}))
    assert outside(true, nobody) == ["ceiling 'exchangeable': nothing is reached by 'linear'"]
    none = edited(true, lambda v: v.update(ceilings={}))
    assert outside(true, none) == ["the ceiling 'exchangeable' says nothing any more"]


def test_what_is_not_computed_again_is_said():
    assert [*checks.of_ceilings(bounded())] == [
        ("ok", "its ceilings were not computed again, which --rerun does")
    ]
    assert [*checks.of_ceilings(record())] == []
    bare = record(ceilings={"dp": Proof(reason="no noise")})
    assert [*checks.of_ceilings(bare)] == []


def test_a_record_without_the_ceilings_that_it_asked_for_is_broken():
    asked = {"ceiling": True, "attack": "linear"}
    bare = record("singmix[tau=1e-2,noise=gaussian,calibrate=public]", "linear", asked=asked)
    bare = as_today(bare).model_copy(update={"ceilings": {}})
    assert [*checks.of_asked_ceilings(bare)] == [
        ("broken", "it was asked for the ceiling 'dp' and does not have it"),
        ("broken", "it was asked for the ceiling 'exchangeable' and does not have it"),
    ]
    both = dict.fromkeys(("dp", "exchangeable"), Proof(reason="no noise"))
    assert [*checks.of_asked_ceilings(bare.model_copy(update={"ceilings": both}))] == []
