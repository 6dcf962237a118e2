"""The law that a defense states is the one that its encodings follow."""

import math

import pytest
import torch
from views import clothes, released, stream

from harness.api import CellFailed, Config, Law
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.defenses.noise import NoiseConfig
from harness_plugins.defenses.noise.encode import Noise
from harness_plugins.defenses.none import NoDefense
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix, draw_partners
from harness_plugins.mixtures.law import learn_law
from harness_plugins.mixtures.subspace import Subspace

PRIVATE, PUBLIC = clothes(40), clothes(800, 100)
NOISY = {
    "sphere": Singmix(SingmixConfig(tau=1e-2)),
    "gaussian": Singmix(SingmixConfig(tau=1e-2, noise="gaussian")),
    "public": Singmix(SingmixConfig(tau=1e-2, noise="gaussian", calibrate="public")),
    "laplace": Noise(NoiseConfig(kind="laplace")),
    "normal": Noise(NoiseConfig(kind="gaussian", scale=0.3)),
}


def stated(defense):
    resolved = defense.encode(PRIVATE, PUBLIC, stream(use="owner")).resolved
    return defense.law(784, resolved)


@pytest.mark.parametrize("name", NOISY)
def test_the_stated_noise_is_the_measured_one(name):
    defense, law = NOISY[name], stated(NOISY[name])
    view = released(defense, PRIVATE, PUBLIC)
    measured = learn_law(view, Subspace.between(view.shape, view.encodings[0], "auto"))
    weights = view.weights[0]
    ratio = measured.power(weights) / law.deviations(weights).square()
    torch.testing.assert_close(ratio, torch.ones(40, dtype=torch.float64), atol=0.04, rtol=0)


@pytest.mark.parametrize(
    "defense", [NoDefense(Config()), Mixup(MixupConfig(k=2)), InstaHide(InstaHideConfig(k=2))]
)
def test_what_adds_no_noise_says_so(defense):
    law = stated(defense)
    assert (law.noise, law.deviation, law.exposure) == ("none", 0.0, None)
    assert law.signs == isinstance(defense, InstaHide)


@pytest.mark.parametrize("name", NOISY)
def test_noise_is_of_the_stated_kind(name):
    """Kurtosis tells Laplace (6) from normal (3); the norm of a row tells a sphere."""
    defense, law = NOISY[name], stated(NOISY[name])
    blank = clothes(200).map(torch.zeros_like)
    known = type(defense)(
        defense.config.model_copy(
            update={"radius": law.deviation * 28}
            if name in ("sphere", "gaussian", "public")
            else {"scale": law.deviation / math.sqrt(2)}
        )
    )
    made = known.encode(blank, blank, stream(use="other"))
    rows = made.images.flatten(1).double() / law.deviations(made.secrets.weights).view(-1, 1)
    kurtosis = float(rows.pow(4).mean())
    spread = float(rows.square().mean(1).std())
    assert kurtosis == pytest.approx(6 if law.noise == "laplace" else 3, rel=0.05)
    assert (spread < 1e-5) == (law.noise == "sphere")


def test_what_private_images_decided_is_named_until_it_is_given():
    assert stated(NOISY["sphere"]).calibrated == ("radius",)
    assert stated(NOISY["laplace"]).calibrated == ("scale",)
    assert stated(NOISY["public"]).calibrated == ()
    assert stated(NOISY["normal"]).calibrated == ()
    assert stated(Singmix(SingmixConfig(radius=5.0))).calibrated == ()


def test_a_radius_of_public_images_is_the_same_whatever_the_private_ones_are():
    defense = NOISY["public"]
    one, other = (
        defense.encode(private, PUBLIC, stream(use="owner")).resolved["radius"]
        for private in (PRIVATE, clothes(40, 2000))
    )
    assert one == other
    theirs = NOISY["gaussian"].encode(PUBLIC, PUBLIC, stream(use="owner")).resolved["radius"]
    assert one == theirs


def test_public_images_that_are_not_there_set_no_radius():
    with pytest.raises(CellFailed, match="calibrate=public"):
        NOISY["public"].encode(PRIVATE, PUBLIC[:1], stream(use="owner"))


@pytest.mark.parametrize("points", ["yes", "no"])
def test_no_round_tells_more_of_an_image_than_stated(points):
    """Many small rounds come near the bound, and none goes beyond it."""
    defense = Singmix(SingmixConfig(radius=1.0, noise="gaussian", fixed_points=points))
    law, most = defense.law(784, {}), 0.0
    for seed in range(300):
        secrets = defense.encode(clothes(5), PUBLIC, stream(seed=seed)).secrets
        told = torch.zeros(5, dtype=torch.float64)
        scale = law.deviations(secrets.weights)
        for image in range(5):
            share = (secrets.weights * (secrets.sources == image)).sum(1).double()
            told[image] = (share / scale).square().sum()
        most = max(most, float(told.max()))
    assert 0.95 * law.exposure < most <= law.exposure * (1 + 1e-6)


def test_partners_without_fixed_points_are_uniform_among_such_orders():
    drawn = [tuple(draw_partners(4, stream(seed=s), "no").tolist()) for s in range(4500)]
    counts = {order: drawn.count(order) for order in set(drawn)}
    assert len(counts) == 9  # derangements of four
    assert all(400 < count < 600 for count in counts.values())
    with pytest.raises(CellFailed, match="second image"):
        draw_partners(1, stream(), "no")


def test_noise_on_the_others_grows_with_their_share():
    law = Law("gaussian", 2.0, covers="others")
    torch.testing.assert_close(
        law.deviations(torch.tensor([[0.25, 0.75]])), torch.tensor([1.5]).double()
    )
    assert Law("gaussian", 2.0).deviations(torch.tensor([[0.25, 0.75]])).tolist() == [2.0]
