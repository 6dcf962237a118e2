"""The built-in metrics, against reference libraries and against arithmetic done by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity
from views import photographs

from harness.api import AssetFolder, Samples, Scale, Scene
from harness_plugins.datasets import fashion_mini
from harness_plugins.metrics.pixelwise.scores import Cosine, Mse, Psnr, SnrDb
from harness_plugins.metrics.reidentification import Reidentification
from harness_plugins.metrics.ssim import CHUNK_VALUES, Ssim

FLAT = Scale(mean=(0.5,), std=(0.5,))


def scene(scale=FLAT, decoys=None):
    decoys = torch.empty(0, 1, 28, 28) if decoys is None else decoys
    nobody = torch.empty(0, dtype=torch.int64)
    public = Samples(decoys[:0], nobody)
    return Scene(scale, torch.device("cpu"), AssetFolder({}), decoys, public, nobody, 0)


@pytest.fixture(scope="module")
def clothes():
    """400 real images [400, 1, 28, 28] in [0,1]."""
    with np.load(Path(fashion_mini.__file__).parent / "images" / "fashion-mini.npz") as file:
        return torch.from_numpy(file["train_images"][:400]).float() / 255


def test_snr_by_hand_on_three_images():
    # standardised: x = (1, -1), (1, 1), (1, -1)
    truth = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]]).view(3, 1, 1, 2)
    # guesses: (0, 0): the same energy lost; (0.8, 0.8): errors of 0.2; (-1, 1): errors of 2
    guesses = torch.tensor([[0.5, 0.5], [0.9, 0.9], [0.0, 1.0]]).view(3, 1, 1, 2)
    by_hand = [0.0, 10 * np.log10(2 / 0.08), 10 * np.log10(2 / 8)]
    assert SnrDb(scene()).score(guesses, truth).tolist() == pytest.approx(by_hand, abs=1e-5)


def test_zeros_score_0_db_on_standardised_images(clothes):
    scale = Scale(mean=(clothes.mean().item(),), std=(clothes.std().item(),))
    mean_image = torch.full_like(clothes, scale.mean[0])
    assert SnrDb(scene(scale)).score(mean_image, clothes).tolist() == pytest.approx([0] * 400)


def test_snr_is_capped_and_undefined_without_energy():
    truth = torch.tensor([0.3, 0.5]).view(2, 1, 1, 1).expand(2, 1, 4, 4)
    perfect, undefined = SnrDb(scene()).score(truth, truth).tolist()
    assert perfect == 120.0
    assert np.isnan(undefined)


def test_psnr_and_mse_by_hand():
    truth, guess = torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4, 4)
    guess[1] += 0.1
    assert Mse(scene()).score(guess, truth).tolist() == pytest.approx([0, 0.01])
    assert Psnr(scene()).score(guess, truth).tolist() == pytest.approx([120, 20])


def test_cosine_ignores_contrast_and_gives_silence_nothing():
    truth = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    guesses = torch.tensor([[0.6, 0.4], [0.0, 1.0], [0.5, 0.5]]).view(3, 1, 1, 2)
    scores = Cosine(scene()).score(guesses, truth.expand(3, 1, 1, 2))
    assert scores.tolist() == pytest.approx([1, -1, 0], abs=1e-6)


def test_ssim_is_scikit_image_s_to_the_last_bit(clothes):
    truth, images = clothes[:200], (clothes[200:] * 0.5 + clothes[:200] * 0.5).clamp(0, 1)
    assert Ssim(scene()).score(images, truth).tolist() == reference_ssim(images, truth)


@pytest.mark.parametrize(("count", "size"), [(200, 32), (3, 380)])
def test_ssim_is_scikit_image_s_on_colour_photographs_in_chunks(count, size):
    truth, images = photographs(count, size)
    assert truth.numel() > CHUNK_VALUES, "the batch must not fit one chunk"
    assert Ssim(scene()).score(images, truth).tolist() == reference_ssim(images, truth)


def reference_ssim(images, truth):
    """One call for each image."""
    options = {"data_range": 1, "gaussian_weights": True, "sigma": 1.5}
    return [
        structural_similarity(x, y, channel_axis=0, use_sample_covariance=False, **options)
        for x, y in zip(truth.double().numpy(), images.double().numpy(), strict=True)
    ]


def test_ssim_needs_room_for_one_window():
    assert Ssim(scene()).unavailable((1, 11, 11)) is None
    assert "11 px" in Ssim(scene()).unavailable((3, 10, 32))


def test_reidentification_agrees_with_brute_force(clothes):
    truth, decoys = clothes[:100], clothes[100:200]
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(1))
    images = (truth + 1.5 * noise).clamp(0, 1)
    gallery = torch.cat([truth, decoys])
    nearest = [((gallery - x) ** 2).mean((1, 2, 3)).argmin().item() for x in images]
    expected = [float(found == true) for true, found in enumerate(nearest)]
    scores = Reidentification(scene(decoys=decoys)).score(images, truth)
    assert scores.tolist() == expected
    assert 0 < scores.mean() < 1, "noise should hide some images and not others"


def test_decoys_make_reidentification_harder(clothes):
    truth, wrong = clothes[:2], clothes[:2].flip(0)
    alone = Reidentification(scene())
    assert alone.score(truth, truth).tolist() == [1, 1]
    assert alone.score(wrong, truth).tolist() == [0, 0]
    hidden = Reidentification(scene(decoys=truth * 0.95))
    assert hidden.score(truth * 0.96, truth).tolist() == [0, 0]


def test_a_tie_is_no_identification(clothes):
    twins = clothes[[0, 0, 1]]
    assert Reidentification(scene()).score(twins, twins).tolist() == [0, 0, 1]


def test_reidentification_hides_few_targets_among_all_decoys(clothes):
    metric = Reidentification(scene(decoys=clothes[100:]))
    assert metric.chance(50) == 1 / (50 + len(clothes) - 100)
    mean = clothes.mean(0, keepdim=True)
    assert Reidentification(scene()).score(mean, clothes[:1]).tolist() == [1]
    assert metric.score(mean, clothes[:1]).tolist() == [0]


def test_declarations_match_what_metrics_return(clothes):
    import importlib

    from harness_plugins.metrics import pixelwise, reidentification, ssim

    for plugin in (pixelwise, reidentification, ssim):
        for spec in plugin.harness_metrics():
            module, name = spec.factory.split(":")
            metric = getattr(importlib.import_module(module), name)(scene())
            for images in (clothes[200:], clothes[:200], 1 - clothes[:200]):
                scores = metric.score(images[:200], clothes[:200])
                assert scores.dtype == torch.float64
                assert scores.shape == (200,)
                assert spec.range[0] <= scores.min() <= scores.max() <= spec.range[1], spec.name


@pytest.mark.parametrize("cls", [SnrDb, Psnr, Mse, Cosine, Ssim])
def test_leaking_more_goes_the_declared_way(cls, clothes):
    from harness_plugins.metrics import pixelwise, ssim

    specs = [*pixelwise.harness_metrics(), *ssim.harness_metrics()]
    direction = next(s.leaks_more for s in specs if s.factory.endswith(":" + cls.__name__))
    close, far = (clothes[:50] * (1 - mix) + clothes[50:100] * mix for mix in (0.1, 0.9))
    metric = cls(scene())
    gain = metric.score(close, clothes[:50]).mean() - metric.score(far, clothes[:50]).mean()
    assert (gain > 0) == (direction == "higher")
