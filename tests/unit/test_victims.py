"""The built-in victims build for any image, can be cut anywhere, and learn."""

import pytest
import torch
from small_fashion import BOARD, CPU, OWNER, built_in, splits

from harness.api import ReleaseKind, UsageError
from harness.running.encoding import source_of
from harness.running.release import ReleaseProtocol, Stack, release
from harness.running.samples import standardised
from harness.running.train import train
from harness.running.training import correct, outputs
from harness.sandbox.rebuilding import cut_at
from harness_plugins.victims.normalisation import normalisation

NARROW = {
    "cnn": {"width": 4},
    "mlp": {"width": 8},
    "logistic": {},
    "lenet5": {},
    "resnet18": {"width": 4},
    "lenet_sigmoid": {},
    "strided": {"width": 4},
    "convnet6": {"width": 4},
    "planted": {"width": 4, "bins": 8},
}
NAMES = list(NARROW)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 28, 28), (3, 33, 17), (1, 96, 96)])
def test_images_of_any_size_become_logits(name, shape):
    model = built_in(name, **NARROW[name]).build(shape, classes=7)
    assert model(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("name", NAMES)
def test_every_block_is_a_cut_and_the_parts_compose_to_the_whole(name):
    victim = built_in(name, **NARROW[name])
    model = victim.build((1, 16, 16), 10).eval()
    images = torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    blocks = [block for block, _ in model.named_children()]
    assert victim.config.cut in blocks
    for block in blocks[:-1]:
        h, g = cut_at(model, block)
        assert torch.equal(g(h(images)), model(images))


@pytest.mark.parametrize("name", ["cnn", "resnet18"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 28, 28)])
def test_with_norm_group_an_image_is_seen_alone(name, shape):
    """Logits do not depend on the other images of the batch, and do on the image."""
    model = built_in(name, **NARROW[name], norm="group").build(shape, 10).double()
    images = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(model(images)[:1], model(images[:1]), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(model(images)[0], model(images)[1], atol=1e-3)


@pytest.mark.parametrize(
    ("channels", "groups"), [(1, 1), (4, 2), (7, 1), (32, 16), (48, 24), (64, 32), (512, 32)]
)
def test_groups_share_the_channels_by_two_or_more(channels, groups):
    assert normalisation("group", channels).num_groups == groups


def test_lenet5_is_cut_after_its_second_convolution_as_in_mixcon():
    victim = built_in("lenet5")
    h, _ = cut_at(victim.build((1, 28, 28), 10), victim.config.cut)
    assert h(torch.zeros(1, 1, 28, 28)).shape == (1, 16, 5, 5)


def test_resnet18_has_the_published_number_of_weights():
    """11 173 962: the CIFAR variant of ResNet-18 with ten classes (kuangliu/pytorch-cifar)."""
    model = built_in("resnet18", "paper").build((3, 32, 32), 10)
    assert sum(p.numel() for p in model.parameters()) == 11_173_962


def test_a_flat_input_is_refused_with_a_victim_that_takes_it():
    with pytest.raises(UsageError, match=r"'cnn' takes images.*not 784.*'mlp'"):
        built_in("cnn").build((784,), 10)


def test_the_default_victim_learns_fashion_in_seconds():
    data = splits(private=2000, public=0, test=1000)
    victim = built_in("cnn", epochs=4)
    plain = release(
        data,
        source_of(data, None, OWNER),
        Stack(),
        ReleaseKind.ENCODINGS,
        victim,
        ReleaseProtocol(),
        owner=OWNER,
        board=BOARD,
        device=CPU,
    )
    model = train(plain, victim, 10, BOARD, CPU)
    test = standardised(data.test, data.scale)
    assert correct(outputs(model, test.images, CPU), test.labels) > 800
