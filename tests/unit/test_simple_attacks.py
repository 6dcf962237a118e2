"""`none`, `identity`, `nearest`, the pixel space and the threat models."""

import pytest
import torch
from views import MIXTURE, attack, clothes, released, snr, stream, view_of

from harness.api import Channel, Config, Samples
from harness_plugins.attacks.identity import Identity
from harness_plugins.attacks.nearest.search import Nearest
from harness_plugins.defenses.none import NoDefense
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix

PUBLIC = clothes(300, 1000)


def test_no_defense_releases_the_images_themselves():
    private = clothes(20)
    encoded = NoDefense(Config()).encode(private, PUBLIC, stream())
    assert torch.equal(encoded.images, private.images)
    assert torch.equal(encoded.labels.argmax(1), private.labels)
    assert encoded.labels.shape == (20, 10)
    assert torch.equal(encoded.secrets.sources, torch.arange(20).view(-1, 1))
    assert torch.equal(encoded.secrets.weights, torch.ones(20, 1))


def test_identity_brings_any_encoding_to_unit_energy():
    private = clothes(50)
    for tau in (1.0, 1e-4):
        found = attack(
            Identity(Config()), released(Singmix(SingmixConfig(tau=tau)), private, PUBLIC)
        )
        assert float(found.images.square().mean()) == pytest.approx(1, rel=1e-4)
        assert torch.equal(found.rows, torch.arange(50))


def test_identity_reads_an_undefended_release():
    private = clothes(200)
    view = released(NoDefense(Config()), private, PUBLIC)
    found = attack(Identity(Config()), view)
    truth = private.images[view.sources[0, found.rows, 0]]
    assert float(snr(found.images, truth).min()) > 15


def test_identity_resizes_an_upsampled_release():
    view = released(Singmix(SingmixConfig(resolution=64)), clothes(10), PUBLIC)
    assert attack(Identity(Config()), view).images.shape == (10, 1, 28, 28)


def test_nearest_finds_the_public_image_that_a_mixture_holds():
    private = clothes(40)
    public = Samples(
        torch.cat([PUBLIC.images, private.images]), torch.cat([PUBLIC.labels, private.labels])
    )
    view = released(Singmix(SingmixConfig(radius=0)), private, public)
    found = attack(Nearest(Config()), view)
    parts = private.images[view.sources[0]]
    gaps = (found.images.unsqueeze(1) - parts).flatten(2).square().sum(2).min(1).values
    assert float((gaps == 0).float().mean()) > 0.8


def test_nearest_looks_beyond_its_first_block_as_one_search_would(monkeypatch):
    view = released(NoDefense(Config()), clothes(30), PUBLIC, without=MIXTURE)
    whole = attack(Nearest(Config()), view).images
    monkeypatch.setattr("harness_plugins.attacks.nearest.search._BLOCK", 7)
    assert torch.equal(attack(Nearest(Config()), view).images, whole)
    queries, pool = view.encodings[0].flatten(1), PUBLIC.images.flatten(1)
    queries, pool = queries - pool.mean(0), pool - pool.mean(0)
    cosines = torch.cosine_similarity(queries[:, None], pool[None], dim=2)
    assert torch.equal(whole, PUBLIC.images[cosines.argmax(1)])


def test_nearest_compares_features_with_features():
    private = clothes(10)
    halves = torch.nn.Sequential(torch.nn.AvgPool2d(2), torch.nn.Flatten())
    public = Samples(
        torch.cat([PUBLIC.images, private.images]), torch.cat([PUBLIC.labels, private.labels])
    )
    channels = {
        Channel.FEATURES: halves(private.images),
        Channel.FEATURE_ENCODER: halves,
        Channel.PUBLIC: public,
    }
    found = attack(Nearest(Config()), view_of(channels, private))
    assert torch.equal(found.images, private.images)
