"""What a dense first layer's gradient says of its inputs (InstaHide, lemma B.1)."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from views import BUDGET, SCALE, clothes, quiet, stream

from harness.api import Channel, Config, NotApplicable, View
from harness_plugins.attacks.firstlayer.attack import FirstLayer, one_input, several

IMAGES = clothes(24)


def dense(width=256):
    torch.manual_seed(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))


def gradients(model, rows):
    """Of one batch, of these images."""
    loss = cross_entropy(model(IMAGES.images[rows]), IMAGES.labels[rows])
    taken = torch.autograd.grad(loss, list(model.parameters()))
    return dict(zip((name for name, _ in model.named_parameters()), taken, strict=True))


def attacked(model, batches):
    each = [gradients(model, rows) for rows in batches]
    channels = {
        Channel.GRADIENTS: {name: torch.stack([g[name] for g in each]) for name in each[0]},
        Channel.MODEL: model,
    }
    view = View(
        channels=channels,
        granted=frozenset(channels),
        threat_model="fl-realistic",
        scale=SCALE,
        shape=(1, 28, 28),
        classes=10,
        device=torch.device("cpu"),
        rng=stream(use="attack"),
        protocol={"batch_size": len(batches[0]), "rounds": 1},
    )
    return FirstLayer(Config()).reconstruct(view, {}, BUDGET, quiet)


def decibels(found, truth):
    """Of the nearest answer to each image."""
    errors = torch.cdist(truth.flatten(1).double(), found.flatten(1).double()).square().amin(1)
    return 10 * (truth.flatten(1).double().square().sum(1) / errors.clamp(min=1e-30)).log10()


def test_single_images_come_back_as_they_were():
    found = attacked(dense(), [[row] for row in range(24)])
    assert found.batches.tolist() == list(range(24))
    assert float(decibels(found.images, IMAGES.images).min()) > 60


def test_of_a_batch_those_come_back_that_some_unit_answers_to_alone():
    found = attacked(dense(2048), [[0, 1, 2, 3], [4, 5, 6, 7]])
    assert found.batches.tolist() == [0] * 4 + [1] * 4
    assert float((decibels(found.images, IMAGES.images[:8]) > 60).double().mean()) >= 0.75


def test_entries_that_were_pruned_are_left_out():
    taken = gradients(dense(), [3])
    weight, bias = taken["1.weight"], taken["1.bias"]
    keep = torch.rand(weight.shape, generator=torch.Generator().manual_seed(0)) < 0.1
    found = one_input(weight * keep, bias)
    assert float(decibels(found[None], IMAGES.images[3:4])) > 60


def test_with_noise_all_units_are_worth_more_than_any_of_them():
    taken = gradients(dense(), [3])
    weight, bias = taken["1.weight"], taken["1.bias"]
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    noisy = weight + 0.3 * float(weight.abs().mean()) * noise
    strongest = int(bias.abs().argmax())
    one = noisy[strongest] / bias[strongest]
    truth = IMAGES.images[3:4]
    gain = decibels(one_input(noisy, bias)[None], truth) - decibels(one[None], truth)
    expected = 10 * (bias.square().sum() / bias[strongest].square()).log10()
    assert float(gain) == pytest.approx(float(expected), abs=1.0)


def test_a_batch_that_only_mixtures_tell_of_has_no_more_answers_than_units():
    weight = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    assert len(several(weight, torch.tensor([1.0, 1.0]), 5)) == 2


def test_a_model_that_begins_with_a_convolution_is_out_of_reach():
    model = nn.Sequential(nn.Conv2d(1, 4, 28), nn.Flatten(), nn.Linear(4, 10))
    with pytest.raises(NotApplicable, match="this model begins with Conv2d"):
        attacked(model, [[0]])
