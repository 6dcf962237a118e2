"""The victims of attacks on gradients and representations are the networks that papers attack."""

import pytest
import torch
from small_fashion import BOARD, CPU, built_in, splits
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, one_hot

from harness.api import UsageError
from harness.running.training import fit, fresh
from harness.sandbox.rebuilding import cut_at

PLAIN = ["lenet_sigmoid", "strided", "convnet6"]
CIFAR, DIGIT = (3, 32, 32), (1, 28, 28)


def model_of(name, shape, preset="standard", **options):
    return fresh(built_in(name, preset, **options), shape, 10, BOARD, device=CPU)


def shapes_along(model, shape):
    """The shape of one image behind each block."""
    shapes, x = {}, torch.zeros(2, *shape)
    for name, block in model.named_children():
        x = block(x)
        shapes[name] = tuple(x.shape[1:])
    return shapes


def weights(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_lenet_sigmoid_is_the_network_that_dlg_published():
    """Three convolutions of 12 channels, 768 features at 32 px, 588 for a digit."""
    model = model_of("lenet_sigmoid", CIFAR)
    assert shapes_along(model, CIFAR) == {
        "conv1": (12, 16, 16),
        "conv2": (12, 8, 8),
        "conv3": (12, 8, 8),
        "flatten": (768,),
        "head": (10,),
    }
    assert weights(model) == (75 + 1) * 12 + 2 * (300 + 1) * 12 + (768 + 1) * 10
    assert model_of("lenet_sigmoid", DIGIT).head.in_features == 588


@pytest.mark.parametrize("spread", [0.5, 0.1])
def test_lenet_sigmoid_starts_from_uniform_weights_and_biases(spread):
    model = model_of("lenet_sigmoid", CIFAR, spread=spread)
    drawn = torch.cat([parameter.flatten() for parameter in model.parameters()])
    shares = torch.histc(drawn, bins=10, min=-spread, max=spread) / len(drawn)
    assert drawn.abs().max() <= spread
    torch.testing.assert_close(shares, torch.full((10,), 0.1), atol=0.01, rtol=0)
    assert all(block.conv.bias.abs().max() > spread / 2 for block in model[:3])


def test_strided_halves_the_image_three_times():
    assert shapes_along(model_of("strided", CIFAR), CIFAR) == {
        "conv1": (32, 32, 32),
        "conv2": (64, 16, 16),
        "conv3": (64, 8, 8),
        "conv4": (128, 4, 4),
        "flatten": (2048,),
        "head": (10,),
    }


def test_convnet6_has_six_layers_of_weights_and_48_000_of_them():
    model = model_of("convnet6", DIGIT)
    assert list(shapes_along(model, DIGIT)) == [
        *(f"conv{k}" for k in range(1, 6)),
        "flatten",
        "head",
    ]
    assert sum(parameter.ndim > 1 for parameter in model.parameters()) == 6
    assert weights(model) == 48_234


@pytest.mark.parametrize("name", PLAIN)
def test_gradients_of_many_images_at_once_are_those_of_each_alone(name):
    model = model_of(name, DIGIT)
    data = splits(private=3, public=0, test=0).private
    images = data.images.float() / 255
    parameters = dict(model.named_parameters())

    def loss(parameters, image, label):
        return cross_entropy(functional_call(model, parameters, (image[None],)), label[None])

    together = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, images, data.labels)
    for k, (image, label) in enumerate(zip(images, data.labels, strict=True)):
        alone = grad(loss)(parameters, image, label)
        for key, gradient in alone.items():
            torch.testing.assert_close(together[key][k], gradient, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lenet_sigmoid", {}),
        ("strided", {"width": 8}),
        ("convnet6", {"width": 8}),
        ("vgg16", {"width": 8}),
    ],
)
def test_a_few_steps_lower_the_loss(name, options):
    victim = built_in(name, "quick", **{"epochs": 12, "batch_size": 20, **options})
    data = splits(private=100, public=0, test=0).private
    images, labels = data.images.float() / 128 - 1, one_hot(data.labels, 10).float()
    model = fresh(victim, DIGIT, 10, BOARD, device=CPU)
    before = cross_entropy(model(images), labels).item()
    fit(model, images[None], labels[None], victim.config, BOARD, device=CPU)
    assert cross_entropy(model(images), labels).item() < 0.8 * before


def test_vgg16_is_column_d_and_cut_after_its_second_block():
    """14 728 266 weights as the CIFAR variant is published, less the 4 224 biases of convolutions.

    BatchNorm takes the means off, so that those biases would do nothing.
    """
    victim = built_in("vgg16", "paper")
    model = fresh(victim, CIFAR, 10, BOARD, device=CPU)
    assert shapes_along(model, CIFAR) == {
        "block1": (64, 16, 16),
        "block2": (128, 8, 8),
        "block3": (256, 4, 4),
        "block4": (512, 2, 2),
        "block5": (512, 1, 1),
        "pool": (512,),
        "head": (10,),
    }
    assert weights(model) == 14_728_266 - 4_224
    assert victim.config.cut == "block2"


@pytest.mark.parametrize("shape", [DIGIT, CIFAR, (3, 17, 40), (1, 96, 96)])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_vgg16_takes_one_image_of_17_pixels_or_more_in_training(shape, norm):
    model = model_of("vgg16", shape, width=4, norm=norm).train()
    assert model(torch.rand(1, *shape)).shape == (1, 10)


def test_vgg16_refuses_images_that_it_would_pool_to_nothing():
    with pytest.raises(
        UsageError, match=r"'vgg16' takes images.*at least 17x17 pixels, not 3x16x40"
    ):
        model_of("vgg16", (3, 16, 40))


def test_every_block_of_vgg16_is_a_cut():
    model = model_of("vgg16", DIGIT, width=4).eval()
    images = torch.rand(2, *DIGIT, generator=torch.Generator().manual_seed(0))
    for name, _ in list(model.named_children())[:-1]:
        h, g = cut_at(model, name)
        assert torch.equal(g(h(images)), model(images))
