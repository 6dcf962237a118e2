"""Mixup against algorithm 1 of the InstaHide paper."""

import pytest
import torch
from pydantic import ValidationError
from torch.nn.functional import one_hot
from views import clothes, stream

from harness.api import CellFailed, Samples
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup


def encode(samples, seed=0, **config):
    return Mixup(MixupConfig(**config)).encode(samples, samples, stream(use="owner", seed=seed))


@pytest.mark.parametrize("k", [2, 4, 6])
def test_encodings_and_labels_are_the_secret_mixture(k):
    private = clothes(60)
    encoded = encode(private, k=k)
    weights, sources = encoded.secrets.weights, encoded.secrets.sources
    mixed = sum(weights[:, j].view(-1, 1, 1, 1) * private.images[sources[:, j]] for j in range(k))
    torch.testing.assert_close(encoded.images, mixed)
    hard = one_hot(private.labels, 10).float()
    soft = sum(weights[:, j].view(-1, 1) * hard[sources[:, j]] for j in range(k))
    torch.testing.assert_close(encoded.labels, soft)
    torch.testing.assert_close(encoded.labels.sum(1), torch.ones(60))


def test_every_image_is_primary_once_and_never_mixed_with_itself():
    sources = encode(clothes(60)).secrets.sources
    assert torch.equal(sources[:, 0], torch.arange(60))
    assert all(len(set(row)) == 4 for row in sources.tolist())


def test_weights_keep_their_bound():
    weights = encode(clothes(2000), k=2, max_weight=0.55).secrets.weights
    assert 0.54 < float(weights.max()) <= 0.55
    assert float(weights.min()) >= 0.449


def test_rounds_are_mixed_afresh():
    first, second = (encode(clothes(60), seed).secrets for seed in (0, 1))
    assert not torch.equal(first.weights, second.weights)
    assert not torch.equal(first.sources, second.sources)


def test_feature_maps_are_mixed_alike():
    maps = Samples(torch.randn(12, 5, 3, 2), torch.arange(12) % 10)
    assert encode(maps).images.shape == (12, 5, 3, 2)


def test_encodings_are_the_same_on_any_number_of_threads():
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        results.append(encode(clothes(700)).images)
    torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_fewer_images_than_a_mixture_needs_are_refused():
    with pytest.raises(CellFailed, match="k=4"):
        encode(clothes(3))


@pytest.mark.parametrize(
    ("wrong", "bound"),
    [
        ({"k": 1}, "greater than or equal to 2"),
        ({"k": 4, "max_weight": 0.25}, "1/k = 0.25"),
        ({"k": 2, "max_weight": 0.4}, "1/k = 0.5"),
        ({"max_weight": 1.1}, "less than or equal to 1"),
        ({"max_weight": float("nan")}, "finite"),
        ({"weight": 0.5}, "not permitted"),
    ],
)
def test_values_that_cannot_be_are_refused(wrong, bound):
    with pytest.raises(ValidationError, match=bound):
        MixupConfig(**wrong)
