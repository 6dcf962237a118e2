"""The learned linear map: against a formula, on signs that are hidden, with and without sources."""

import pytest
import torch
from views import attack, clothes, released, snr

from harness.api import Channel, Config
from harness_plugins.attacks.regression import RegressionConfig
from harness_plugins.attacks.regression.attack import Regression
from harness_plugins.attacks.regression.inputs import Inputs
from harness_plugins.attacks.regression.ridge import Sums, best_of
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.none import NoDefense
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix

pytestmark = pytest.mark.numeric
PRIVATE, PUBLIC = clothes(200), clothes(4000, start=200)
MAP = Regression(RegressionConfig(encodings=8000))


def null():
    """[n] SNR of the public mean of each image's class."""
    means = torch.stack([PUBLIC.images[PUBLIC.labels == c].mean(0) for c in range(10)])
    return snr(means[PRIVATE.labels], PRIVATE.images)


def test_the_sums_give_ridge_regression_that_spares_what_is_known():
    generator = torch.Generator().manual_seed(0)
    features, known = torch.randn(60, 5, generator=generator), torch.ones(60, 1)
    images = features @ torch.randn(5, 3, generator=generator) + 4
    sums = Sums()
    for part in (slice(0, 25), slice(25, 60)):
        sums.add(Inputs(features[part], known[part]), images[part])
    centred = (features - features.mean(0)).double()
    gram = centred.T @ centred
    for found in sums.maps():
        ridge = found.penalty * gram.diagonal().mean() * torch.eye(5)
        expected = torch.linalg.solve(gram + ridge, centred.T @ images.double())
        torch.testing.assert_close(found.seen.double(), expected, atol=1e-4, rtol=1e-4)
        left = images - features @ found.seen
        torch.testing.assert_close(found.told[0], left.mean(0), atol=1e-4, rtol=1e-4)


def test_the_penalty_is_the_one_that_errs_least():
    sums = Sums()
    sums.add(Inputs(torch.eye(3), torch.ones(3, 1)), torch.eye(3))
    best, error = best_of(sums, lambda tried: abs(tried.penalty - 1e-2))
    assert (best.penalty, error) == (1e-2, 0.0)


def test_images_come_back_where_nothing_hides_them():
    view = released(NoDefense(Config()), PRIVATE, PUBLIC)
    found = attack(MAP, view)
    assert float(snr(found.images, PRIVATE.images[found.targets]).mean()) > 30


def test_absolute_values_of_hidden_signs_tell_more_than_the_class():
    view = released(InstaHide(InstaHideConfig(k=2)), PRIVATE, PUBLIC)
    found = attack(MAP, view)
    scores = snr(found.images, PRIVATE.images[found.targets])
    assert float((scores - null()).mean()) > 1
    error = float((found.images - PRIVATE.images).square().mean())
    assert found.diagnostics["predicted_error"] == pytest.approx(error, rel=0.2)


def test_without_sources_each_row_is_decoded_by_itself():
    view = released(
        Singmix(SingmixConfig(tau=1)),
        PRIVATE,
        PUBLIC,
        without=(Channel.SOURCES, Channel.WEIGHTS),
    )
    found = attack(MAP, view)
    assert found.targets is None
    assert torch.equal(found.rows, torch.arange(len(PRIVATE)))
    informed = attack(MAP, released(Singmix(SingmixConfig(tau=1)), PRIVATE, PUBLIC))
    assert informed.rows is None
    told = released(Singmix(SingmixConfig(tau=1)), PRIVATE, PUBLIC).sources[0, :, 0]
    alone = float(snr(found.images, PRIVATE.images[told]).mean())
    mean = PUBLIC.images.mean(0).expand_as(PRIVATE.images)
    assert alone > float(snr(mean, PRIVATE.images).mean()) + 1
    assert float(snr(informed.images, PRIVATE.images).mean()) > alone + 1


def test_more_rounds_are_pooled():
    defense = Singmix(SingmixConfig(tau=1))
    one, four = (
        attack(MAP, released(defense, PRIVATE, PUBLIC, rounds=rounds)) for rounds in (1, 4)
    )
    scores = [float(snr(found.images, PRIVATE.images).mean()) for found in (one, four)]
    assert scores[1] > scores[0] + 1
