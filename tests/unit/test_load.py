"""Drawing private, public and test images that never meet."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from harness.api import Collection, IntegrityError, Samples, Scale, UsageError
from harness.rng import KeyedStream, board_key
from harness.running.load import SplitSizes, _check_disjoint, load

STREAM = KeyedStream(board_key(0))


def samples(n: int, *shape: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (n, *shape), generator=generator, dtype=torch.uint8)
    return Samples(images, torch.arange(n) % 10)


def collection(train: Samples, test: Samples) -> Collection:
    c = train.images.shape[1]
    return Collection(train, test, Scale((0.5,) * c, (0.2,) * c), tuple("abcdefghij"))


@pytest.fixture
def small() -> Collection:
    return collection(samples(100, 1, 8, 8, seed=1), samples(40, 1, 8, 8, seed=2))


def contents(part: Samples) -> set[bytes]:
    return {image.tobytes() for image in part.images.numpy()}


def rows(part: Samples, whole: Samples) -> list[int]:
    places = {image.tobytes(): i for i, image in enumerate(whole.images.numpy())}
    return [places[image.tobytes()] for image in part.images.numpy()]


def test_splits_hold_what_was_asked_for_from_where_it_belongs(small: Collection) -> None:
    splits = load(small, None, SplitSizes(30, 50, 20), STREAM)
    assert [len(part) for part in (splits.private, splits.public, splits.test)] == [30, 50, 20]
    assert contents(splits.private) | contents(splits.public) <= contents(small.train)
    assert contents(splits.test) <= contents(small.test)
    assert splits.shape == (1, 8, 8)
    assert splits.classes == small.classes


def test_labels_stay_with_their_images(small: Collection) -> None:
    splits = load(small, None, SplitSizes(30, 50, 20), STREAM)
    for part, whole in ((splits.private, small.train), (splits.public, small.train)):
        assert part.labels.tolist() == [row % 10 for row in rows(part, whole)]


def test_the_same_seed_draws_the_same_and_another_does_not(small: Collection) -> None:
    first, again = (load(small, None, SplitSizes(30, 50, 20), STREAM) for _ in range(2))
    other = load(small, None, SplitSizes(30, 50, 20), KeyedStream(board_key(1)))
    assert torch.equal(first.private.images, again.private.images)
    assert torch.equal(first.public.images, again.public.images)
    assert not torch.equal(first.private.images, other.private.images)


def test_a_larger_public_pool_moves_no_private_image(small: Collection) -> None:
    few = load(small, None, SplitSizes(30, 10, 20), STREAM)
    many = load(small, None, SplitSizes(30, 70, 40), STREAM)
    assert torch.equal(few.private.images, many.private.images)
    assert torch.equal(few.public.images, many.public.images[:10])
    assert torch.equal(few.test.images, many.test.images[:20])


def test_what_is_known_is_private_last(small: Collection) -> None:
    half = len(small.train) // 3
    known = load(small, None, SplitSizes(half, 1, 2), KeyedStream(board_key(0)))
    other = load(small, None, SplitSizes(half, 1, 2), KeyedStream(board_key(1)), known)
    assert not contents(other.private) & contents(known.private)
    assert not contents(other.test) & contents(known.test)
    most = len(small.train) - 1
    crowded = load(small, None, SplitSizes(most, 1, 2), KeyedStream(board_key(1)), known)
    assert len(crowded.private) == most


def test_planted_duplicates_stay_on_the_private_side(small: Collection) -> None:
    train, test = small.train, small.test
    train.images[50:] = train.images[:50]  # every image of train occurs twice
    test.images[:30] = train.images[:30]
    splits = load(small, None, SplitSizes(40, 20, 10), STREAM)
    private, public = contents(splits.private), contents(splits.public)
    assert not private & public
    assert not (private | public) & contents(splits.test)
    assert len(splits.public) == 20


def test_duplicates_count_against_what_there_is(small: Collection) -> None:
    small.train.images[50:] = small.train.images[:50]
    with pytest.raises(UsageError, match="of the other splits"):
        load(small, None, SplitSizes(50, 50, 10), STREAM)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (SplitSizes(101, 0, 0), "101 private images were asked for, and there are 100"),
        (SplitSizes(60, 41, 0), "41 public images were asked for, and there are 40"),
        (SplitSizes(10, 10, 41), "41 test images were asked for, and there are 40"),
        (SplitSizes(0, 10, 10), "needs at least one image"),
        (SplitSizes(10, -1, 10), "asked for 10 private, -1 public"),
    ],
)
def test_sizes_that_cannot_be_say_what_there_is(
    sizes: SplitSizes, message: str, small: Collection
) -> None:
    with pytest.raises(UsageError, match=message):
        load(small, None, sizes, STREAM)


def test_a_size_that_nobody_insists_on_is_cut_down(small: Collection) -> None:
    splits = load(small, None, SplitSizes(60, 500, 500, frozenset({"public", "test"})), STREAM)
    assert (len(splits.public), len(splits.test)) == (40, 40)


def test_public_images_of_another_shape_are_resized_and_coloured(small: Collection) -> None:
    grey = Samples(torch.full((12, 1, 16, 16), 77, dtype=torch.uint8), torch.arange(12))
    colour = collection(samples(20, 3, 8, 8), samples(5, 3, 8, 8, seed=9))
    splits = load(colour, collection(grey, grey), SplitSizes(10, 12, 5), STREAM)
    assert splits.public.images.shape == (12, 3, 8, 8)
    assert splits.public.images.dtype == torch.uint8
    assert splits.public.images.unique().tolist() == [77]
    assert sorted(splits.public.labels.tolist()) == list(range(12))


def test_colour_becomes_grey_by_luma_and_floats_stay_floats() -> None:
    red = Samples(torch.zeros(4, 3, 8, 8), torch.arange(4))
    red.images[:, 0] = 1
    grey = collection(samples(20, 1, 8, 8).unit(), samples(5, 1, 8, 8, seed=9).unit())
    splits = load(grey, collection(red, red), SplitSizes(10, 4, 5), STREAM)
    assert splits.public.images.shape == (4, 1, 8, 8)
    torch.testing.assert_close(splits.public.images, torch.full((4, 1, 8, 8), 0.299))


def test_resizing_is_antialiased_as_pillow_does_it() -> None:
    import numpy as np
    from PIL import Image

    large = samples(3, 3, 64, 64, seed=5)
    own = collection(samples(20, 3, 16, 16), samples(5, 3, 16, 16, seed=9))
    public = load(own, collection(large, large), SplitSizes(10, 3, 5), STREAM).public
    for label, image in zip(public.labels.tolist(), public.images, strict=True):
        picture = Image.fromarray(large.images[label].permute(1, 2, 0).numpy())
        small = np.asarray(picture.resize((16, 16), Image.Resampling.BILINEAR))
        difference = small.transpose(2, 0, 1).astype(int) - image.numpy().astype(int)
        assert np.abs(difference).max() <= 1


def test_a_public_image_that_becomes_a_private_one_is_dropped(small: Collection) -> None:
    """Duplicates are looked for after resizing, where they would leak."""
    doubled = small.train.images.repeat_interleave(2, 2).repeat_interleave(2, 3)
    shrunk = torch.nn.functional.interpolate(
        doubled.float() / 255, (8, 8), mode="bilinear", antialias=True
    )
    own = collection(
        Samples((shrunk * 255).round().to(torch.uint8), small.train.labels), small.test
    )
    twin = Samples(doubled, small.train.labels)
    splits = load(own, collection(twin, twin), SplitSizes(30, 70, 10), STREAM)
    assert not contents(splits.private) & contents(splits.public)
    with pytest.raises(UsageError, match="71 public images were asked for, and there are 70"):
        load(own, collection(twin, twin), SplitSizes(30, 71, 10), STREAM)


# ---------------------------------------------------------------- reserved images, and subjects


def reserving(small: Collection, count: int) -> Collection:
    return replace(small, reserved=torch.arange(100) % (100 // count) == 0)


def test_reserved_images_are_never_private_and_public_before_all_others(small: Collection) -> None:
    held = reserving(small, 20)
    for seed in range(3):
        stream = KeyedStream(board_key(seed))
        splits = load(held, None, SplitSizes(80, 20, 10), stream)
        assert sorted(rows(splits.public, small.train)) == list(range(0, 100, 5))
        more = load(held, None, SplitSizes(30, 50, 10), stream)
        assert all(row % 5 == 0 for row in rows(more.public[:20], small.train))
        assert all(row % 5 for row in rows(more.public[20:], small.train))
        assert all(row % 5 for row in rows(more.private, small.train))


def test_all_that_may_be_private_can_be(small: Collection) -> None:
    held = reserving(small, 20)
    assert held.may_be_private == 80
    spare = SplitSizes(80, 4000, 2000, frozenset({"public", "test"}))
    splits = load(held, None, spare, STREAM)
    assert (len(splits.private), len(splits.public)) == (80, 20)
    message = (
        r"81 private images were asked for, and there are 80 \(100 less those reserved for the "
        r"public pool\)\.$"
    )
    with pytest.raises(UsageError, match=message):
        load(held, None, SplitSizes(81, 0, 0), STREAM)


def test_who_reserves_nothing_draws_as_before(small: Collection) -> None:
    """The orders are those of the streams, by which records of older boards can be made again."""
    splits = load(small, None, SplitSizes(30, 50, 20), STREAM)
    order = STREAM.stream(split="private").permutation(100)[:30].tolist()
    assert rows(splits.private, small.train) == order
    others = STREAM.stream(split="public").permutation(100).tolist()
    assert rows(splits.public, small.train) == [r for r in others if r not in order][:50]


def showing(train: Samples, test: Samples, *, each: int = 4) -> Collection:
    """Every `each` images are of one subject; the first subjects of train are in test too."""
    parts = (replace(part, subjects=torch.arange(len(part)) // each) for part in (train, test))
    return collection(*parts)


@pytest.mark.parametrize("private", [1, 2, 17, 40])
def test_no_subject_stands_in_two_splits(private: int, small: Collection) -> None:
    held = showing(small.train, small.test)
    for seed in range(5):
        sizes = SplitSizes(private, 21, 12, frozenset({"test"}))
        splits = load(held, None, sizes, KeyedStream(board_key(seed)))
        assert (len(splits.private), len(splits.public)) == (private, 21)
        parts = (splits.private, splits.public, splits.test)
        found = [set(part.subjects.tolist()) for part in parts if part.subjects is not None]
        assert len(found) == 3
        assert not found[0] & found[1]
        assert not (found[0] | found[1]) & found[2]
        assert len(found[0]) == -(-private // 4)  # filled subject by subject, the last one cut


def test_the_rest_of_a_subject_that_was_cut_is_of_no_use(small: Collection) -> None:
    held = showing(small.train, small.test, each=50)
    splits = load(held, None, SplitSizes(30, 50, 0), STREAM)
    assert len(splits.public) == 50
    with pytest.raises(UsageError, match="51 public images were asked for, and there are 50"):
        load(held, None, SplitSizes(30, 51, 0), STREAM)


def test_subjects_of_another_dataset_are_other_people(small: Collection) -> None:
    held, other = (showing(samples(100, 1, 8, 8, seed=s), small.test) for s in (7, 8))
    splits = load(held, other, SplitSizes(100, 100, 0), STREAM)
    assert len(splits.public) == 100


def test_splits_that_meet_break_an_integrity_rule() -> None:
    part = samples(4, 1, 8, 8)
    with pytest.raises(IntegrityError, match="of the private split is also in the test split"):
        _check_disjoint([("private", part), ("test", part[3:])])


def test_labels_of_other_classes_are_replaced_and_those_of_the_same_are_kept() -> None:
    own = collection(samples(200, 1, 8, 8), samples(5, 1, 8, 8, seed=9))
    other = replace(
        collection(samples(200, 1, 8, 8, seed=5), own.test), classes=("ant", "bee", "cow")
    )
    alike = load(own, replace(other, classes=own.classes), SplitSizes(10, 100, 5), STREAM)
    foreign = load(own, other, SplitSizes(10, 100, 5), STREAM)
    assert torch.equal(alike.public.images, foreign.public.images)
    assert not torch.equal(alike.public.labels, foreign.public.labels)
    assert foreign.public.labels.max() < len(own.classes)
