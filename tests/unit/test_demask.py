"""Signs under a mask, guessed from what public mixtures look like."""

import pytest
import torch
from sign_views import PUBLIC, masked, prepared
from views import MIXTURE, attack, clothes, released, stream

from harness.api import CellFailed, Encoder
from harness_plugins.attacks.demask import DemaskConfig, harness_attacks
from harness_plugins.attacks.demask.attack import Demask
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix
from harness_plugins.mixing import mix
from harness_plugins.signs.demasker import Demasker
from harness_plugins.signs.exercise import encode, hides_signs, mixtures_of

(SPEC,) = harness_attacks()
SMALL = {"base": 8, "images": 900, "epochs": 3}


def demask(view, **options):
    config = DemaskConfig(**{**SMALL, **options})
    return attack(Demask(config), prepared(view, SPEC, config))


def mixtures(view):
    return mix(clothes(view.n_private).images, view.sources[0], view.weights[0])


def right(found, view):
    return float((found.claims["signs"] * mixtures(view) > 0).float().mean())


@pytest.mark.parametrize("method", ["regression", "gan"])
def test_most_signs_come_back_where_chance_is_a_half(method):
    view = masked(k=2)
    found = demask(view, method=method)
    truth = mixtures(view)
    constant = max(float((truth > 0).float().mean()), float((truth < 0).float().mean()))
    assert right(found, view) > max(0.75, constant + 0.03)
    assert abs(found.diagnostics["public_sign_accuracy"] - right(found, view)) < 0.05


def test_claims_and_images_are_of_the_rows_of_the_first_round():
    found = demask(masked(40, rounds=3, k=2, without=MIXTURE))
    assert torch.equal(found.rows, torch.arange(40))
    assert found.claims["signs"].shape == found.images.shape == (40, 1, 28, 28)
    assert set(found.claims["signs"].unique().tolist()) == {-1, 1}


def test_an_encoding_without_a_mask_is_its_own_mixture():
    view = released(Mixup(MixupConfig(k=2)), clothes(40), PUBLIC)
    assert right(demask(view), view) == 1.0


def test_the_variance_says_how_wrong_the_mixtures_are():
    view = masked(k=2)
    config = DemaskConfig(**SMALL)
    demasker = Demasker.of(prepared(view, SPEC, config))
    expected, variance = demasker.apply(view.encodings[0], view.weights[0])
    error = (expected - mixtures(view)).square().mean()
    assert 0.5 < float(error / variance.mean()) < 1.5


@pytest.mark.parametrize("scheme", ["inside", "cross"])
def test_masks_of_an_exercise_are_undone_exactly(scheme):
    defense = InstaHide(InstaHideConfig(k=3, scheme=scheme))
    encoded = defense.encode(clothes(20), PUBLIC, stream(use="try"))
    undone = mixtures_of(clothes(20), encoded)
    assert torch.equal(undone.abs(), encoded.images.abs())
    if scheme == "inside":
        secrets = encoded.secrets
        assert torch.equal(undone, mix(clothes(20).images, secrets.sources, secrets.weights))


def test_hidden_signs_are_told_from_strong_noise():
    view = masked(20, k=2)
    noisy, plain = Singmix(SingmixConfig(tau=1e-3)), Mixup(MixupConfig(k=2))
    hidden = [hides_signs(encode(view, PUBLIC, stream(use="try")))]
    for defense in (noisy, plain):
        other = released(defense, clothes(20), PUBLIC)
        hidden.append(hides_signs(encode(other, PUBLIC, stream(use="try"))))
    assert hidden == [True, False, False]


def test_encodings_that_are_no_images_are_refused():
    view = masked(20, k=2)

    def wide(samples, public, rng):
        encoded = Mixup(MixupConfig(k=2)).encode(samples, public, rng)
        images = encoded.images.flatten(1)
        return type(encoded)(images, encoded.labels, encoded.secrets)

    channels = {**view.channels, "encoder": Encoder("flat", MixupConfig(k=2), wide)}
    flat = type(view)(**{**view.__dict__, "channels": channels})
    with pytest.raises(CellFailed, match="are not images"):
        demask(flat, images=100)
