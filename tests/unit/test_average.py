"""Encodings of one image, known or found to be alike, averaged."""

import pytest
import torch
from sign_views import PUBLIC, masked, prepared
from skimage.metrics import structural_similarity
from views import MIXTURE, attack, clothes, released, snr

from harness.api import Config
from harness_plugins.attacks.average import AverageConfig, harness_attacks
from harness_plugins.attacks.average.attack import Average
from harness_plugins.attacks.average.search import cosine, most_similar, ssim
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.defenses.none import NoDefense

(SPEC,) = harness_attacks()
SMALL = {"base": 8, "images": 900, "epochs": 2}


def average(view, **options):
    config = AverageConfig(**{**SMALL, **options})
    return attack(Average(config), prepared(view, SPEC, config))


def mixed(n=80, rounds=8, without=(), k=2):
    return released(Mixup(MixupConfig(k=k)), clothes(n), PUBLIC, rounds=rounds, without=without)


def mean_snr(found, view):
    truth = clothes(len(found.images)).images
    if found.rows is not None:
        truth = truth[view.sources[0, :, 0]]
    return float(snr(found.images, truth).mean())


def null(n):
    truth = clothes(n).images
    return float(snr(PUBLIC.images.mean(0).expand_as(truth), truth).mean())


def test_undefended_images_come_back():
    view = released(NoDefense(Config()), clothes(40), PUBLIC, rounds=2)
    assert mean_snr(average(view), view) > 60


def test_partners_average_out_as_rounds_are_released():
    few, many = mixed(rounds=2), mixed(rounds=16)
    assert mean_snr(average(many), many) > mean_snr(average(few), few) + 2 > null(80) + 4


def test_masks_are_undone_before_averaging():
    view = masked(80, rounds=8, k=2)
    found = average(view)
    assert torch.equal(found.targets, torch.arange(80))
    assert mean_snr(found, view) > null(80) + 2


@pytest.mark.parametrize("similarity", ["cosine", "ssim"])
def test_without_sources_encodings_of_one_image_are_found(similarity):
    view = mixed()
    found = average(view, strength="search", similarity=similarity)
    assert torch.equal(found.rows, torch.arange(80))
    assert found.diagnostics["public_search_precision"] > 0.2  # 16 of 640 hold the image
    assert mean_snr(found, view) > null(80) + 1


def test_whitened_absolute_values_find_masked_encodings_of_one_image():
    found = average(masked(80, rounds=8, k=2, without=MIXTURE))
    assert found.rows is not None
    assert found.diagnostics["public_search_precision"] > 0.2


def test_the_share_is_the_expected_weight_over_its_square():
    view = mixed(rounds=40)
    weights = view.weights.flatten().double()
    expected = float(weights.mean() / weights.square().mean())
    assert average(view).diagnostics["share"] == pytest.approx(expected, rel=0.15)


def test_the_search_leaves_out_what_it_asks_about():
    rows = torch.eye(6) + 0.5 * torch.eye(6).roll(1, 0)
    found = most_similar(rows, 6, 2, cosine)
    asked = torch.arange(6).view(-1, 1)
    assert bool((found != asked).all())
    assert torch.equal(
        found.sort(1).values, torch.cat([(asked - 1) % 6, (asked + 1) % 6], 1).sort(1).values
    )


def test_likeness_is_ssim_of_values_that_span_what_all_rows_span():
    planes = clothes(6).images
    span = float(planes.max() - planes.min())
    options = {"data_range": span, "gaussian_weights": True, "use_sample_covariance": False}
    wanted = structural_similarity(*planes[:2, 0].double().numpy(), full=True, **options)[1]
    scores = ssim(planes[:2], planes)
    assert scores.shape == (2, 6)
    assert float(scores[0, 1]) == pytest.approx(wanted[5:-5:4, 5:-5:4].mean(), abs=1e-5)
