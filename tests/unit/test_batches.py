"""What is claimed of batches of gradients, and how images are told apart within them."""

from dataclasses import fields, replace

import pytest
import torch
from small_fashion import BOARD, CPU, splits
from torch.nn.functional import one_hot

from harness.api import AssetFolder, CellFailed, Reconstruction, Scene
from harness.sandbox.jobs import pack, unpack
from harness.scoring.findings import BatchFacts, batch_findings
from harness.scoring.judgement import Judge
from harness_plugins.metrics import pixelwise
from harness_plugins.metrics.pixelwise.scores import Mse

DATA = splits()
TRUTH = DATA.private.standardised(DATA.scale).images
GROUPS = torch.tensor([[0, 1], [2, 3]])
SPEC = next(spec for spec in pixelwise.harness_metrics() if spec.name == "mse")
SCENE = Scene(
    DATA.scale, CPU, AssetFolder({}), DATA.public.images, DATA.public, DATA.private.labels, 10
)


def judged(images, batches, groups=GROUPS, targets=4):
    found = Reconstruction(images=images, batches=torch.tensor(batches))
    metrics = {"mse": (SPEC, Mse(SCENE))}
    return Judge(DATA, targets, metrics, BOARD, CPU).judge(found, groups=groups)


def test_a_reconstruction_is_stored_whole():
    tensors = {"images", "targets", "rows", "batches"}
    whole = Reconstruction(
        **{name: torch.arange(3) for name in tensors},
        claims={"weights": torch.rand(3)},
        diagnostics={"loss": 0.5},
    )
    again = unpack(pack(whole), {"loss": 0.5})
    assert {field.name for field in fields(Reconstruction)} == tensors | {"claims", "diagnostics"}
    for name in tensors:
        assert torch.equal(getattr(again, name), getattr(whole, name))
    assert torch.equal(again.claims["weights"], whole.claims["weights"])


def test_images_are_matched_one_to_one_within_their_batch():
    swapped = judged(TRUTH[[1, 0, 2, 3]], [0, 0, 1, 1])
    assert swapped.per_image["mse"].max() < 1e-9
    assert (swapped.unnamed, swapped.grouped) == (4, True)


def test_an_image_of_another_batch_is_not_matched_with_its_truth():
    wrong = judged(TRUTH[[2, 1, 0, 3]], [0, 0, 1, 1])
    assert (wrong.per_image["mse"] > 0.01).tolist() == [True, False, True, False]


def test_nulls_are_told_as_much_of_the_order_as_the_attack():
    told = judged(TRUTH[:4].flip(0), [1, 1, 0, 0]).privacy["mse"]
    named = judged(TRUTH[:4], [0, 1, 2, 3], torch.arange(4).view(4, 1)).privacy["mse"]
    assert told.nulls["random_public"] < named.nulls["random_public"]
    assert told.nulls["class_mean"] <= named.nulls["class_mean"]
    assert told.nulls["mean_image"] == named.nulls["mean_image"]


def test_a_batch_of_one_names_its_image():
    found = judged(TRUTH[[0, 2]], [0, 2], torch.arange(4).view(4, 1))
    assert found.unnamed == 0
    assert found.found.tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("images", "batches", "groups", "message"),
    [
        (3, [0, 0, 0], GROUPS, "3 images of one batch; batches hold 2"),
        (2, [0, 2], GROUPS, "`batches` from 0 to 2; they count from 0 to 1"),
        (2, [0, 1], None, "no gradients or updates to count"),
    ],
)
def test_batches_that_cannot_be_are_refused(images, batches, groups, message):
    with pytest.raises(CellFailed, match=message):
        judged(TRUTH[:images], batches, groups)


MEAN = DATA.public.standardised(DATA.scale).images.mean(0)
FACTS = BatchFacts(
    inputs=TRUTH[:4].view(2, 2, 1, 28, 28),
    labels=torch.tensor([[3, 3], [1, 7]]),
    classes=10,
    guess=MEAN,
    stream=BOARD,
)


def labels(*guess):
    return {"batch_labels": one_hot(torch.tensor(guess), 10).float()}


@pytest.mark.parametrize(
    ("guess", "share"),
    [(([3, 3], [7, 1]), 1.0), (([3, 1], [7, 7]), 0.5), (([0, 1], [2, 3]), 0.0)],
)
def test_labels_are_counted_with_their_repeats_in_any_order(guess, share):
    finding = batch_findings(labels(*guess), FACTS)["label_accuracy"]
    assert finding.value == share
    assert finding.chance == pytest.approx(0.5 * (1 / 10 + 2 / 10))


def test_spreading_guesses_over_classes_is_the_chance_of_large_batches():
    facts = replace(FACTS, labels=torch.tensor([[*range(10), 0, 0]]), inputs=TRUTH[:12][None])
    claim = one_hot(facts.labels, 10).float()
    finding = batch_findings({"batch_labels": claim}, facts)["label_accuracy"]
    assert finding.value == 1
    assert finding.chance == pytest.approx((10 + 2 * 1 / 10) / 12)


def test_batches_of_which_nothing_is_claimed_are_left_out():
    claim = labels([3, 3], [7, 1])["batch_labels"]
    claim[1] = torch.nan
    finding = batch_findings({"batch_labels": claim}, FACTS)["label_accuracy"]
    assert (finding.value, finding.n) == (1.0, 1)
    assert batch_findings({"batch_labels": claim * torch.nan}, FACTS) == {}


def test_a_guess_is_worth_what_the_mean_public_image_is():
    told = MEAN.expand_as(FACTS.inputs)
    finding = batch_findings({"inputs": told}, FACTS)["input_snr_db"]
    assert finding.value == pytest.approx(max(0.0, finding.chance), abs=1e-4)
    assert finding.chance > 1


def test_inputs_are_matched_within_batches_and_zeros_score_nothing():
    swapped = FACTS.inputs.flip(1)
    assert batch_findings({"inputs": swapped}, FACTS)["input_snr_db"].value == 120
    nothing = torch.zeros_like(swapped)
    assert batch_findings({"inputs": nothing}, FACTS)["input_snr_db"].value == pytest.approx(0)


def test_claims_of_another_shape_are_refused():
    with pytest.raises(CellFailed, match="batch_labels of shape"):
        batch_findings({"batch_labels": torch.zeros(2, 3, 10)}, FACTS)
