"""What a dense first layer's gradient says of its inputs (InstaHide, lemma B.1)."""

import copy

import pytest
import torch
from small_fashion import built_in
from torch import nn
from torch.nn.functional import cross_entropy
from views import BUDGET, SCALE, clothes, quiet, stream

from harness.api import Channel, Config, NotApplicable, View
from harness_plugins.attacks.firstlayer.attack import FirstLayer, one_input, several, steps

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
    view = view_of(channels, batch_size=len(batches[0]), rounds=1)
    return FirstLayer(Config()).reconstruct(view, {}, BUDGET, quiet)


def view_of(channels, **protocol):
    return View(
        channels=channels,
        granted=frozenset(channels),
        threat_model="fl-realistic",
        scale=SCALE,
        shape=(1, 28, 28),
        classes=10,
        device=torch.device("cpu"),
        rng=stream(use="attack"),
        protocol=protocol,
    )


def updated(model, rows, size, count, lr=0.01):
    """By how much `count` steps move the weights, each on the next `size` of these images."""
    party = copy.deepcopy(model)
    sgd = torch.optim.SGD(party.parameters(), lr=lr)
    for step in range(count):
        chosen = [rows[(step * size + k) % len(rows)] for k in range(size)]
        sgd.zero_grad()
        cross_entropy(party(IMAGES.images[chosen]), IMAGES.labels[chosen]).backward()
        sgd.step()
    before = dict(model.named_parameters())
    return {n: (p - before[n]).detach() for n, p in party.named_parameters()}


def attacked_updates(model, parties, *, size=1, count=5):
    each = [updated(model, rows, size, count) for rows in parties]
    channels = {
        Channel.UPDATES: {name: torch.stack([u[name] for u in each]) for name in each[0]},
        Channel.MODEL: model,
    }
    told = {"local_steps": count, "local_lr": 0.01, "local_images": len(parties[0])}
    view = view_of(channels, batch_size=size, rounds=1, **told)
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


# ---------------------------------------------------------------- updates


@pytest.mark.parametrize("count", [1, 5, 20])
def test_an_update_of_one_image_tells_it_after_any_number_of_steps(count):
    found = attacked_updates(dense(), [[row] for row in range(8)], count=count)
    assert found.batches.tolist() == list(range(8))
    assert float(decibels(found.images, IMAGES.images[:8]).min()) > 60


def test_of_several_images_an_update_tells_those_that_some_unit_answers_to_alone():
    found = attacked_updates(dense(2048), [[0, 1, 2, 3], [4, 5, 6, 7]], count=8)
    assert found.batches.tolist() == [0] * 4 + [1] * 4
    assert float((decibels(found.images, IMAGES.images[:8]) > 60).double().mean()) >= 0.5


def planted(**options):
    torch.manual_seed(5)
    return built_in("planted", **{"width": 4, "bins": 512, **options}).build((1, 28, 28), 10)


@pytest.mark.parametrize("count", [1, 5, 20])
def test_a_planted_layer_tells_the_images_of_a_batch_after_any_number_of_steps(count):
    parties = [list(range(8)), list(range(8, 16))]
    found = attacked_updates(planted(), parties, size=8, count=count)
    assert float((decibels(found.images, IMAGES.images[:16]) > 60).double().mean()) >= 0.8


def test_a_planted_layer_in_which_images_share_bins_tells_mixtures():
    images = attacked_updates(planted(bins=2), [list(range(8))], size=8).images
    assert len(images) <= 2
    assert float((decibels(images, IMAGES.images[:8]) > 20).double().mean()) < 0.2


def test_a_planted_layer_changes_next_to_nothing_of_what_follows():
    model = planted()
    behind = torch.nn.Sequential(*list(model.children())[1:])
    with torch.no_grad():
        before, after = behind(IMAGES.images), model(IMAGES.images)
    assert float((before - after).abs().max()) < 0.05 * float(before.abs().max())


def test_steps_tell_units_apart_that_answer_to_ever_fewer_images():
    images, thresholds = torch.tensor([[1.0, 0.0], [0.0, 3.0], [2.0, 4.0]]), torch.tensor([0, 1, 2])
    answers = images.mean(1)[None] > thresholds[:, None]  # the last two images, then the last
    pulls = torch.tensor([0.5, -1.0, 2.0])
    weight, bias = (answers * pulls) @ images, (answers * pulls).sum(1)
    torch.testing.assert_close(steps(weight) / steps(bias)[:, None], images)
