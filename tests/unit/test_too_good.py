"""What is too good to be true is flagged and does not count; what is merely good is neither."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from board_records import board, record, utility

from harness.results.build import board_view
from harness.results.material import Kept, Material, doubted
from harness.results.view import RowView
from harness.scoring.flags import accuracy_flags, beyond_noise, public_images
from harness.scoring.summary import proportion_interval
from harness.scoring.utility import Accuracy, Utility
from harness.store.record import RunRecord
from harness.submissions.sums import faults


def names(flags: list) -> list[str]:
    return [flag.name for flag in flags]


def asked(**right: int) -> Utility:
    """Accuracies of so many of 100 images, by the way that was asked; without protection 90."""
    accuracies = {
        name: Accuracy(mean=k / 100, interval=proportion_interval(k, 100), trainings=(k / 100,))
        for name, k in right.items()
    }
    return utility(80).model_copy(update={"accuracies": accuracies})


@pytest.mark.parametrize(("right", "reference"), [(80, 90), (66, 60), (99, 95), (99, 12)])
def test_an_accuracy_that_there_may_be_is_not_flagged(right: int, reference: int) -> None:
    """Mixing may teach more than plain images do, and who learned nothing is no reference."""
    assert accuracy_flags(utility(right, reference)) == []


def test_no_release_teaches_much_more_than_the_images_themselves() -> None:
    assert names(accuracy_flags(utility(100, 59))) == ["beyond_unprotected"]


def test_an_inference_may_be_better_and_not_the_only_one_that_knows() -> None:
    assert accuracy_flags(asked(plain=60, encoded=75)) == []
    assert accuracy_flags(asked(network=80, encoded=60)) == []
    assert names(accuracy_flags(asked(plain=20, encoded=80))) == ["inference_outdoes"]


def test_noise_leaves_so_much_and_knowing_images_a_little_more() -> None:
    guesses, left = torch.full((40,), 2.0), torch.full((40,), -10.0)
    near, exact = torch.full((40,), 15.0), torch.full((40,), 120.0)
    assert beyond_noise("good", near, guesses, left) == []
    assert names(beyond_noise("looks_up", exact, guesses, left)) == ["beyond_noise"]
    assert beyond_noise("exact", exact, guesses, torch.full((40,), 110.0)) == []
    twins = torch.where(torch.arange(40) < 4, exact, near)
    assert beyond_noise("nearest", twins, guesses, left) == []


def test_a_public_image_is_told_from_one_that_was_reconstructed() -> None:
    public = torch.rand(30, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    found = torch.ones(10, dtype=torch.bool)
    same = SimpleNamespace(images=public[5:15] + 1e-4, found=found)
    mixed = SimpleNamespace(images=(public[5:15] + public[15:25]) / 2, found=found)
    assert names(public_images(same, public)) == ["public_images"]
    assert public_images(mixed, public) == []


def seen(defense: RunRecord, **more: tuple[str, ...]) -> RowView:
    """The row of `mixup[k=2]` beside the reference."""
    own = board(attacks=("linear",), **more)
    kept = [Kept(each, doubted=doubted(each, own)) for each in (record("none"), defense)]
    view = board_view(Material(own, tuple(kept)))
    return next(row for row in view.tracks[0].rows if row.defense == "mixup[k=2]")


def test_what_is_too_good_has_no_rank_until_it_is_confirmed() -> None:
    flagged = record("mixup[k=2]", flags=["beyond_unprotected"], utility=utility(100, 59))
    unranked = seen(flagged)
    assert unranked.rank == {}
    assert {"beyond_unprotected", "doubted"} <= {flag.name for flag in unranked.flags}
    assert seen(flagged, confirmed=(flagged.id,)).rank == {"snr_db": 1}


def test_what_a_hidden_rerun_did_not_bear_out_has_no_rank() -> None:
    honest = record("mixup[k=2]")
    assert seen(honest).rank == {"snr_db": 1}
    assert seen(honest, refuted=(honest.id,)).rank == {}


def test_a_record_has_the_flags_that_its_accuracy_asks_for() -> None:
    bare = record("mixup[k=2]", utility=utility(100, 59))
    flagged = record("mixup[k=2]", utility=utility(100, 59), flags=["beyond_unprotected"])
    said = "its accuracy {} the flag beyond_unprotected"
    assert said.format("asks for") in faults(bare)
    assert said.format("asks for") not in faults(flagged)
    assert said.format("does not bear out") in faults(record(flags=["beyond_unprotected"]))
