"""Targets that the victim was not trained on: which they are, what leaves of them."""

import pytest
import torch
from small_fashion import BOARD, CPU, OWNER, same, splits, tiny

from harness.api import ReleaseKind, UsageError
from harness.running.attack import candidates
from harness.running.encoding import source_of
from harness.running.release import ReleaseProtocol, Stack, input_shape, release
from harness.running.samples import HELD_OUT, held_out, standardised
from harness.sandbox.rebuilding import restore
from harness.store.artifacts import below

DATA = splits()
TEN = held_out(DATA, 10)


def made(targets=None):
    return release(
        DATA,
        source_of(DATA, None, OWNER),
        Stack(),
        ReleaseKind.FEATURES,
        tiny(),
        ReleaseProtocol(),
        owner=OWNER,
        board=BOARD,
        device=CPU,
        held_out=targets,
    )


def test_the_judge_takes_the_first_test_images_for_the_private_ones():
    assert torch.equal(TEN.private.images, DATA.test.images[:10])
    assert torch.equal(TEN.private.labels, DATA.test.labels[:10])
    assert torch.equal(TEN.test.images, DATA.test.images[10:])
    assert TEN.public is DATA.public


@pytest.mark.parametrize(
    ("test", "asked", "found"), [(40, None, 40), (150, None, HELD_OUT), (9, 9, 9)]
)
def test_a_hundred_unless_a_number_is_named_or_there_are_fewer(test, asked, found):
    assert len(held_out(splits(test=test), asked).private) == found


@pytest.mark.parametrize(
    ("test", "asked", "message"),
    [
        (
            9,
            10,
            "10 held-out targets were asked for, and there are 9 test images; raise --test-size",
        ),
        (0, None, "some held-out targets were asked for, and there are 0 test images"),
    ],
)
def test_more_than_there_are_is_a_usage_error(test, asked, message):
    with pytest.raises(UsageError, match=message):
        held_out(splits(test=test), asked)


def test_features_are_h_of_the_held_out_images_in_their_order():
    out = made(TEN.private)
    h = restore(tiny(), input_shape(out), 10, below("feature_encoder.", out.tensors), cut=True)
    asked = standardised(DATA.test[:10], DATA.scale).images
    torch.testing.assert_close(out.tensors["features"], h(asked).detach())


def test_the_victim_is_trained_on_the_private_images_all_the_same():
    private, other = made(), made(TEN.private)
    assert same(private.secrets, other.secrets)
    assert private.facts["train_accuracy"] == other.facts["train_accuracy"]
    weights = [below("feature_encoder.", out.tensors) for out in (private, other)]
    assert same(*weights)
    assert [len(out.tensors["features"]) for out in (private, other)] == [24, 10]


def test_candidates_are_the_targets_among_other_test_images():
    mixed = candidates(TEN, OWNER)
    assert len(mixed.images) == 20
    assert torch.equal(mixed.images[mixed.truth], DATA.test.images[:10])
    decoys = torch.ones(20).index_fill(0, mixed.truth, 0).bool()
    shown = {image.numpy().tobytes() for image in mixed.images[decoys]}
    assert shown == {image.numpy().tobytes() for image in DATA.test.images[10:20]}
