"""SSIM with gradients and of all pairs, against scikit-image on real images and on noise."""

import pytest
import torch
from skimage.metrics import structural_similarity
from views import SCALE, clothes, photographs

from harness_plugins.structural_similarity import mean_ssim, ssim_of_pairs

COUNT = 200
FLOAT64, FLOAT32 = 1e-12, 3e-5
"""Held tightly where arithmetic allows. Variances are small differences of large numbers, of which
float32 holds seven digits."""


def grey():
    images = SCALE.within(SCALE.restore(clothes(2 * COUNT).images))
    return images[:COUNT], images[COUNT:].lerp(images[:COUNT], 0.5)


def colour():
    return photographs(COUNT, 32)


def noise():
    drawn = torch.rand(2, COUNT, 3, 28, 32, generator=torch.Generator().manual_seed(0))
    return drawn.unbind()


def reference(truth, images):
    """[n, m] float64."""
    options = {"data_range": 1, "gaussian_weights": True, "use_sample_covariance": False}
    known, found = truth.double().numpy(), images.double().numpy()
    return torch.tensor(
        [[structural_similarity(x, y, channel_axis=0, **options) for y in found] for x in known],
        dtype=torch.float64,
    )


@pytest.mark.parametrize("pictures", [grey, colour, noise])
def test_the_mean_is_scikit_image_s_on_200_images(pictures):
    truth, images = pictures()
    wanted = torch.cat([reference(truth[[i]], images[[i]])[0] for i in range(COUNT)])
    found = mean_ssim(images.double(), truth.double())
    torch.testing.assert_close(found, wanted, atol=FLOAT64, rtol=0)
    torch.testing.assert_close(
        mean_ssim(images.float(), truth.float()).double(), wanted, atol=FLOAT32, rtol=0
    )


@pytest.mark.parametrize("pictures", [grey, colour, noise])
def test_all_pairs_are_scikit_image_s_on_200_images(pictures):
    truth, images = pictures()
    wanted = reference(truth, images[:2])
    found = torch.cat(list(ssim_of_pairs(truth.double(), images[:2].double(), 1)))
    torch.testing.assert_close(found, wanted, atol=FLOAT64, rtol=0)
    found = torch.cat(list(ssim_of_pairs(truth.float(), images[:2].float(), 1)))
    torch.testing.assert_close(found.double(), wanted, atol=FLOAT32, rtol=0)


def test_pairs_come_in_blocks_of_rows():
    rows, others = torch.rand(300, 1, 11, 11), torch.rand(1000, 1, 11, 11)
    blocks = list(ssim_of_pairs(rows, others, 1))
    assert len(blocks) > 1
    whole = torch.cat(blocks)
    assert whole.shape == (300, 1000)
    alone = torch.cat(list(ssim_of_pairs(rows[-1:], others, 1)))
    torch.testing.assert_close(whole[-1:], alone)


def test_ssim_can_be_learned_from():
    images, truth = torch.rand(2, 2, 2, 12, 13, dtype=torch.float64).unbind()
    assert torch.autograd.gradcheck(mean_ssim, (images.requires_grad_(), truth))


def test_of_images_smaller_than_a_window_one_window_is_as_large_as_the_image():
    images, truth = torch.rand(2, 3, 1, 5, 7, dtype=torch.float64).unbind()
    steps = torch.arange(-3.0, 4.0, dtype=torch.float64)
    taps = torch.exp(-0.5 * (steps / 1.5) ** 2)
    down, across = taps[1:-1] / taps[1:-1].sum(), taps / taps.sum()
    window = torch.outer(down, across)
    x, y = ((window * each).sum((1, 2, 3)) for each in (images, truth))
    vx, vy, vxy = (
        (window * one * other).sum((1, 2, 3))
        for one, other in ((images, images), (truth, truth), (images, truth))
    )
    c1, c2 = 0.01**2, 0.03**2
    wanted = (2 * x * y + c1) * (2 * (vxy - x * y) + c2)
    wanted /= (x**2 + y**2 + c1) * (vx - x**2 + vy - y**2 + c2)
    torch.testing.assert_close(mean_ssim(images, truth), wanted)
    pairs = torch.cat(list(ssim_of_pairs(images, truth, 4)))
    torch.testing.assert_close(pairs.diagonal(), wanted)
