"""LPIPS against an implementation that shares no code with it.

The metric's authors publish 0.722 and 0.138 (AlexNet) for three example images that their wheel
does not carry. So the reference here is the paper's formula (Zhang et al. 2018, equation 1)
written out in numpy, in float64, from the same trunk and the wheel's own heads, on real images.
"""

import math
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import sliding_window_view
from safetensors.torch import load_file

from harness.api import AssetFolder, IntegrityError, Samples, Scale, Scene
from harness_plugins.metrics.perceptual.distance import (
    ALEX,
    LpipsAlex,
    build,
    probe_pair,
    verify,
)

TRUNK = Path(find_spec("harness_plugins.trunks").origin).parent / "alexnet"
LAYERS = (("0", 4, 2), ("3", 1, 2), ("6", 1, 1), ("8", 1, 1), ("10", 1, 1))  # name, stride, pad
POOLED = {"3", "6"}  # layers that a 3×3 max pooling of stride 2 comes before


@pytest.fixture(scope="module")
def weights():
    return load_file(TRUNK / ALEX.file)


@pytest.fixture(scope="module")
def metric():
    scene = Scene(
        scale=Scale(mean=(0.5,), std=(0.5,)),
        device=torch.device("cpu"),
        assets=AssetFolder({ALEX.asset: TRUNK}),
        decoys=torch.empty(0),
        public=Samples(torch.empty(0), torch.empty(0)),
        labels=torch.empty(0),
        classes=0,
    )
    return LpipsAlex(scene)


def convolve(x, kernel, bias, stride, pad):
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    windows = sliding_window_view(x, kernel.shape[2:], axis=(1, 2))[:, ::stride, ::stride]
    return np.einsum("chwij,ocij->ohw", windows, kernel, optimize=True) + bias[:, None, None]


def pool(x):
    return sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2].max((3, 4))


def alexnet_features(x, weights):
    for name, stride, pad in LAYERS:
        kernel, bias = (weights[f"{name}.{part}"].double().numpy() for part in ("weight", "bias"))
        x = np.maximum(convolve(pool(x) if name in POOLED else x, kernel, bias, stride, pad), 0)
        yield x / (np.sqrt((x**2).sum(0)) + 1e-10)


def reference_lpips(first, second, weights):
    """Equation 1 of Zhang et al. 2018; images [3, h, w] in [-1,1]."""
    shift, scale = np.array([-0.030, -0.088, -0.188]), np.array([0.458, 0.448, 0.450])
    path = Path(find_spec("lpips").origin).parent / "weights/v0.1/alex.pth"
    heads = torch.load(path, map_location="cpu")
    prepared = [(x - shift[:, None, None]) / scale[:, None, None] for x in (first, second)]
    features = zip(*(alexnet_features(x, weights) for x in prepared), strict=True)
    return sum(
        (head.numpy().reshape(-1, 1, 1) * (a - b) ** 2).sum(0).mean()
        for head, (a, b) in zip(heads.values(), features, strict=True)
    )


def test_probe_distance_is_the_reference_value(weights):
    first, second = (image[0].double().numpy() for image in probe_pair())
    assert reference_lpips(first, second, weights) == pytest.approx(ALEX.probe_distance, rel=1e-5)


def test_equals_the_reference_on_real_colour_patches(metric, weights, photographs):
    images, truth = photographs
    expected = [
        reference_lpips(a.double().numpy() * 2 - 1, b.double().numpy() * 2 - 1, weights)
        for a, b in zip(images, truth, strict=True)
    ]
    np.testing.assert_allclose(metric.score(images, truth), expected, rtol=1e-4)


@pytest.fixture(scope="module")
def photographs():
    """Eight patches of 48 px of scikit-image's photograph of an astronaut, and their neighbours."""
    from skimage.data import astronaut

    image = torch.from_numpy(astronaut()).permute(2, 0, 1).float() / 255
    patches = image.unfold(1, 48, 48).unfold(2, 48, 48)[:, 2, :9].transpose(0, 1)
    return patches[:8].contiguous(), patches[1:9].contiguous()


def test_small_grey_images_are_enlarged_and_repeated(metric, photographs):
    grey = [x.mean(1, keepdim=True)[..., :28, :28] for x in photographs]
    by_hand = [
        torch.nn.functional.interpolate(x, (32, 32), mode="bilinear", antialias=True).repeat(
            1, 3, 1, 1
        )
        for x in grey
    ]
    torch.testing.assert_close(metric.score(*grey), metric.score(*by_hand))


def test_an_image_is_at_no_distance_from_itself(metric, photographs):
    assert metric.score(photographs[0], photographs[0]).tolist() == [0.0] * 8


def test_channels_that_are_not_a_picture_are_unavailable(metric):
    assert metric.unavailable((3, 28, 28)) is None
    assert "512 channels" in metric.unavailable((512, 3, 3))


def test_a_random_trunk_is_refused(weights):
    noise = {name: torch.randn_like(tensor) / 50 for name, tensor in weights.items()}
    with pytest.raises(IntegrityError, match="random or not the published one"):
        build(ALEX, noise)


def test_the_trunk_lpips_would_use_unasked_is_refused():
    from harness_plugins.torchvision_cpu import load_torchvision

    load_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import lpips

        network = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False)
    with pytest.raises(IntegrityError, match="random or not the published one"):
        verify(ALEX, network)


def test_a_trunk_with_one_bit_changed_is_refused(weights):
    changed = {name: tensor.clone() for name, tensor in weights.items()}
    changed["6.bias"][0] = math.nextafter(float(changed["6.bias"][0]), math.inf) + 1e-7
    with pytest.raises(IntegrityError, match="digest"):
        build(ALEX, changed)


def test_heads_that_are_not_v01_are_refused(weights):
    network = build(ALEX, weights)
    with torch.no_grad():
        network.lins[2].model[-1].weight.mul_(1.5)
    with pytest.raises(IntegrityError, match=r"heads or its scaling differ from v0\.1"):
        verify(ALEX, network)


def test_building_leaves_the_global_generator_alone(weights):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    build(ALEX, weights)
    torch.testing.assert_close(torch.rand(3), expected)
