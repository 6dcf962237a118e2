"""A folder of one's own images."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from harness.api import AssetFolder, Collection, UsageError
from harness_plugins.datasets.folder import FolderConfig
from harness_plugins.datasets.folder.dataset import Folder
from harness_plugins.datasets.folder.files import fingerprint


def save(path: Path, seed: int, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = size
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(noise).convert(mode).save(path)


def pets(root: Path, cats: int = 10, dogs: int = 5, mode: str = "RGB") -> Path:
    for i in range(cats):
        save(root / "cat" / f"{i}.png", i, mode=mode)
    for i in range(dogs):
        save(root / "dog" / f"{i}.png", 100 + i, mode=mode)
    return root


def load(root: Path, **options: float) -> Collection:
    config = FolderConfig(**{"path": str(root), "size": 8, **options})
    return Folder(config).load(AssetFolder({}))


def marked(root: Path) -> str:
    return fingerprint(FolderConfig(path=str(root)))


# ---------------------------------------------------------------- what comes out


def test_sub_folders_are_classes_and_a_share_of_each_is_for_testing(tmp_path: Path) -> None:
    held = load(pets(tmp_path))
    assert held.classes == ("cat", "dog")
    assert held.train.labels.bincount().tolist() == [8, 4]
    assert held.test.labels.bincount().tolist() == [2, 1]
    assert held.train.images.shape == (12, 3, 8, 8)
    assert held.train.images.dtype == torch.uint8


def test_every_image_lands_on_one_side_with_its_own_label(tmp_path: Path) -> None:
    held = load(pets(tmp_path))
    found = {}
    for samples in (held.train, held.test):
        for image, label in zip(samples.images, samples.labels, strict=True):
            found[image.numpy().tobytes()] = held.classes[label]
    expected = {}
    for path in tmp_path.rglob("*.png"):
        pixels = np.asarray(Image.open(path)).transpose(2, 0, 1)
        expected[np.ascontiguousarray(pixels).tobytes()] = path.parent.name
    assert found == expected


def test_the_split_follows_the_content_not_the_names(tmp_path: Path) -> None:
    pets(tmp_path / "a")
    for path in (tmp_path / "a").rglob("*.png"):
        target = tmp_path / "b" / path.parent.name / f"renamed-{9 - int(path.stem)}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    first, second = load(tmp_path / "a"), load(tmp_path / "b")
    assert torch.equal(first.train.images, second.train.images)
    assert torch.equal(first.test.images, second.test.images)


def test_own_train_and_test_folders_are_kept(tmp_path: Path) -> None:
    pets(tmp_path / "train", 3, 3)
    save(tmp_path / "test" / "dog" / "x.png", 7)
    save(tmp_path / "test" / "cat" / "y.png", 8)
    held = load(tmp_path)
    assert held.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert held.test.labels.tolist() == [0, 1]


def test_grey_images_have_one_channel_and_one_in_colour_makes_all_of_them_rgb(
    tmp_path: Path,
) -> None:
    pets(tmp_path, mode="L")
    assert load(tmp_path).train.images.shape[1] == 1
    save(tmp_path / "dog" / "colour.png", 50)
    held = load(tmp_path)
    assert held.train.images.shape[1] == 3
    assert torch.equal(held.train.images[0, 0], held.train.images[0, 1])


def test_the_scale_is_that_of_the_train_images(tmp_path: Path) -> None:
    held = load(pets(tmp_path))
    unit = held.train.unit().images.double()
    assert held.scale.mean == pytest.approx(unit.mean((0, 2, 3)).tolist(), abs=1e-6)
    spread = unit.std((0, 2, 3), correction=0)
    assert held.scale.std == pytest.approx(spread.tolist(), abs=1e-6)


def test_long_images_are_brought_to_size_by_their_shorter_side_and_centre(tmp_path: Path) -> None:
    pets(tmp_path, 2, 2)
    bars = np.zeros((20, 60, 3), np.uint8)
    bars[:, 20:40] = 200  # the centre third is all that is kept
    Image.fromarray(bars).save(tmp_path / "cat" / "wide.png")
    held = load(tmp_path, size=10)
    images = torch.cat([held.train.images, held.test.images])
    assert any((image.float() - 200).abs().max() < 20 for image in images)


@pytest.mark.parametrize("suffix", ["jpg", "JPEG", "bmp", "webp", "gif", "tif", "pgm"])
def test_formats_of_all_sorts_are_read(suffix: str, tmp_path: Path) -> None:
    pets(tmp_path, 2, 2)
    save(tmp_path / "dog" / "deeper" / f"x.{suffix}", 60, size=(9, 9), mode="L")
    held = load(tmp_path)
    assert len(held.train) + len(held.test) == 5


def test_modes_of_all_sorts_become_rgb(tmp_path: Path) -> None:
    for i, mode in enumerate(["RGBA", "P", "LA", "1", "L"]):
        save(tmp_path / "cat" / f"{mode}.png", i, mode=mode)
    save(tmp_path / "dog" / "cmyk.jpg", 30, mode="CMYK")
    save(tmp_path / "dog" / "plain.png", 31)
    assert load(tmp_path).train.images.shape[1:] == (3, 8, 8)


def test_what_is_no_image_or_hidden_is_overlooked(tmp_path: Path) -> None:
    pets(tmp_path)
    before = marked(tmp_path)
    (tmp_path / "README.txt").write_text("notes")
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"x")
    (tmp_path / "cat" / ".hidden.png").write_bytes(b"x")
    (tmp_path / ".git").mkdir()
    assert marked(tmp_path) == before
    assert load(tmp_path).classes == ("cat", "dog")


# ---------------------------------------------------------------- what is refused


def test_an_unreadable_image_is_named(tmp_path: Path) -> None:
    pets(tmp_path)
    (tmp_path / "dog" / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(UsageError, match=r"dog/broken\.png cannot be read as an image"):
        load(tmp_path)


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp"])
def test_an_image_that_is_cut_off_is_named(suffix: str, tmp_path: Path) -> None:
    pets(tmp_path)
    path = tmp_path / "dog" / f"half.{suffix}"
    save(path, 1, size=(64, 64))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UsageError, match=rf"half\.{suffix} cannot be read"):
        load(tmp_path)


def test_deep_images_are_refused_rather_than_cut_to_eight_bits(tmp_path: Path) -> None:
    pets(tmp_path)
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(tmp_path / "dog" / "scan.png")
    with pytest.raises(UsageError, match=r"scan\.png .* more than 8 bits per channel"):
        load(tmp_path)


def test_without_a_place_the_fingerprint_says_how_it_should_look(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"folder\[path=PATH\]; expected PATH/CLASS/image\.png"):
        fingerprint(FolderConfig())
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere; expected PATH/CLASS"):
        marked(tmp_path / "nowhere")


def test_too_few_classes_or_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has 0 sub-folders of images"):
        marked(tmp_path)
    save(tmp_path / "cat" / "0.png", 0)
    with pytest.raises(UsageError, match="has 1 sub-folders of images"):
        marked(tmp_path)
    (tmp_path / "dog").mkdir()
    with pytest.raises(UsageError, match=r"no images in .*dog; looked for \.bmp"):
        marked(tmp_path)


def test_a_class_of_one_image_cannot_be_parted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"classes \['dog'\] have one image each"):
        load(pets(tmp_path, dogs=1))


def test_test_classes_that_train_has_not_are_refused(tmp_path: Path) -> None:
    pets(tmp_path / "train", 2, 2)
    pets(tmp_path / "test", 2, 2)
    save(tmp_path / "test" / "fox" / "0.png", 0)
    with pytest.raises(UsageError, match=r"test has classes that train has not: \['fox'\]"):
        marked(tmp_path)


def test_images_of_one_colour_are_refused(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        for i in range(2):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / name / f"{i}.png")
    with pytest.raises(UsageError, match="one and the same value"):
        load(tmp_path)


# ---------------------------------------------------------------- the fingerprint


def test_the_fingerprint_follows_paths_and_contents_and_nothing_else(tmp_path: Path) -> None:
    here = pets(tmp_path / "here")
    first = marked(here)
    assert marked(shutil.copytree(here, tmp_path / "there")) == first
    assert fingerprint(FolderConfig(path=str(here), size=64, test=0.5)) == first
    (here / "cat" / "0.png").touch()
    assert marked(here) == first
    (here / "cat" / "0.png").rename(here / "cat" / "00.png")
    assert marked(here) != first


def test_one_changed_byte_changes_the_fingerprint(tmp_path: Path) -> None:
    first = marked(pets(tmp_path))
    path = tmp_path / "dog" / "3.png"
    data = io.BytesIO(path.read_bytes()).getvalue()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert marked(tmp_path) != first


def test_two_folders_in_one_cell_each_keep_their_own_fingerprint(tmp_path):
    """Private and public images from two folders: a change in either changes the cache keys."""
    from PIL import Image

    from harness.asking.plan import plan
    from harness.asking.registry import registry
    from harness.asking.request import make_request
    from harness.running.load import LoadStage
    from harness.running.run import equip

    def draw(folder, shade):
        for name in ("a", "b"):
            (tmp_path / folder / name).mkdir(parents=True, exist_ok=True)
            for i in range(2):
                picture = Image.new("L", (32, 32), shade + i)
                picture.save(tmp_path / folder / name / f"{i}.png")

    def key():
        own, other = (f"folder[path={tmp_path / name}]" for name in ("own", "other"))
        cell = plan(make_request(dataset=own, public=other), registry())
        return LoadStage(equip(cell, tmp_path)).key

    draw("own", 10)
    draw("other", 90)
    first = key()
    assert key() == first
    draw("own", 50)
    second = key()
    draw("other", 150)
    assert len({first, second, key()}) == 3
