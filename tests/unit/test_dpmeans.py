"""Noisy class sums: what replacing an image moves, the noise on it, and who reads them."""

import math

import pytest
import torch
from pydantic import ValidationError
from scipy.integrate import quad
from scipy.stats import kstest, norm
from views import clothes, stream

from harness.api import (
    Budget,
    Channel,
    Config,
    NotApplicable,
    Samples,
    Statistics,
    UsageError,
    View,
)
from harness.api.plugins import silent
from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness_plugins.attacks.classsums.attack import ClassSums, shared_out
from harness_plugins.datasets.classes_and_scales import FASHION_SCALE
from harness_plugins.defenses.dpmeans import DpmeansConfig
from harness_plugins.defenses.dpmeans.sums import SENSITIVITY, Dpmeans, principal
from harness_plugins.learners.noisymeans.learner import _contrasts, discriminant

CLASSES = 10
PUBLIC = clothes(400, start=1000)


def measure(private, public=PUBLIC, seed=0, **options):
    defense = Dpmeans(DpmeansConfig(**options))
    return defense.measure(private, public, CLASSES, stream(use="owner", seed=seed))


def read(made, **options):
    through = Dpmeans(DpmeansConfig(**options)).embed
    return Statistics(made.sums, made.counts, made.noise, made.count_noise, made.basis, through)


def joint(made, clip):
    """[classes, q + 1] float64: sums over the clipping norm, beside the counts."""
    return torch.cat([made.sums.double() / clip, made.counts.double().view(-1, 1)], 1)


@pytest.mark.parametrize(("clip", "pool"), [(0.5, "auto"), (2.0, "auto"), (1.0, "yes")])
def test_no_replaced_image_moves_the_sums_by_more_than_the_sensitivity(clip, pool):
    """The noise is the same under one key, and drops out of differences."""
    private, options = clothes(60), {"clip": clip, "pool": pool, "epsilon": 1e4}
    before = joint(measure(private, **options), clip)
    wild = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(3)) * 1e6
    for image, label in [*zip(wild, (0, 3, 5, 9), strict=True), (-private.images[7], 2)]:
        images, labels = private.images.clone(), private.labels.clone()
        images[7], labels[7] = image, label
        after = joint(measure(Samples(images, labels), **options), clip)
        assert float((after - before).norm()) <= SENSITIVITY * (1 + 1e-5)


def test_opposite_images_of_one_class_move_the_sums_by_the_whole_sensitivity():
    """Where the map leaves directions as they are, x and −x are as far apart as clipping lets."""
    mirrored = Samples(torch.cat([PUBLIC.images, -PUBLIC.images]), PUBLIC.labels.repeat(2))
    private, options = clothes(20), {"clip": 0.01, "epsilon": 1e4}
    images = private.images.clone()
    images[4] = -images[4]
    pair = (private, Samples(images, private.labels))
    one, other = (joint(measure(each, mirrored, **options), 0.01) for each in pair)
    assert float((one - other).norm()) == pytest.approx(SENSITIVITY, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (2.0, 1e-5), (8.0, 1e-3)])
def test_the_noise_spends_the_budget_and_no_more(epsilon, delta):
    """δ(ε) of two normal laws a sensitivity apart, by integrating what one exceeds the other."""
    noise = float(measure(clothes(5), epsilon=epsilon, delta=delta).guarantee["noise"])

    def beyond(x):
        return norm.pdf(x, SENSITIVITY, noise) - math.exp(epsilon) * norm.pdf(x, 0, noise)

    start = noise**2 * epsilon / SENSITIVITY + SENSITIVITY / 2
    spent = quad(beyond, start, SENSITIVITY + 12 * noise, epsabs=0, epsrel=1e-9, limit=200)[0]
    assert spent == pytest.approx(delta, rel=1e-5)


@pytest.mark.parametrize("counts", ["noised", "public"])
def test_noise_has_its_law(counts):
    private = clothes(100)
    quiet, bare = 1e-9, measure(private, epsilon=1e4, clip=0.5, counts="public")
    assert bare.noise < 0.01 > quiet
    made = [measure(private, seed=seed, counts=counts) for seed in range(8)]
    noise = torch.stack([each.sums - bare.sums for each in made]).flatten().numpy()
    assert kstest(noise, "norm", args=(0, made[0].noise)).pvalue > 1e-3
    sizes = torch.stack([each.counts for each in made]) - private.labels.bincount(minlength=CLASSES)
    if counts == "public":
        assert not bool(sizes.any())
    else:
        assert made[0].noise == pytest.approx(0.5 * made[0].count_noise)
        assert kstest(sizes.flatten().numpy(), "norm", args=(0, made[0].count_noise)).pvalue > 1e-3


def test_what_is_summed_depends_on_public_images_alone():
    one, other = (measure(clothes(50, start=at), seed=at) for at in (0, 100))
    assert one.basis.keys() == other.basis.keys()
    assert all(torch.equal(one.basis[name], other.basis[name]) for name in one.basis)
    with pytest.raises(NotApplicable, match="public images"):
        measure(clothes(50), PUBLIC[:1])


@pytest.mark.parametrize("pieces", [1, 7])
def test_sums_do_not_depend_on_pieces(pieces, monkeypatch):
    whole = measure(clothes(50))
    monkeypatch.setattr("harness_plugins.defenses.dpmeans.sums._BLOCK", pieces * 784)
    torch.testing.assert_close(measure(clothes(50)).sums, whole.sums, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(30, 90), (90, 30)])
def test_components_are_those_of_a_singular_value_decomposition(shape):
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    rows = rows - rows.mean(0)
    basis, variances = principal(rows, 12)
    torch.testing.assert_close(variances, torch.linalg.svdvals(rows)[:12].square() / len(rows))
    torch.testing.assert_close(basis.T @ basis, torch.eye(12), atol=1e-4, rtol=0)
    torch.testing.assert_close((rows @ basis).square().mean(0), variances)


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 0}, {"delta": 0}, {"delta": 1}, {"clip": 0}, {"components": 0}]
)
def test_what_would_prove_nothing_is_refused(wrong):
    with pytest.raises(ValidationError):
        DpmeansConfig(**wrong)


def test_the_guarantee_says_whom_it_is_for():
    within, any_class = (measure(clothes(9), counts=c).guarantee for c in ("public", "noised"))
    assert "of its class" in str(within["adjacency"])
    assert "of any class" in str(any_class["adjacency"])
    assert "class sizes are public" in str(within["assumptions"])
    assert "class sizes" not in str(any_class["assumptions"])


def accuracy(**options):
    made, test = measure(clothes(1000), **options), clothes(500, start=1400)
    sums = read(made, **options)
    found = discriminant(sums, sums.embed(PUBLIC.images)).logits(test.images)
    return float((found.argmax(1) == test.labels).double().mean())


def test_a_larger_budget_teaches_more():
    found = [accuracy(epsilon=epsilon) for epsilon in (0.2, 2, 1e4)]
    assert found[0] + 0.1 < found[1] < found[2]
    assert found[2] > 0.7


@pytest.mark.parametrize("classes", [1, 2, 3, 10])
def test_contrasts_are_orthonormal_and_see_no_common_part(classes):
    found = _contrasts(classes)
    if classes > 1:
        torch.testing.assert_close(found @ found.T, torch.eye(classes - 1), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.sum(1), torch.zeros(len(found)), atol=1e-6, rtol=0)


def view(made, private, *, labels=True, **options):
    channels = {
        Channel.STATISTICS: read(made, **options),
        Channel.PUBLIC: PUBLIC,
        Channel.N_PRIVATE: len(private),
    }
    if labels:
        hard = torch.nn.functional.one_hot(private.labels, CLASSES).float()
        channels[Channel.BATCH_LABELS] = hard[None]
    return View(
        channels=channels,
        granted=frozenset(channels),
        threat_model="informed",
        scale=FASHION_SCALE,
        shape=(1, 28, 28),
        classes=CLASSES,
        device=torch.device("cpu"),
        rng=stream(use="attack"),
    )


def attacked(view):
    return ClassSums(Config()).reconstruct(view, {}, Budget(60, 1000, 1), silent)


def test_the_only_image_of_a_class_is_found_where_there_is_no_noise():
    private = clothes(200)
    one = torch.stack([(private.labels == c).nonzero()[0, 0] for c in range(CLASSES)])
    private, options = private[one], {"epsilon": 1e4, "clip": 2.0, "components": 120}
    found = attacked(view(measure(private, **options), private, **options))
    guess = torch.stack([PUBLIC.images[PUBLIC.labels == c].mean(0) for c in private.labels])
    error, blind = ((each - private.images).square().mean() for each in (found.images, guess))
    assert error < 0.3 * blind
    assert torch.equal(found.targets, torch.arange(CLASSES))


def test_under_much_noise_the_answer_is_the_public_class_mean():
    private, options = clothes(200), {"epsilon": 0.001}
    found = attacked(view(measure(private, **options), private, **options))
    means = torch.stack([PUBLIC.images[PUBLIC.labels == c].mean(0) for c in range(CLASSES)])
    assert float((found.images - means[private.labels]).square().mean()) < 0.01


def test_without_labels_answers_name_no_target():
    private = clothes(200)
    found = attacked(view(measure(private), private, labels=False))
    assert found.targets is None
    assert found.images.shape == (200, 1, 28, 28)


def test_images_are_shared_out_as_the_counts_say():
    of = shared_out(torch.tensor([1.6, -3.0, 3.1, 0.3]), 10)
    assert of.bincount(minlength=4).tolist() == [3, 0, 6, 1]
    assert shared_out(torch.tensor([-1.0, -2.0]), 4).bincount().tolist() == [2, 2]


def reason(**options):
    return plan(make_request(**{"attack": "classsums", **options}), registry()).reason or ""


def test_what_cannot_be_asked_of_sums_is_refused_in_words():
    assert "once" in reason(defense="dpmeans", rounds=2)
    assert "no encodings" in reason(defense="dpmeans", release="encodings")
    assert "such as dpmeans" in reason(defense="mixup", release="statistics")
    assert "held-out" in reason(defense="dpmeans", targets_from="heldout")
    assert "reads encodings" in reason(defense="dpmeans", attack="lmmse")
    with pytest.raises(UsageError, match="no other defense"):
        reason(defense="dpmeans+dpsgd")


def test_a_set_of_learners_has_a_reader_of_sums_only_where_sums_leave():
    of = {d: plan(make_request(defense=d, only="utility"), registry()) for d in ("dpmeans", "none")}
    assert "noisymeans" in of["dpmeans"].learners
    assert "noisymeans" not in of["none"].learners
    assert of["dpmeans"].kind == "statistics"
