"""InstaHide's public patches, and what it does to private images before it mixes them."""

import pytest
import torch
from views import clothes, coloured, stream

from harness.api import CellFailed, Samples
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.augmentation import draw_moves
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.instahide.patches import (
    cut_patches,
    draw_patches,
    energy,
    public_pool,
    textured_patches,
)


def moved(images, law, seed=0):
    samples = unlabelled(images)
    return draw_moves(samples, law, stream(seed=seed)).move(samples, torch.arange(len(images)))


def unlabelled(images):
    return Samples(images, torch.zeros(len(images)))


@pytest.mark.parametrize("law", ["crop-flip", "affine"])
@pytest.mark.parametrize("size", [(28, 28), (20, 36)])
def test_moved_images_keep_their_shape_and_range_and_differ(law, size):
    images = coloured(clothes(60), size).images
    changed = moved(images, law)
    assert changed.shape == images.shape
    least, most = images.amin((0, 2, 3)), images.amax((0, 2, 3))
    assert (changed.amin((0, 2, 3)) >= least - 1e-5).all()
    assert (changed.amax((0, 2, 3)) <= most + 1e-5).all()
    assert ((changed - images).flatten(1).abs().amax(1) > 1e-3).float().mean() > 0.9


def test_a_crop_is_a_shift_by_up_to_4_pixels_out_of_black_mirrored_or_not():
    images = coloured(clothes(200), (12, 10)).images
    black = images.amin((0, 2, 3)).view(1, 3, 1, 1)
    frame = black.expand(200, 3, 20, 18).clone()
    frame[..., 4:-4, 4:-4] = images
    crops = [frame[..., y : y + 12, x : x + 10] for y in range(9) for x in range(9)]
    allowed = torch.stack([c for crop in crops for c in (crop, crop.flip(-1))], 1)
    hits = (allowed == moved(images, "crop-flip")[:, None]).flatten(2).all(2)
    assert hits.any(1).all()
    alone = hits.sum(1) == 1
    mirrored = hits[alone].int().argmax(1) % 2
    assert 0.35 < mirrored.float().mean() < 0.65
    assert len((hits[alone].int().argmax(1) // 2).unique()) > 60  # of 81 places


def test_an_affine_move_without_turn_or_shift_is_the_window_it_names():
    images = coloured(clothes(8), (16, 16)).images
    moves = draw_moves(unlabelled(images), "affine", stream())
    moves.numbers[:] = torch.tensor([0.5, 0.5, 0.5, 1.0, 0.5, 0.5])  # the whole image, upright
    torch.testing.assert_close(
        moves.move(unlabelled(images), torch.arange(8)), images, atol=1e-5, rtol=0
    )
    moves.numbers[:, 0] = 1.0  # and turned by 90 degrees
    turned = moves.move(unlabelled(images), torch.arange(8))
    either = [torch.rot90(images, times, (2, 3)) for times in (1, 3)]
    assert min(float((turned - other).abs().max()) for other in either) < 1e-4


def test_what_a_shift_uncovers_is_black():
    images = coloured(clothes(8), (16, 16)).images + 5
    moves = draw_moves(unlabelled(images), "affine", stream())
    moves.numbers[:] = torch.tensor([0.5, 1.0, 0.5, 1.0, 0.5, 0.5])  # half a side across
    right = moves.move(unlabelled(images), torch.arange(8))[..., 9:]
    black = images.amin((0, 2, 3)).view(1, 3, 1, 1)
    torch.testing.assert_close(right, black.expand_as(right))


@pytest.mark.parametrize("law", ["crop-flip", "affine"])
def test_a_round_mixes_each_image_in_one_place_and_the_next_in_another(law):
    images = coloured(clothes(50), (28, 28)).images
    moves = draw_moves(unlabelled(images), law, stream())
    rows = torch.tensor([[3, 7], [7, 3]])
    twice = moves.mix(unlabelled(images), rows, torch.full((2, 2), 0.5))
    torch.testing.assert_close(twice[0], twice[1])
    place = moves.move(unlabelled(images), torch.tensor([3, 7])).mean(0)
    torch.testing.assert_close(twice[0], place)
    assert not torch.equal(moved(images, law, seed=1), moved(images, law, seed=2))


@pytest.mark.parametrize("shape", [(50,), (64, 7, 7), (1, 4, 28)])
def test_only_images_are_augmented(shape):
    private = Samples(torch.randn(12, *shape), torch.arange(12) % 10)
    defense = InstaHide(InstaHideConfig(augment="affine"))
    with pytest.raises(CellFailed, match="use augment=none"):
        defense.encode(private, private, stream())


def test_patches_are_windows_of_half_to_all_of_a_public_image():
    ramp = torch.linspace(0, 1, 33).diff().cumsum(0).expand(1, 1, 32, 32)
    windows = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.5, 0.5]])
    left, right, whole = cut_patches(ramp.expand(3, -1, -1, -1), windows)
    assert left.max() < 0.55
    assert right.min() > 0.45
    torch.testing.assert_close(whole, ramp[0])
    step = left[0, 0, 10:20].diff().mean()
    assert float(step) == pytest.approx(1 / 64, rel=1e-4)  # half the window, twice the pixels


def test_flat_patches_are_dropped():
    # half of every second image is flat: its windows onto that half are redrawn
    images = coloured(clothes(200), (32, 32)).images
    images[::2, :, :, 15:] = 0
    pool = public_pool(images, 2)
    drawn = draw_patches(pool, 100, 2, stream())
    rows, windows = drawn.rows.flatten(), drawn.windows.flatten(0, 1)
    first = cut_patches(images[rows], windows[:, 0])
    assert (energy(first) < pool.flat).sum() > 5
    kept = textured_patches(pool, rows, windows)
    assert (energy(kept) >= pool.flat).all()
    fine = energy(first) >= pool.flat
    assert torch.equal(kept[fine], first[fine])


def test_flat_images_are_never_mixed_in():
    images = coloured(clothes(60), (32, 32)).images
    images[10:20] = 0.7
    public = Samples(images, torch.zeros(60, dtype=torch.int64))
    private = coloured(clothes(80), (32, 32))
    encoded = InstaHide(InstaHideConfig(k=6, scheme="cross")).encode(private, public, stream())
    used = encoded.secrets.sources[:, 2:] - 80
    assert not ((used >= 10) & (used < 20)).any()
    assert len(used.unique()) == len(public_pool(images, 4).usable)


def test_a_public_pool_of_flat_images_is_refused():
    images = coloured(clothes(5), (32, 32)).images
    flat = torch.cat([images[:3], torch.zeros(2, 3, 32, 32)])
    public = Samples(flat, torch.zeros(5, dtype=torch.int64))
    defense = InstaHide(InstaHideConfig(k=6, scheme="cross"))
    with pytest.raises(CellFailed, match=r"has . of 5 that are not flat"):
        defense.encode(coloured(clothes(8), (32, 32)), public, stream())


def test_a_patch_is_what_remains_of_an_encoding_of_black_images():
    private = Samples(torch.zeros(30, 3, 32, 32), torch.arange(30) % 10)
    public = coloured(clothes(40), (32, 32))
    encoded = InstaHide(InstaHideConfig(k=3, scheme="cross")).encode(private, public, stream())
    weights = encoded.secrets.weights[:, 2].view(-1, 1, 1, 1)
    patches = encoded.images.abs() / weights
    assert patches.max() <= public.images.abs().max() + 1e-4
    assert (patches.flatten(1).std(1) > 0.05).all()


def test_feature_maps_are_mixed_whole():
    maps = Samples(torch.randn(30, 16, 6, 6), torch.arange(30) % 10)
    private = Samples(torch.zeros(20, 16, 6, 6), torch.arange(20) % 10)
    encoded = InstaHide(InstaHideConfig(k=3, scheme="cross")).encode(private, maps, stream())
    source = encoded.secrets.sources[:, 2] - 20
    weight = encoded.secrets.weights[:, 2].view(-1, 1, 1, 1)
    torch.testing.assert_close(encoded.images.abs(), (maps.images[source] * weight).abs())
