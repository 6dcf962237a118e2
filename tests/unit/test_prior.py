"""The plug-and-play attack: its messages against dense algebra, and what it never does."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from views import BUDGET, attack, clothes, quiet, released, snr, stream, view_of

from harness.api import CellFailed, Channel, Samples
from harness_plugins.attacks.lmmse import LmmseConfig
from harness_plugins.attacks.lmmse.attack import Lmmse
from harness_plugins.attacks.prior import PriorConfig, harness_attacks
from harness_plugins.attacks.prior.attack import PriorAttack
from harness_plugins.attacks.prior.denoiser import PublicDenoiser, learn_denoiser, parted
from harness_plugins.attacks.prior.exercise import Exam, linear_only
from harness_plugins.attacks.prior.messages import Belief, Rows, belief_of
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix
from harness_plugins.mixing import draw_sources
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.mixtures.prior import learn_prior

PUBLIC = clothes(600, 1000)
BASE, TAUGHT = 6, 4


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def ring(n):
    """Rows of neighbours on one ring."""
    first = torch.arange(n)
    weights = 0.35 + 0.3 * torch.rand(n, generator=generator())
    sources = torch.stack([first, (first + 1) % n], 1)
    return Mixture.of(torch.stack([weights, 1 - weights], 1)[None], sources[None], n)


def threes(n, rounds):
    """Rounds of rows of three different images."""
    weights = torch.rand(rounds, n, 3, generator=generator()).softmax(2)
    drawn = [draw_sources(n, 3, stream(use="threes", round=turn)) for turn in range(rounds)]
    return Mixture.of(weights, torch.stack(drawn), n)


def dense(mixture):
    whole = torch.zeros(len(mixture.sources), mixture.n, dtype=torch.float64)
    at = torch.arange(len(whole)).view(-1, 1).expand_as(mixture.sources)
    return whole.index_put_((at, mixture.sources), mixture.weights.double(), accumulate=True)


def mixed(mixture, images, power=0.5):
    noise = power * (0.5 + torch.rand(len(mixture.sources), generator=generator(7)))
    white = torch.randn(len(noise), images.shape[1], generator=generator(8))
    return Rows(mixture.apply(images) + white * noise.sqrt().view(-1, 1), mixture, noise)


def posterior(rows, variances):
    """Covariance of the images given the rows, and W'N^-1 told; all dense."""
    whole, precision = dense(rows.mixture), rows.noise.double().reciprocal()
    inverse = whole.T * precision @ whole + variances.double().reciprocal().diag()
    return torch.linalg.inv(inverse), whole.T * precision @ rows.told.double()


def belief(n, d):
    variances = 0.2 + torch.rand(n, generator=generator(5))
    return Belief(torch.randn(n, d, generator=generator(6)), variances)


@pytest.mark.parametrize("mixture", [ring(40), threes(40, 2)], ids=["ring", "threes"])
def test_images_are_solved_for_as_dense_algebra_does(mixture):
    rows, held = mixed(mixture, torch.randn(40, 9, generator=generator(9))), belief(40, 9)
    covariance, pull = posterior(rows, held.variances)
    expected = covariance @ (pull + held.means.double() / held.variances.double().view(-1, 1))
    torch.testing.assert_close(rows.solve(held).double(), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("mixture", "near"), [(ring(40), 1e-4), (threes(400, 2), 0.1)])
def test_what_rows_say_is_what_is_known_beyond_the_belief(mixture, near):
    variances = belief(mixture.n, 1).variances
    rows = mixed(mixture, torch.zeros(mixture.n, 1))
    known = posterior(rows, variances)[0].diagonal().reciprocal()
    expected = known - variances.double().reciprocal()
    found = rows.precision(variances).double()
    torch.testing.assert_close(found, expected, atol=0, rtol=near)


def test_noise_of_what_rows_say_is_as_strong_as_foretold():
    truth = torch.randn(200, 400, generator=generator(1))
    rows = mixed(threes(200, 2), truth)
    held = Belief(torch.zeros_like(truth), torch.ones(200))
    noisy, precision = rows.extrinsic(held)
    ratio = (noisy - truth).square().mean(1) * precision
    assert float(ratio.mean()) == pytest.approx(1, abs=0.02)
    assert abs(float(((noisy - truth) * truth).mean())) < 0.01


def test_the_first_belief_is_the_one_under_which_the_start_is_the_answer():
    rows = mixed(ring(40), torch.randn(40, 9, generator=generator(2)))
    start = torch.randn(40, 9, generator=generator(3))
    held = rows.consistent(start, torch.full((40,), 0.2))
    torch.testing.assert_close(rows.solve(held), start, atol=1e-4, rtol=1e-4)


def test_belief_and_observation_together_are_the_denoised_image():
    noisy, images = torch.randn(2, 5, 9, generator=generator(4))
    errors, precision = torch.full((5,), 0.1), torch.full((5,), 4.0)
    held = belief_of(images, errors, noisy, precision)
    total = held.variances.reciprocal() + precision
    torch.testing.assert_close(total, errors.reciprocal())
    told = held.means / held.variances.view(-1, 1) + noisy * precision.view(-1, 1)
    torch.testing.assert_close(told / total.view(-1, 1), images, atol=1e-4, rtol=1e-4)


def bare(public=PUBLIC):
    return view_of({Channel.PUBLIC: public}, public)


@cache
def shared(epochs, count):
    view = bare(PUBLIC[:count])
    torch.manual_seed(0)
    made = {
        "gaussian-prior": learn_prior(view, BUDGET, quiet, mean="class"),
        "denoiser": learn_denoiser(view, BUDGET, quiet, epochs=epochs, base=BASE, images=2000),
    }
    return {f"{name}.{key}": value for name, all_ in made.items() for key, value in all_.items()}


def answers(defense, *, private=60, count=600, epochs=0, rounds=1, without=(), **config):
    """Those of `prior` and of `lmmse`, as reconstructions, and the truth."""
    truth = clothes(private)
    view = released(defense, truth, PUBLIC[:count], rounds=rounds, without=without)
    view = replace(view, shared=shared(epochs, count))
    ours = attack(PriorAttack(PriorConfig(base=BASE, epochs=epochs, **config)), view)
    return ours, attack(Lmmse(LmmseConfig()), view), truth.images


def test_before_any_training_the_denoiser_is_the_gaussian_estimate_and_knows_its_error():
    view = replace(bare(), shared=shared(0, 600))
    denoiser = PublicDenoiser.of(view, BASE)
    spectrum, n = denoiser.spectrum, 300
    white = torch.randn(n, 784, generator=generator(1)) * spectrum.rest.sqrt()
    inside = torch.randn(n, len(spectrum.variances), generator=generator(2))
    inside = inside * spectrum.variances.sqrt() - white @ spectrum.basis
    truth = spectrum.mean + torch.addmm(white, inside, spectrum.basis.T)
    noisy = truth + 0.5 * torch.randn(n, 784, generator=generator(3))
    power, unknown = torch.full((n,), 0.25), torch.zeros(n, 10)
    found, errors = denoiser.denoise(noisy, power, unknown)
    assert float((found - truth).square().mean()) == pytest.approx(float(errors.mean()), rel=0.03)


def test_a_little_training_goes_beyond_the_gaussian_estimate():
    held = parted(PUBLIC)[0]
    power, truth = torch.full((len(held),), 0.25), held.images.flatten(1)
    noisy = truth + 0.5 * torch.randn(truth.shape, generator=generator(3))
    classes = torch.eye(10)[held.labels]
    errors = []
    for epochs in (0, TAUGHT):
        denoiser = PublicDenoiser.of(replace(bare(), shared=shared(epochs, 600)), BASE)
        errors.append(float((denoiser.denoise(noisy, power, classes)[0] - truth).square().mean()))
    assert errors[1] < 0.95 * errors[0]


@pytest.mark.parametrize("rounds", [1, 3])
def test_it_goes_beyond_the_linear_answer_where_public_images_say_so(rounds):
    ours, linear, truth = answers(Singmix(SingmixConfig(tau=1.0)), epochs=TAUGHT, rounds=rounds)
    gain = float((snr(ours.images, truth) - snr(linear.images, truth)).mean())
    foretold = ours.diagnostics["exercise_db"] - ours.diagnostics["exercise_lmmse_db"]
    assert gain > 0.1
    assert gain == pytest.approx(foretold, abs=0.6)
    assert torch.equal(ours.targets, torch.arange(60))


@pytest.mark.parametrize(
    ("defense", "options"),
    [
        (InstaHide(InstaHideConfig(k=2)), {}),  # random signs leave no linear trace
        (Singmix(SingmixConfig(tau=1.0)), {"count": 100}),  # ten held-out images prove nothing
        (Singmix(SingmixConfig(tau=1.0)), {"steps": 0}),
        (Singmix(SingmixConfig(tau=1e-6)), {}),
    ],
    ids=["signs", "few", "steps", "noise"],
)
def test_with_nothing_to_gain_the_answer_is_the_linear_one(defense, options):
    ours, linear, _ = answers(defense, **options)
    torch.testing.assert_close(ours.images, linear.images, atol=2e-2, rtol=0)


def test_labels_and_resizing_may_be_what_they_are():
    blind = answers(Singmix(SingmixConfig(tau=1.0)), without=(Channel.LABELS,), steps=1)[0]
    assert torch.isfinite(blind.images).all()
    large = Singmix(SingmixConfig(tau=1.0, resolution=48))
    ours, linear, truth = answers(large, epochs=TAUGHT, private=40, steps=2)
    assert float((snr(ours.images, truth) - snr(linear.images, truth)).mean()) > -0.05


def test_the_exam_takes_what_is_surely_better_and_nothing_else():
    truth = torch.randn(80, 1, 8, 8, generator=generator(1))
    linear = truth + torch.randn(truth.shape, generator=generator(2))
    precision = torch.linspace(0, 1, 80)
    exam = Exam(bare().scale, exam_clamped := bare().scale.clamp(truth), linear, precision)
    worse = linear + torch.randn(truth.shape, generator=generator(3))
    assert not exam.choose(1, worse)[0].shares.any()
    assert exam.choose(1, exam_clamped)[0].shares.tolist() == [1.0] * 4
    half = torch.where(precision.view(-1, 1, 1, 1) < 0.5, exam_clamped, worse)
    choice, gain = exam.choose(1, half)
    assert choice.shares.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert gain > 5
    torch.testing.assert_close(choice.blend(linear, half, precision)[40:], linear[40:])
    torch.testing.assert_close(linear_only().blend(linear, worse, precision), linear)


def test_features_are_refused_with_a_sentence():
    maps = Samples(torch.randn(30, 16, 3, 3), torch.zeros(30, dtype=torch.int64))
    with pytest.raises(CellFailed, match="no pictures of at least 8x8"):
        learn_denoiser(bare(maps), BUDGET, quiet, epochs=1, base=4, images=20)


def test_the_denoiser_serves_every_defense():
    spec = harness_attacks()[0]
    denoiser = next(each for each in spec.preparations if each.name == "denoiser")
    assert denoiser.channels == {Channel.PUBLIC}
    assert set(denoiser.options) <= set(PriorConfig.model_fields)
