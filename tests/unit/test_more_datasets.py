"""CIFAR-100, SVHN, Tiny-ImageNet, CIFAR-5m, X-rays, on small files of their real formats."""

from __future__ import annotations

import hashlib
import io
import resource
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from harness.api import AssetFolder, CellFailed, Config, UsageError
from harness_plugins.archives import unchanged
from harness_plugins.datasets.cifar5m import Cifar5mConfig
from harness_plugins.datasets.cifar5m.dataset import Cifar5m
from harness_plugins.datasets.cifar5m.files import fingerprint
from harness_plugins.datasets.cifar100 import ARCHIVE, CIFAR100
from harness_plugins.datasets.cifar100.dataset import Cifar100
from harness_plugins.datasets.svhn import SVHN
from harness_plugins.datasets.svhn.dataset import Svhn
from harness_plugins.datasets.tiny_imagenet import TINY_IMAGENET
from harness_plugins.datasets.tiny_imagenet.dataset import TinyImagenet
from harness_plugins.datasets.xrays import WHEEL, XRAYS, XraysConfig
from harness_plugins.datasets.xrays.dataset import Xrays


def pictures(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


# ---------------------------------------------------------------- CIFAR-100

NAMES = [f"class_{i}" for i in range(100)]


def records(fine: list[int], seed: int) -> bytes:
    labels = np.array([[label // 5, label] for label in fine], np.uint8)
    return np.hstack([labels, pictures(len(fine), 3072, seed=seed)]).tobytes()


def cifar100(where: Path, train: bytes, test: bytes) -> AssetFolder:
    members = {"train.bin": train, "test.bin": test}
    members["fine_label_names.txt"] = "\n".join(NAMES).encode() + b"\n"
    with tarfile.open(where / ARCHIVE, "w:gz") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(f"cifar-100-binary/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return AssetFolder({"cifar100": where})


def test_cifar100_reads_fine_labels_and_planes_out_of_the_official_archive(tmp_path: Path) -> None:
    assets = cifar100(tmp_path, records([7, 99, 0], seed=1), records([42], seed=2))
    held = Cifar100(Config()).load(assets)
    assert held.train.labels.tolist() == [7, 99, 0]
    assert held.test.labels.tolist() == [42]
    assert held.train.images.dtype == torch.uint8
    expected = pictures(3, 3072, seed=1).reshape(3, 3, 32, 32)
    assert np.array_equal(held.train.images.numpy(), expected)
    assert len(held.classes) == 100
    assert held.classes[42] == "class 42"


def test_cifar100_records_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    assets = cifar100(tmp_path, records([1], seed=0)[:-1], records([1], seed=0))
    with pytest.raises(ValueError, match="3073 bytes are not records of 3074 bytes"):
        Cifar100(Config()).load(assets)


def test_a_label_beyond_the_classes_is_refused(tmp_path: Path) -> None:
    assets = cifar100(tmp_path, records([100], seed=0), records([1], seed=0))
    with pytest.raises(ValueError, match="label 100 in CIFAR-100, which has 100 classes"):
        Cifar100(Config()).load(assets)


# ---------------------------------------------------------------- SVHN


def svhn(where: Path, **train: np.ndarray) -> AssetFolder:
    savemat(where / "train_32x32.mat", train, do_compression=True)
    test = {"X": pictures(32, 32, 3, 2, seed=9), "y": np.array([[3], [10]], np.uint8)}
    savemat(where / "test_32x32.mat", test)
    return AssetFolder({"svhn": where})


def test_svhn_reads_matlab_files_and_its_tens_are_zeros(tmp_path: Path) -> None:
    images = pictures(32, 32, 3, 4)
    assets = svhn(tmp_path, X=images, y=np.array([[1], [10], [9], [2]], np.uint8))
    held = Svhn(Config()).load(assets)
    assert held.train.labels.tolist() == [1, 0, 9, 2]
    assert held.test.labels.tolist() == [3, 0]
    assert held.train.images.shape == (4, 3, 32, 32)
    assert held.train.images[2, 1, 5, 8] == images[5, 8, 1, 2]
    assert held.classes == tuple("0123456789")


def test_rows_of_svhn_can_be_drawn_in_any_order(tmp_path: Path) -> None:
    images = pictures(32, 32, 3, 4)
    held = Svhn(Config()).load(svhn(tmp_path, X=images, y=np.ones((4, 1), np.uint8)))
    drawn = held.train[torch.tensor([3, 0])].images.contiguous().numpy()
    assert np.array_equal(drawn, images.transpose(3, 2, 0, 1)[[3, 0]])


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"X": pictures(32, 32, 3, 2)}, "holds no X .* with y"),
        ({"X": pictures(2, 32, 32, 3), "y": np.ones((2, 1))}, r"holds no X \[32, 32, 3, n\]"),
        ({"X": pictures(32, 32, 3, 2), "y": np.ones((1, 1))}, "y must give each image a label"),
        ({"X": pictures(32, 32, 3, 2), "y": np.zeros((2, 1))}, "label from 1 to 10"),
    ],
)
def test_a_matlab_file_of_something_else_is_refused(
    variables: dict[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        Svhn(Config()).load(svhn(tmp_path, **variables))


def test_what_is_no_matlab_file_is_refused_by_name(tmp_path: Path) -> None:
    assets = svhn(tmp_path, X=pictures(32, 32, 3, 1), y=np.ones((1, 1)))
    (tmp_path / "train_32x32.mat").write_bytes(b"not found" * 30)
    with pytest.raises(ValueError, match=r"train_32x32\.mat is not a Matlab file of SVHN"):
        Svhn(Config()).load(assets)


def test_files_that_arrive_as_they_should_be_are_moved_as_they_are(tmp_path: Path) -> None:
    arrived, folder = tmp_path / "arrived", tmp_path / "folder"
    arrived.mkdir()
    folder.mkdir()
    (arrived / "train_32x32.mat").write_bytes(b"x")
    unchanged(arrived, folder)
    assert (folder / "train_32x32.mat").read_bytes() == b"x"


# ---------------------------------------------------------------- Tiny-ImageNet


def jpeg(seed: int, mode: str = "RGB", side: int = 64) -> bytes:
    """A smooth picture that JPEG keeps well: one shade per seed."""
    shade = (40 * seed % 256, 128, 255 - 40 * seed % 256)
    sink = io.BytesIO()
    Image.new("RGB", (side, side), shade).convert(mode).save(sink, "JPEG", quality=95)
    return sink.getvalue()


def tiny_members() -> dict[str, bytes]:
    members = {
        "wnids.txt": b"n02\nn01\n",
        "words.txt": b"n01\tgoldfish, Carassius auratus\nn02\tegg\nn03\tnot in this set\n",
        "val/val_annotations.txt": b"val_0.JPEG\tn01\t0\t0\t62\t62\nval_1.JPEG\tn02\t0\t0\t9\t9\n",
        "val/images/val_0.JPEG": jpeg(5),
        "val/images/val_1.JPEG": jpeg(6),
        "test/images/test_0.JPEG": jpeg(9),
        "train/n01/n01_boxes.txt": b"n01_0.JPEG\t0\t0\t63\t63\n",
    }
    for number, label in (("n01", 1), ("n02", 3)):
        for i in range(2):
            members[f"train/{number}/images/{number}_{i}.JPEG"] = jpeg(label + i)
    return members


def tiny(where: Path, members: dict[str, bytes]) -> AssetFolder:
    with zipfile.ZipFile(where / "tiny-imagenet-200.zip", "w") as archive:
        for name, data in members.items():
            archive.writestr(f"tiny-imagenet-200/{name}", data)
    return AssetFolder({"tiny-imagenet": where})


def test_tiny_imagenet_takes_validation_images_for_testing(tmp_path: Path) -> None:
    held = TinyImagenet(Config()).load(tiny(tmp_path, tiny_members()))
    assert held.classes == ("egg", "goldfish, Carassius auratus")
    assert held.train.labels.tolist() == [0, 0, 1, 1]
    assert held.test.labels.tolist() == [1, 0]
    assert held.train.images.shape == (4, 3, 64, 64)
    red = held.train.images[:, 0].float().mean((1, 2))
    assert torch.allclose(red, torch.tensor([120.0, 160.0, 40.0, 80.0]), atol=3)


def test_tiny_imagenet_is_decoded_once_and_then_mapped(tmp_path: Path) -> None:
    assets = tiny(tmp_path, tiny_members())
    first = TinyImagenet(Config()).load(assets)
    (decoded,) = tmp_path.glob("decoded-*.npy")
    written = decoded.stat().st_mtime_ns
    again = TinyImagenet(Config()).load(assets)
    assert torch.equal(first.train.images, again.train.images)
    assert decoded.stat().st_mtime_ns == written
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        decoded.name,
        "tiny-imagenet-200.zip",
    ]


def test_another_archive_never_meets_what_was_decoded(tmp_path: Path) -> None:
    TinyImagenet(Config()).load(tiny(tmp_path, tiny_members()))
    changed = {**tiny_members(), "train/n02/images/n02_0.JPEG": jpeg(0)}
    held = TinyImagenet(Config()).load(tiny(tmp_path, changed))
    assert held.train.images[0, 0].float().mean() < 3


def test_grey_photographs_become_colour(tmp_path: Path) -> None:
    members = {**tiny_members(), "train/n02/images/n02_0.JPEG": jpeg(2, "L")}
    image = TinyImagenet(Config()).load(tiny(tmp_path, members)).train.images[0]
    assert torch.equal(image[0], image[1])


@pytest.mark.parametrize(
    ("name", "data", "error", "message"),
    [
        ("val/images/val_0.JPEG", b"no", ValueError, r"val_0\.JPEG in .* cannot be read"),
        ("val/images/val_0.JPEG", jpeg(1, side=32), ValueError, r"\(32, 32\), not 64 x 64"),
        ("wnids.txt", b"n01\n", ValueError, r"classes \['n02'\] .* not in wnids\.txt"),
        ("wnids.txt", None, KeyError, r"wnids\.txt"),
    ],
)
def test_an_archive_that_does_not_hold_together_is_refused_and_leaves_nothing(
    name: str, data: bytes | None, error: type[Exception], message: str, tmp_path: Path
) -> None:
    members = {key: value for key, value in tiny_members().items() if key != name}
    if data is not None:
        members[name] = data
    with pytest.raises(error, match=message):
        TinyImagenet(Config()).load(tiny(tmp_path, members))
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-imagenet-200.zip"]


def test_where_the_decoded_images_cannot_be_written_the_error_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "open_memmap", full)
    with pytest.raises(CellFailed, match=r"No space left on device.*HARNESS_CACHE"):
        TinyImagenet(Config()).load(tiny(tmp_path, tiny_members()))
    assert not list(tmp_path.glob("decoded-*"))


# ---------------------------------------------------------------- CIFAR-5m


def part(where: Path, number: int, n: int = 4, prefix: str = "", **change: np.ndarray) -> Path:
    arrays = {"X": pictures(n, 32, 32, 3, seed=number), "Y": np.arange(n) % 10, **change}
    np.savez(where / f"{prefix}part{number}.npz", **arrays)
    return where


def five(where: Path, **options: int) -> Cifar5mConfig:
    return Cifar5mConfig(path=str(where), **options)


@pytest.mark.parametrize("prefix", ["", "cifar5m_"])
def test_cifar5m_trains_on_one_part_and_tests_on_the_last(prefix: str, tmp_path: Path) -> None:
    for number, n in ((2, 6), (5, 3)):
        part(tmp_path, number, n, prefix)
    held = Cifar5m(five(tmp_path, part=2)).load(AssetFolder({}))
    assert held.train.images.shape == (6, 3, 32, 32)
    assert held.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    rows = held.test[torch.tensor([2, 0])].images.contiguous().numpy()
    assert np.array_equal(rows, pictures(3, 32, 32, 3, seed=5).transpose(0, 3, 1, 2)[[2, 0]])
    assert held.classes[0] == "airplane"


def test_mapping_writes_nothing_back(tmp_path: Path) -> None:
    part(part(tmp_path, 0), 5)
    before = (tmp_path / "part0.npz").read_bytes()
    Cifar5m(five(tmp_path)).load(AssetFolder({})).train.images.zero_()
    assert (tmp_path / "part0.npz").read_bytes() == before


def sparse_part(path: Path, n: int) -> None:
    """A stored .npz of `n` black images that takes no room on disk; its sums are not kept right."""
    header = io.BytesIO()
    described = {"descr": "|u1", "fortran_order": False, "shape": (n, 32, 32, 3)}
    np.lib.format.write_array_header_1_0(header, described)
    labels = io.BytesIO()
    np.lib.format.write_array(labels, np.zeros(n, np.int64))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("Y.npy", labels.getvalue())
        archive.writestr("X.npy", header.getvalue())
        entry = archive.getinfo("X.npy")
        archive.fp.seek(n * 3072, io.SEEK_CUR)  # type: ignore[union-attr]
        archive.start_dir = archive.fp.tell()  # type: ignore[union-attr]
        entry.file_size = entry.compress_size = entry.file_size + n * 3072


def test_a_part_larger_than_what_is_drawn_stays_on_disk(tmp_path: Path) -> None:
    sparse_part(tmp_path / "part0.npz", 100_000)
    part(tmp_path, 5)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    held = Cifar5m(five(tmp_path)).load(AssetFolder({}))
    drawn = held.train[torch.arange(0, 100_000, 1000)].images.contiguous()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert drawn.shape == (100, 3, 32, 32)
    assert (tmp_path / "part0.npz").stat().st_size > 300e6
    assert grown < 30_000  # kilobytes


def test_compressed_parts_are_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    part(tmp_path, 5)
    np.savez_compressed(tmp_path / "part0.npz", X=pictures(2, 32, 32, 3), Y=np.arange(2))
    with pytest.raises(UsageError, match=r"X\.npy in .*part0\.npz is compressed.*numpy\.savez"):
        Cifar5m(five(tmp_path)).load(AssetFolder({}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": pictures(4, 3, 32, 32)}, r"X in .* must be uint8 \[n,32,32,3\]"),
        ({"X": np.zeros((4, 32, 32, 3))}, r"it is float64 \[4, 32, 32, 3\]"),
        ({"Y": np.arange(3)}, "Y in .* one integer for each"),
        ({"Y": np.full(4, 10)}, "labels from 0 to 9"),
        ({"Y": np.array([{}] * 4)}, "pickled objects"),
    ],
)
def test_arrays_of_something_else_are_refused(
    change: dict[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    part(part(tmp_path, 5), 0, **change)
    with pytest.raises(UsageError, match=message):
        Cifar5m(five(tmp_path)).load(AssetFolder({}))


def test_without_files_the_fingerprint_says_what_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cifar5m\[path=FOLDER\] of part0\.npz"):
        fingerprint(Cifar5mConfig())
    with pytest.raises(UsageError, match=r"no part0\.npz or cifar5m_part0\.npz in"):
        fingerprint(five(tmp_path))


def test_a_part_that_is_cut_off_is_refused_by_name(tmp_path: Path) -> None:
    part(part(tmp_path, 0), 5)
    whole = (tmp_path / "part0.npz").read_bytes()
    (tmp_path / "part0.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"part0\.npz is no whole \.npz of X and Y"):
        fingerprint(five(tmp_path))


def test_the_fingerprint_follows_the_data_and_nothing_else(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for where in (here, there):
        where.mkdir()
        for number in (0, 1, 5):
            part(where, number)
    first = fingerprint(five(here))
    part(there, 1, n=5)
    assert fingerprint(five(there)) == first  # another place, and a part that is not used
    assert fingerprint(five(here, part=1)) != first
    changed = pictures(4, 32, 32, 3, seed=5)
    changed[3, 31, 31, 2] ^= 1
    part(there, 5, X=changed)
    assert fingerprint(five(there)) != first


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("asset", [CIFAR100, SVHN, TINY_IMAGENET])
def test_every_file_has_a_published_md5_and_a_host(asset: object) -> None:
    assert all(len(file.digest) == 4 + 32 for file in asset.files)  # type: ignore[attr-defined]
    addresses = asset.sources[0].where.split()  # type: ignore[attr-defined]
    assert [address.rsplit("/", 1)[1] for address in addresses] == [
        file.name
        for file in asset.files  # type: ignore[attr-defined]
    ]


# ---------------------------------------------------------------- X-rays


def xray(seed: int) -> bytes:
    """A smooth grey picture of 224 pixels, so that a decoder loses little of it."""
    coarse = Image.fromarray(pictures(7, 7, seed=seed))
    kept = io.BytesIO()
    coarse.resize((224, 224), Image.Resampling.BICUBIC).save(kept, "JPEG", quality=95)
    return kept.getvalue()


def wheel(where: Path, names: dict[str, int]) -> AssetFolder:
    """A package of the published form: by path below the images' folder, what each shows."""
    with zipfile.ZipFile(where / WHEEL, "w") as archive:
        archive.writestr("sofiimg/__init__.py", "raise SystemExit")
        archive.writestr("sofiimg/datasets/pneumonia/test/NORMAL/IM-0001-0001.png", b"no X-ray")
        for name, seed in names.items():
            archive.writestr(f"sofiimg/datasets/pneumonia/{name}", xray(seed))
    return AssetFolder({XRAYS.name: where})


CHILDREN = {
    "train/NORMAL/IM-0122-0001.jpeg": 1,
    "train/NORMAL/NORMAL2-IM-0122-0001.jpeg": 2,  # another series counts anew
    "train/NORMAL/NORMAL2-IM-0122-0001-0002.jpeg": 3,
    "train/PNEUMONIA/person1_bacteria_1.jpeg": 4,
    "train/PNEUMONIA/person1_bacteria_2.jpeg": 4,  # the same image again
    "train/PNEUMONIA/person12_virus_9.jpeg": 5,
    "test/PNEUMONIA/person1_virus_6.jpeg": 6,  # who is in train too
    "test/PNEUMONIA/person7_virus_1_3.jpeg": 7,
    "test/NORMAL/IM-0007-0001.jpeg": 8,
}


def test_xrays_are_told_apart_by_child_and_kept_once(tmp_path: Path) -> None:
    held = Xrays(XraysConfig()).load(wheel(tmp_path, CHILDREN))
    assert held.classes == ("normal", "pneumonia")
    assert held.train.images.shape == (6, 1, 224, 224)
    assert held.train.images.dtype == torch.uint8
    assert held.train.subjects is not None
    assert held.test.subjects is not None
    # By path: test comes before train, so the image of person1 in test is the first.
    assert held.train.labels.tolist() == [1, 0, 0, 0, 1, 1]
    person1, im122, normal2, again, *ill = held.train.subjects.tolist()
    assert normal2 == again
    assert person1 in ill
    assert len({person1, im122, normal2, *ill}) == 4
    assert held.test.labels.tolist() == [0, 1]
    assert not set(held.train.subjects.tolist()) & set(held.test.subjects.tolist())


def test_an_eighth_of_the_children_is_reserved_with_all_their_images(tmp_path: Path) -> None:
    names = {
        f"train/PNEUMONIA/person{child}_virus_{n}.jpeg": 2 * child + n
        for child in range(16)
        for n in (0, 1)
    }
    held = Xrays(XraysConfig(resolution=16)).load(
        wheel(tmp_path, {**names, "test/NORMAL/IM-1.jpeg": 99})
    )
    assert held.reserved is not None
    assert held.train.subjects is not None
    kept = held.train.subjects[held.reserved].tolist()
    assert len(kept) == 4
    assert len(set(kept)) == 2
    digests = {n: hashlib.sha256(f"person{n}".encode()).hexdigest() for n in range(16)}
    first = sorted(digests, key=lambda n: digests[n])[:2]
    numbers = sorted(f"person{n}" for n in range(16))
    found = {numbers[subject - 1] for subject in kept}  # IM-1 comes before them
    assert found == {f"person{n}" for n in first}


def test_smaller_xrays_are_shrunk_as_pillow_does_it(tmp_path: Path) -> None:
    assets = wheel(tmp_path, CHILDREN)
    small = Xrays(XraysConfig(resolution=56)).load(assets).test.images
    large = Xrays(XraysConfig()).load(assets).test.images
    assert small.shape == (2, 1, 56, 56)
    averaged = torch.nn.functional.avg_pool2d(large.float(), 4)
    assert (small.float() - averaged).abs().mean() < 3
