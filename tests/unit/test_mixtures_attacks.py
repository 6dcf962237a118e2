"""The linear attacks on whole releases of real clothes, against each other and against nulls."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from views import BUDGET, attack, clothes, quiet, released, snr

from harness.api import Channel, Samples, Scale
from harness_plugins.attacks.exact import ExactConfig
from harness_plugins.attacks.exact.attack import Exact
from harness_plugins.attacks.lmmse import LmmseConfig
from harness_plugins.attacks.lmmse.attack import Lmmse
from harness_plugins.attacks.wiener import WienerConfig
from harness_plugins.attacks.wiener.attack import Wiener
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix
from harness_plugins.mixtures import prior as priors
from harness_plugins.mixtures.prior import learn_prior

PRIVATE, PUBLIC = clothes(100), clothes(800, 100)
SMALL = (14, 14)


@cache
def learned(mean):
    """The preparation of `PUBLIC`, made once."""
    return prepared(released(Mixup(MixupConfig()), PRIVATE, PUBLIC), mean).shared


def prepared(view, mean="class"):
    """The view with what `gaussian-prior` makes of its public images."""
    made = learn_prior(view, BUDGET, quiet, mean=mean)
    return replace(view, shared={f"gaussian-prior.{name}": value for name, value in made.items()})


def view_under(defense, mean="class", **options):
    return replace(released(defense, PRIVATE, PUBLIC, **options), shared=learned(mean))


def score(found, view, private=PRIVATE):
    """[m] SNR of what came back, by the names it came under."""
    names = found.targets if found.rows is None else view.sources[0, found.rows, 0]
    return snr(found.images, private.images[names], view.scale)


def null(mean):
    """[n] SNR of the public mean, or of the mean of each image's class."""
    prior = learned(mean)
    means = prior["gaussian-prior.means"][PRIVATE.labels].view_as(PRIVATE.images)
    return snr(means, PRIVATE.images)


@pytest.mark.parametrize("tau", [1, 1e-2])
@pytest.mark.parametrize("mean", ["public", "class"])
def test_who_knows_the_partners_gets_more_and_both_get_more_than_the_null(tau, mean):
    view = view_under(Singmix(SingmixConfig(tau=tau)), mean)
    joint = score(attack(Lmmse(LmmseConfig(mean=mean)), view), view).mean()
    alone = score(attack(Wiener(WienerConfig(mean=mean)), view), view).mean()
    assert joint > alone + 0.1
    assert alone > null(mean).mean() + 0.1


def test_it_foretells_how_near_it_comes():
    view = view_under(Singmix(SingmixConfig(tau=1)))
    found = attack(Lmmse(LmmseConfig()), view)
    assert found.diagnostics["predicted_snr_db"] == pytest.approx(
        float(score(found, view).mean()), abs=1.5
    )


def test_more_rounds_tell_more():
    defense = Singmix(SingmixConfig(tau=1))
    one, four = (view_under(defense, rounds=rounds) for rounds in (1, 4))
    found = [score(attack(Lmmse(LmmseConfig()), view), view).mean() for view in (one, four)]
    assert found[1] > found[0] + 2


def test_noise_beyond_all_measure_leaves_the_class_means():
    view = view_under(Singmix(SingmixConfig(tau=1e-6)))
    found = attack(Lmmse(LmmseConfig()), view)
    assert float(score(found, view).mean()) == pytest.approx(float(null("class").mean()), abs=0.2)


def test_without_labels_images_are_centred_on_the_mean_of_all():
    view = view_under(Singmix(SingmixConfig(tau=1)), "public", without=(Channel.LABELS,))
    blind = attack(Lmmse(LmmseConfig(mean="public")), view)
    told = attack(
        Lmmse(LmmseConfig(mean="public")), view_under(Singmix(SingmixConfig(tau=1)), "public")
    )
    torch.testing.assert_close(blind.images, told.images, atol=1e-3, rtol=0)


@pytest.mark.parametrize("plugin", [Lmmse(LmmseConfig()), Exact(ExactConfig())])
def test_plain_mixup_of_pairs_is_undone(plugin):
    view = view_under(Mixup(MixupConfig(k=2)))
    scores = score(attack(plugin, view), view)
    assert float(scores.median()) >= 60
    assert float(scores.min()) >= 15


def halved(samples):
    """Every second pixel of every second line: [n, 1, 14, 14]."""
    return Samples(samples.images[..., ::2, ::2], samples.labels)


def test_noise_that_was_added_after_resizing_lies_mostly_outside_the_images():
    private, public = halved(PRIVATE), halved(PUBLIC)

    def mean_score(plugin, resolution):
        defense = Singmix(SingmixConfig(tau=1e-1, resolution=resolution))
        view = prepared(released(defense, private, public))
        return float(score(attack(plugin, view), view, private).mean())

    for plugin, config in ((Lmmse, LmmseConfig), (Wiener, WienerConfig)):
        large = {way: mean_score(plugin(config(subspace=way)), 56) for way in ("auto", "none")}
        assert large["auto"] > large["none"] + 0.05
        assert large["auto"] > mean_score(plugin(config()), None) + 0.5


def test_under_random_signs_only_the_class_is_known():
    view = view_under(InstaHide(InstaHideConfig(k=2)))
    found = attack(Lmmse(LmmseConfig()), view)
    assert found.diagnostics["linear_trace"] == 0
    means = learned("class")["gaussian-prior.means"][PRIVATE.labels].view_as(PRIVATE.images)
    alike = (found.images - view.scale.clamp(means)).abs().flatten(1).amax(1) < 1e-3
    assert float(alike.float().mean()) > 0.9  # weights may leave it open which class is whose


def test_a_truncated_basis_is_nearly_as_good_as_all_of_it(monkeypatch):
    view = view_under(Singmix(SingmixConfig(tau=1e-1)))
    whole = score(attack(Lmmse(LmmseConfig()), view), view).mean()
    monkeypatch.setattr(priors, "LARGEST", 100)
    monkeypatch.setattr(priors, "_COMPONENTS", 150)
    found = attack(Lmmse(LmmseConfig()), prepared(view))
    assert found.diagnostics["kept_variance"] < 0.99
    assert float(score(found, view).mean()) == pytest.approx(float(whole), abs=0.5)


def maps(samples):
    """Feature maps without bounds: [n, 16, 3, 3]."""
    images = torch.nn.functional.interpolate(samples.images, size=(12, 12), mode="bilinear")
    return Samples(images.view(-1, 16, 3, 3) * 3, samples.labels)


@pytest.mark.parametrize(
    "plugin", [Lmmse(LmmseConfig()), Wiener(WienerConfig()), Exact(ExactConfig())]
)
def test_features_are_attacked_as_pictures_are(plugin):
    private, public = maps(PRIVATE), maps(PUBLIC)
    scale = Scale((0.0,) * 16, (1.0,) * 16, low=None, high=None)
    view = prepared(released(Singmix(SingmixConfig(radius=2)), private, public, scale=scale))
    found = attack(plugin, view)
    assert found.images.shape == (100, 16, 3, 3)
    assert float(score(found, view, private).median()) > 3
