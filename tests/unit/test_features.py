"""Features on disk: extracted once per image, mended where they are damaged."""

import shutil
from threading import Barrier

import pytest
import torch
from small_fashion import splits

from harness.api import CellFailed, Samples
from harness.running.samples import embed
from harness.store import Store
from harness.store.features import BATCH, INDEX, ROWS, SHAPE, FeatureStore, damaged, intact

IMAGES = splits(private=60).private.images


class Extractor:
    """Two numbers and a constant per image; counts what it is shown."""

    def __init__(self):
        self.shown = 0

    def __call__(self, images):
        assert len(images) == BATCH
        self.shown += len(images.unique(dim=0))
        brightness = images.float().mean((1, 2, 3))
        return torch.stack([brightness, brightness.square(), 0 * brightness], 1).view(-1, 3, 1, 1)


def features(tmp_path):
    return FeatureStore(Store(tmp_path), "key", (1, 28, 28))


def test_features_come_in_the_order_of_their_images(tmp_path):
    found = features(tmp_path).obtain(IMAGES, Extractor())
    assert found.shape == (60, 3, 1, 1)
    torch.testing.assert_close(found[:, 0, 0, 0], IMAGES.float().mean((1, 2, 3)))


def test_an_image_is_extracted_once_whatever_the_split(tmp_path):
    extract, store = Extractor(), features(tmp_path)
    first = store.obtain(IMAGES[:40], extract)
    assert extract.shown == 40
    again = store.obtain(IMAGES[20:60].flip(0), extract)
    assert extract.shown == 60
    assert torch.equal(again.flip(0)[:20], first[20:])


def test_the_same_image_twice_in_one_split_is_extracted_once(tmp_path):
    extract = Extractor()
    found = features(tmp_path).obtain(IMAGES[[3, 5, 3]], extract)
    assert extract.shown == 2
    assert torch.equal(found[0], found[2])


def test_rows_that_nobody_names_are_written_over(tmp_path):
    """A killed run leaves rows without an entry, or half an entry."""
    store = features(tmp_path)
    first = store.obtain(IMAGES[:10], Extractor())
    with (store.folder / ROWS).open("ab") as file:
        file.write(b"half a row")
    with (store.folder / INDEX).open("ab") as file:
        file.write(b"half")
    found = store.obtain(IMAGES[:20], Extractor())
    assert torch.equal(found[:10], first)
    assert len(intact(store.folder)) == 20


def test_a_damaged_row_is_extracted_again(tmp_path):
    store = features(tmp_path)
    first = store.obtain(IMAGES[:10], Extractor())
    with (store.folder / ROWS).open("r+b") as file:
        file.seek(4 * 3 * 4)
        file.write(b"\xff\xff")
    assert damaged(store.folder) == 1
    extract = Extractor()
    assert torch.equal(store.obtain(IMAGES[:10], extract), first)
    assert extract.shown == 1
    assert damaged(store.folder) == 0


def test_a_row_that_another_cache_wrote_is_extracted_again(tmp_path):
    ours, other = features(tmp_path / "ours"), features(tmp_path / "other")
    first = ours.obtain(IMAGES[:10], Extractor())
    other.obtain(IMAGES[:10], lambda images: Extractor()(images) + 1)
    for name in (ROWS, INDEX):
        shutil.copy(other.folder / name, ours.folder / name)
    assert damaged(ours.folder) == 10
    assert torch.equal(ours.obtain(IMAGES[:10], Extractor()), first)
    assert damaged(ours.folder) == 0


@pytest.mark.parametrize("data", [b"", b"float32", b"float32 3x", b"float3 3x1x1", None])
@pytest.mark.parametrize("name", [ROWS, INDEX, SHAPE])
def test_files_that_lost_their_bytes_are_made_again(tmp_path, name, data):
    store = features(tmp_path)
    first = store.obtain(IMAGES[:10], Extractor())
    (store.folder / name).unlink()
    if data is not None:
        (store.folder / name).write_bytes(data)
    assert damaged(store.folder) == (0 if name == INDEX else 10)
    assert torch.equal(store.obtain(IMAGES[:10], Extractor()), first)
    assert damaged(store.folder) == 0


def test_an_interrupted_extraction_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.store.features.KEPT", BATCH)

    def dies(images):
        if extract.shown:
            raise KeyboardInterrupt
        return extract(images)

    extract, seen = Extractor(), []
    with pytest.raises(KeyboardInterrupt):
        features(tmp_path).obtain(IMAGES, dies)
    assert extract.shown == BATCH
    found = features(tmp_path).obtain(IMAGES, extract, lambda *done: seen.append(done))
    assert extract.shown == len(IMAGES)
    assert seen == [(60 - BATCH, 60 - BATCH)]
    torch.testing.assert_close(found[:, 0, 0, 0], IMAGES.float().mean((1, 2, 3)))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_is_computed_on_one_core_and_as_many_at_a_time_as_there_are(tmp_path, threads):
    """So their bits are the same whatever the number of threads, which no key needs to name."""
    together = Barrier(threads, timeout=20)
    cores = set()

    def extract(images):
        together.wait()
        cores.add(torch.get_num_threads())
        return images.float().mean((1, 2, 3)).view(-1, 1, 1, 1)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        images = splits(private=3 * BATCH).private.images
        features(tmp_path).obtain(images, extract)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert cores == {1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_features_stay_in_the_type_that_they_come_in(tmp_path, dtype):
    def extract(images):
        return images[..., ::7, ::7].to(dtype) / 256

    store = features(tmp_path)
    for _ in range(2):
        found = store.obtain(IMAGES, extract)
        assert torch.equal(found, extract(IMAGES))
    assert (store.folder / ROWS).stat().st_size == found.numel() * dtype.itemsize


def test_rows_that_are_gone_are_extracted_again(tmp_path):
    store, extract = features(tmp_path), Extractor()
    first = store.obtain(IMAGES, extract)
    with (store.folder / ROWS).open("r+b") as file:
        file.truncate(40 * 3 * 4)
    assert torch.equal(store.obtain(IMAGES, extract), first)
    assert extract.shown == 60 + 20
    (store.folder / ROWS).unlink()
    assert damaged(store.folder) == 60


def test_a_space_is_scaled_by_the_public_pool():
    images = splits(private=20, public=40)
    found = embed(images, lambda x: x.float()[..., ::4, ::4])
    public = found.public.standardised(found.scale).images
    assert public.mean().item() == pytest.approx(0, abs=1e-5)
    assert public.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    assert (found.scale.low, found.scale.high, found.scale.of_images) == (None, None, False)
    assert torch.equal(found.private.labels, images.private.labels)


def test_constant_features_keep_their_scale():
    found = embed(splits(private=4), lambda x: torch.ones(len(x), 2, 1, 1))
    assert found.scale.std == (1.0, 1.0)


@pytest.mark.parametrize("shape", [(4,), (4, 3)])
def test_features_are_maps(shape):
    with pytest.raises(CellFailed, match="wanted \\[n, c, h, w\\]"):
        embed(splits(private=4), lambda x: torch.ones(len(x), *shape[1:]))


def test_features_are_finite():
    with pytest.raises(CellFailed, match="all of them finite"):
        embed(splits(private=4), lambda x: torch.full((len(x), 1, 2, 2), torch.nan))


def test_values_without_bounds_are_not_clamped():
    found = embed(splits(private=8), lambda x: 100 * x.float()[..., :2, :2])
    far = torch.full((1, 1, 2, 2), 1e6)
    assert torch.equal(found.scale.clamp(far), far)
    assert torch.equal(found.scale.within(far), far)
    assert isinstance(found.private, Samples)
