"""`normchannel`: weights from norms."""

import math

import pytest
import torch
from views import MIXTURE, attack, clothes, quiet, released, view_of

from harness.api import Channel, Config, Samples
from harness_plugins.attacks.normchannel import NormChannelConfig
from harness_plugins.attacks.normchannel.norms import Calibration, NormChannel, norms_of
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.noise import NoiseConfig
from harness_plugins.defenses.noise.encode import Noise
from harness_plugins.defenses.none import NoDefense
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix
from harness_plugins.mixing import mix

PRIVATE, PUBLIC = clothes(400), clothes(600, 1000)


def weights_read(defense, **options):
    """What the attack says, and the truth, both [rounds · n]; with its diagnostics."""
    view = released(defense, PRIVATE, PUBLIC, **options)
    truth = view.weights[:, :, 0].flatten()
    blind = {c: v for c, v in view.channels.items() if c not in MIXTURE}
    found = attack(NormChannel(NormChannelConfig(exercise=3000)), view_of(blind, PRIVATE))
    assert found.images is None
    assert torch.equal(found.rows, torch.arange(len(truth)))
    return found.claims["weights"], truth, found.diagnostics


def error(found, truth):
    return float((found - truth).abs().mean())


@pytest.mark.parametrize("tau", [1e-4, 1e-6])
def test_the_error_is_what_the_noise_along_the_mixture_leaves(tau):
    defense = Singmix(SingmixConfig(tau=tau))
    found, truth, said = weights_read(defense)
    view = released(defense, PRIVATE, PUBLIC)
    mixtures = mix(PRIVATE.images, view.sources[0], view.weights[0]).flatten(1)
    # ||x~|| = (1 - w) r + <u, s> for a random unit vector u of 784 values, s the mixture.
    along = mixtures.norm(dim=1).mean() * math.sqrt(2 / math.pi / 784)
    assert error(found, truth) == pytest.approx(float(along) / radius_of(view), rel=0.15)
    assert said["predicted_weight_error"] == pytest.approx(error(found, truth), rel=0.2)


def radius_of(view):
    return view.encoder.config.radius


def test_gaussian_noise_hides_weights_a_little_better():
    sphere, truth, _ = weights_read(Singmix(SingmixConfig(tau=1e-4)))
    normal, truth_too, _ = weights_read(Singmix(SingmixConfig(tau=1e-4, noise="gaussian")))
    # ||e|| of d values deviates by r / sqrt(2 d), and with it (1 - w).
    assert error(normal, truth_too) == pytest.approx(0.5 * math.sqrt(2 / math.pi / 1568), rel=0.15)
    assert error(sphere, truth) < error(normal, truth_too) / 20


def test_every_round_is_read():
    found, truth, _ = weights_read(Singmix(SingmixConfig(tau=1e-4)), rounds=3)
    assert len(found) == 1200
    assert error(found, truth) < 3e-4


def test_labels_and_norm_tell_which_class_is_the_images_own():
    assert weights_read(Singmix(SingmixConfig(tau=1e-4)))[2]["primary_class_sure"] > 0.95
    coarse = weights_read(Singmix(SingmixConfig(tau=1e-4, noise="gaussian")))[2]
    assert 0.5 < coarse["primary_class_sure"] < 0.97
    unlabelled = weights_read(Singmix(SingmixConfig()), without=(Channel.LABELS,))[2]
    assert "primary_class_sure" not in unlabelled


@pytest.mark.parametrize("defense", [NoDefense(Config()), Noise(NoiseConfig(alpha=0.25))])
def test_a_weight_that_never_changes_is_known(defense):
    found, truth, said = weights_read(defense)
    assert error(found, truth) < 1e-6
    assert "primary_class_sure" not in said


def test_a_norm_that_tells_nothing_gives_the_mean_weight():
    found, truth, _ = weights_read(Singmix(SingmixConfig(radius=0)))
    assert abs(float(found.mean()) - 0.5) < 0.02
    assert error(found, truth) == pytest.approx(error(torch.tensor(0.5), truth), rel=0.05)


def test_the_first_of_many_weights_is_meant():
    found, truth, _ = weights_read(InstaHide(InstaHideConfig(k=4, augment="none")))
    assert error(found, truth) <= 1.05 * error(truth.mean(), truth)


def test_a_calibration_survives_storage_and_norms_it_never_met():
    norms = torch.linspace(10, 20, 500).double()
    known = Calibration.fit(norms, (1 - norms / 40).view(-1, 1), degree=5)
    again = Calibration.of(known.stored())
    asked = torch.tensor([5.0, 12.0, 30.0]).double()
    assert torch.allclose(again.read(asked), torch.tensor([0.75, 0.7, 0.5]).double(), atol=1e-6)
    flat = Calibration.fit(torch.ones(50).double(), torch.ones(50, 1), degree=5)
    assert float(flat.read(torch.tensor([3.0]).double())) == 1


def test_norms_are_those_of_features_of_any_shape(monkeypatch):
    rows = torch.randn(9, 5, 3, 2)
    monkeypatch.setattr("harness_plugins.attacks.normchannel.norms._BLOCK", 4)
    assert torch.allclose(norms_of(rows), rows.flatten(1).double().norm(dim=1))


def test_an_empty_public_pool_is_refused():
    view = released(NoDefense(Config()), PRIVATE, PUBLIC)
    empty = Samples(PUBLIC.images[:0], PUBLIC.labels[:0])
    poor = view_of({**view.channels, Channel.PUBLIC: empty}, PRIVATE)
    with pytest.raises(Exception, match="public pool is empty"):
        NormChannel(NormChannelConfig()).prepare(poor, None, quiet)
