"""What ceilings say of releases: their numbers, their conditions, and why there is none."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from views import SCALE, clothes, stream

from harness.api import Bound, Config, Law, OwnersView, Samples, Scale
from harness.api.gaussian import epsilon_of
from harness_plugins.ceilings.dp import DpConfig
from harness_plugins.ceilings.dp.ceiling import DifferentialPrivacy, sensitivity
from harness_plugins.ceilings.exchangeable import ExchangeableConfig
from harness_plugins.ceilings.exchangeable.ceiling import Exchangeable
from harness_plugins.ceilings.exchangeable.population import Population
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.defenses.noise import NoiseConfig
from harness_plugins.defenses.noise.encode import Noise
from harness_plugins.defenses.none import NoDefense
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix

PRIVATE, PUBLIC = clothes(120), clothes(1500, 200)
RADIUS = 500.0


def gaussian(**options):
    return Singmix(SingmixConfig(**{"noise": "gaussian", "radius": RADIUS, **options}))


def owned(defense, private=PRIVATE, public=PUBLIC, *, rounds=1, targets=100, **changed):
    """What the owner has of a release."""
    made = [defense.encode(private, public, stream(use="owner", round=t)) for t in range(rounds)]
    return replace(
        OwnersView(
            defense="d",
            law=defense.law(made[0].images[0].numel(), made[0].resolved),
            weights=torch.stack([each.secrets.weights for each in made]),
            sources=torch.stack([each.secrets.sources for each in made]),
            private=private,
            targets=targets,
            public=public,
            subjects=None,
            public_alike=True,
            scale=SCALE,
            scale_measured=False,
            shape=tuple(made[0].images.shape[1:]),
            device=torch.device("cpu"),
            rng=stream(use="ceiling"),
        ),
        **changed,
    )


def silent(done, total, note=""):
    pass


def exchangeable(view, **options):
    return Exchangeable(ExchangeableConfig(**{"draws": 2, **options})).bound(view, silent)


def private(view, **options):
    return DifferentialPrivacy(DpConfig(**options)).bound(view, silent)


# -- Where there is none ----------------------------------------------------------------------

REASONS = {
    "none": (NoDefense(Config()), "no noise is added"),
    "mixup": (Mixup(MixupConfig(k=2)), "no noise is added"),
    "instahide": (InstaHide(InstaHideConfig(k=2)), "random signs are the only thing"),
    "sphere": (Singmix(SingmixConfig(radius=5.0)), "mutually singular"),
    "noiseless": (gaussian(radius=0), "no noise is added"),
    "calibrated": (gaussian(radius=None), "give radius=… or calibrate=public"),
    "scale": (Noise(NoiseConfig(kind="gaussian")), "give scale=…"),
    "resized": (gaussian(resolution=32), "resized images"),
}


@pytest.mark.parametrize("name", REASONS)
@pytest.mark.parametrize("ceiling", [exchangeable, private])
def test_each_has_its_reason(name, ceiling):
    defense, reason = REASONS[name]
    said = ceiling(owned(defense))
    assert isinstance(said, str)
    assert reason in said


@pytest.mark.parametrize("ceiling", [exchangeable, private])
def test_nothing_is_proven_without_a_law_nor_under_a_scale_of_the_targets_own(ceiling):
    view = owned(gaussian())
    assert "states no law" in ceiling(replace(view, law=None))
    assert "scale is measured" in ceiling(replace(view, scale_measured=True))


def test_a_radius_of_public_images_has_a_ceiling():
    view = owned(gaussian(radius=None, tau=1e-2, calibrate="public"))
    assert isinstance(exchangeable(view), Bound)
    assert isinstance(private(view), Bound)


def test_too_few_candidates_are_refused():
    few = owned(gaussian(), public=PUBLIC[:60], targets=100)
    assert "80 images are drawn like the targets" in exchangeable(few)
    nobody = owned(gaussian(), public=PUBLIC[:0], targets=len(PRIVATE))
    assert "0 images are drawn like the targets" in exchangeable(nobody)
    strangers = owned(gaussian(), public_alike=False)
    assert "of another dataset are no candidates" in exchangeable(strangers)


def test_laplace_noise_has_one_round_of_single_rows():
    defense = Noise(NoiseConfig(kind="laplace", scale=2.0))
    assert isinstance(exchangeable(owned(defense)), Bound)
    assert "no sufficient statistic" in exchangeable(owned(defense, rounds=2))
    assert "pure epsilon" in private(owned(defense))


def test_what_has_no_bounds_has_no_certificate():
    view = owned(gaussian())
    features = replace(view.scale, low=None, high=None)
    assert "without a clipping norm" in private(replace(view, scale=features))
    bare = replace(view.law, exposure=None)
    assert "does not state the most" in private(replace(view, law=bare))


# -- Who is a candidate -----------------------------------------------------------------------


def numbered(count, start=0):
    images = torch.arange(start, start + count).float().view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    return Samples(images.contiguous(), torch.zeros(count, dtype=torch.int64))


def test_candidates_are_neither_targets_nor_partners_and_none_comes_twice():
    defense = Singmix(SingmixConfig(radius=1.0, noise="gaussian"))
    view = owned(defense, numbered(60), numbered(100, 1000), rounds=3, targets=20)
    people = Population.of(view, 1000, 1000)
    assert people.targets[:, 0].tolist() == list(range(20))
    others = [int(value) for value in people.others[:, 0]]
    assert sorted(others) == [*range(20, 60), *range(1000, 1100)]
    assert others != sorted(others)
    for target in range(20):
        rows = view.sources.flatten(0, 1)
        mixed = set(rows[(rows == target).any(1)].flatten().tolist()) - {target}
        told = {others[place] for place in people.told[target].nonzero()[:, 0].tolist()}
        assert told == {each for each in mixed if each >= 20}
    assert len(Population.of(view, 1000, 50).others) == 50
    assert len(Population.of(view, 7, 50).targets) == 7


def test_public_images_of_another_dataset_are_left_out():
    view = owned(gaussian(radius=1.0), numbered(60), numbered(100, 1000), targets=20)
    people = Population.of(replace(view, public_alike=False), 1000, 1000)
    assert int(people.others.max()) < 60


def test_of_each_subject_one_image_is_drawn():
    view = owned(gaussian(radius=1.0), numbered(40), numbered(60, 1000), targets=20)
    subjects = torch.cat([torch.arange(40) // 4, 10 + torch.arange(60) // 3])
    people = Population.of(replace(view, subjects=subjects), 1000, 1000)
    assert people.rows.tolist() == [0, 4, 8, 12, 16]
    places = people.others[:, 0].int()
    others = subjects[torch.where(places < 40, places, places - 960)].tolist()
    assert sorted(others) == list(range(5, 30))


# -- What it says -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bound():
    return exchangeable(owned(gaussian(), rounds=2), draws=4)


def test_the_ceiling_is_above_what_no_release_gives_and_labels_raise_it(bound):
    value = {name: each.value for name, each in bound.quantities.items()}
    assert value["pooled_snr_db"] > value["blind_snr_db"]
    assert value["pooled_snr_db_labels"] > value["pooled_snr_db"]
    assert value["identification_labels"] > value["identification"] > 1 / 1521
    assert value["within_6db"] > value["within_10db"] > 0
    assert all(e.interval[0] <= e.value <= e.interval[1] for e in bound.quantities.values())


def test_the_oracle_of_a_normal_prior_is_below_it(bound):
    """The best linear map for the covariance of 8000 public images, with the partners told."""
    defense, view = gaussian(), owned(gaussian(), rounds=2)
    public = clothes(8000, 200).images.flatten(1).double()
    mean = public.mean(0)
    values, vectors = torch.linalg.eigh((public - mean).T @ (public - mean) / len(public))
    own = torch.zeros(120, 784).double()
    total = torch.zeros(120, 1).double()
    images = PRIVATE.images.flatten(1).double()
    for t in range(2):
        made = defense.encode(PRIVATE, PUBLIC, stream(use="owner", round=t))
        rows, w = made.images.flatten(1).double(), made.secrets.weights.double()
        s = view.law.deviations(made.secrets.weights)
        first, second = made.secrets.sources.T
        alone = (first == second).view(-1, 1)
        share = torch.where(alone, torch.ones(120, 1).double(), w[:, :1])
        left = rows - torch.where(alone, torch.zeros_like(images), w[:, 1:] * images[second])
        own.index_add_(0, first, share * left / s.view(-1, 1).square())
        total.index_add_(0, first, (share / s.view(-1, 1)).square())
        left = torch.where(alone, torch.zeros_like(images), rows - w[:, :1] * images[first])
        share = torch.where(alone, torch.zeros_like(share), w[:, 1:])
        own.index_add_(0, second, share * left / s.view(-1, 1).square())
        total.index_add_(0, second, (share / s.view(-1, 1)).square())
    seen = own / total
    shrunk = ((seen - mean) @ vectors) * (values / (values + 1 / total))
    guess = SCALE.clamp((mean + shrunk @ vectors.T).view(-1, 1, 28, 28)).flatten(1)[:100]
    errors = (guess - images[:100]).square().sum(1).numpy()
    reached = 10 * math.log10(float(images[:100].square().sum()) / errors.sum())
    ceiling = bound.quantities["pooled_snr_db"]
    assert bound.quantities["blind_snr_db"].value + 0.5 < reached < ceiling.interval[1]
    gap = errors - bound.errors["pooled_snr_db"].numpy()
    assert gap.mean() > -2 * gap.std() / 10


def test_where_the_posterior_names_the_target_the_ceiling_says_that_it_is_vacuous():
    loud = exchangeable(owned(gaussian(radius=2.0)))
    assert any("vacuous here:" in note for note in loud.notes)
    assert not any("vacuous here:" in note for note in exchangeable(owned(gaussian())).notes)


def test_the_trend_is_over_disjoint_sets_of_growing_size(bound):
    sizes = [row[0] for row in bound.tables[0].rows]
    assert sizes == [191.0, 381.0, 761.0, 1521.0]
    values = [row[1] for row in bound.tables[0].rows]
    assert values[0] > values[-1]


def test_classes_with_few_candidates_have_no_ceiling_with_labels():
    narrow = exchangeable(owned(gaussian(), public=PUBLIC[:300]))
    assert not any(name.endswith("_labels") for name in narrow.quantities)
    assert any("no ceiling with labels" in note for note in narrow.notes)


# -- Differential privacy ---------------------------------------------------------------------


def test_the_sensitivity_is_the_distance_of_black_and_white():
    scale = Scale((0.5, 0.4, 0.3), (0.2, 0.25, 0.5))
    black, white = (scale.standardise(torch.full((3, 4, 5), v)) for v in (0.0, 1.0))
    assert sensitivity(scale, (3, 4, 5)) == pytest.approx(float((white - black).norm()))


def test_mu_is_of_the_worst_image_over_all_rounds():
    """A fixed point of the largest weight is seen under (1-α) of the noise."""
    once = 28 / SCALE.std[0] * 28 / (RADIUS * 0.35)
    for rounds in (1, 9):
        found = private(owned(gaussian(), rounds=rounds)).quantities
        assert found["mu"].value == pytest.approx(once * math.sqrt(rounds), rel=1e-6)
    apart = private(owned(gaussian(fixed_points="no"))).quantities["mu"].value
    assert apart == pytest.approx(28 / SCALE.std[0] * 28 / RADIUS * math.hypot(0.65 / 0.35, 1))


@pytest.mark.parametrize(("radius", "rounds"), [(5e4, 1), (2e4, 4), (2e3, 1), (3e5, 16)])
def test_epsilon_is_that_of_the_accountant(radius, rounds):
    pytest.importorskip("opacus")
    found = private(owned(gaussian(radius=radius), rounds=rounds)).quantities
    assert found["epsilon"].value == epsilon_of(found["mu"].value, 1e-5)
    assert abs(found["epsilon_prv"].value - found["epsilon"].value) < 1e-3


def test_no_test_of_two_images_beats_the_certificate():
    """Black against white in the worst row, by likelihood: δ at ε is what was promised."""
    view = owned(gaussian(radius=2e4))
    found = private(view).quantities
    gap = sensitivity(SCALE, (1, 28, 28)) * math.sqrt(view.law.exposure)
    drawn = np.random.default_rng(0).normal(size=1_000_000)
    losses = gap * drawn + gap**2 / 2
    epsilon = found["epsilon"].value / 4
    delta = np.maximum(0, 1 - np.exp(epsilon - losses)).mean()
    mu = found["mu"].value
    wanted = private(view, delta=delta).quantities["epsilon"].value
    assert mu == pytest.approx(gap)
    assert wanted == pytest.approx(epsilon, rel=0.02)


@pytest.mark.parametrize("options", [{"delta": 0}, {"delta": -1e-5}, {"delta": 1}, {"chance": 0}])
def test_bad_budgets_are_refused(options):
    with pytest.raises(ValueError, match="should be"):
        DpConfig(**options)


def test_every_epsilon_says_which_kind_it_is():
    assumed = private(owned(gaussian())).assumptions
    assert any("replace one" in text and "same class" in text for text in assumed)
    assert any("fixed before" in text for text in assumed)


def test_a_law_of_noise_alone_is_enough():
    """A stranger's defense states no more than this."""
    view = owned(gaussian())
    law = Law("gaussian", 3.0, exposure=1.0)
    assert isinstance(exchangeable(replace(view, law=law)), Bound)
    assert private(replace(view, law=law)).quantities["mu"].value == pytest.approx(
        sensitivity(SCALE, (1, 28, 28))
    )
