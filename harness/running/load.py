"""Load: private, public and test images, drawn from what datasets hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from harness.api.data import Collection, Samples, Scale, Splits
from harness.api.errors import IntegrityError, UsageError
from harness.api.randomness import Stream
from harness.rng import public_stream
from harness.running.stage import Stage, plugin_boundary
from harness.store.artifacts import Artifact
from harness.store.provenance import assets_identity, plugin_identity

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api.plugins import Progress
    from harness.asking.plan import Cell
    from harness.asking.request import Resolved
    from harness.running.run import Run

SPLITS = ("private", "public", "test")
OUTSIDE = "outside"
"""The fact of loaded splits that says how many private images no known split has."""


@dataclass(frozen=True, eq=False)
class LoadStage(Stage[Splits]):
    """The splits as the dataset has them."""

    name = "load"

    def facts(self) -> dict[str, Any]:
        """Data, sizes and seed."""
        cell, request = self.cell, self.cell.request
        return {
            "dataset": _identity(cell, cell.dataset),
            "public": _identity(cell, cell.public) if cell.public else None,
            "sizes": request.sizes.model_dump(),
            "exact": [request.private_size, request.public_size, request.test_size],
            "seed": request.seed,
            **({} if cell.apart_from is None else {"apart_from": cell.apart_from}),
        }

    def make(self, run: Run, progress: Progress) -> Artifact:
        """Read the datasets and draw from them."""
        cell = self.cell
        collection = collection_of(run, cell.dataset)
        public = collection_of(run, cell.public) if cell.public else None
        drawn = partial(load, collection, public, self._sizes)
        known = None if cell.apart_from is None else drawn(_stream(cell.apart_from))
        splits = drawn(_stream(cell.request.seed), known)
        samples = {name: getattr(splits, name) for name in SPLITS}
        images = {f"{name}.images": part.images for name, part in samples.items()}
        labels = {f"{name}.labels": part.labels for name, part in samples.items()}
        scale = splits.scale
        facts: dict[str, Any] = {
            "mean": scale.mean,
            "std": scale.std,
            "range": (scale.low, scale.high),
            "classes": splits.classes,
        }
        if known:
            facts[OUTSIDE] = int((~_among(splits.private, known.private)).sum())
        subjects = {
            f"{name}.subjects": part.subjects
            for name, part in samples.items()
            if part.subjects is not None
        }
        return Artifact({**images, **labels, **subjects}, facts)

    @property
    def _sizes(self) -> SplitSizes:
        """Sizes that come from a preset are at most so large; those asked for are exact."""
        request = self.cell.request
        unasked = (name for name in SPLITS if getattr(request, f"{name}_size") is None)
        return SplitSizes(**request.sizes.model_dump(), at_most=frozenset(unasked))

    @staticmethod
    def read(stored: Artifact) -> Splits:
        """The splits."""
        tensors, facts = stored.tensors, stored.facts
        parts = {
            n: Samples(tensors[f"{n}.images"], tensors[f"{n}.labels"], tensors.get(f"{n}.subjects"))
            for n in SPLITS
        }
        scale = Scale(tuple(facts["mean"]), tuple(facts["std"]), *facts["range"])
        return Splits(scale=scale, classes=tuple(facts["classes"]), **parts)


def _identity(cell: Cell, dataset: Resolved) -> dict[str, Any]:
    """A dataset by its code, its options and its data."""
    found = cell.fingerprints.get(dataset.written)
    data = {"data": found} if found is not None else {}
    assets = assets_identity(dataset.spec.assets)
    return {**plugin_identity(dataset), "assets": assets, **data}


def collection_of(run: Run, dataset: Resolved) -> Collection:
    """All that a dataset holds."""
    built = run.build("datasets", dataset.spec, dataset.config)
    with plugin_boundary(dataset.name):
        collection: Collection = built.load(run.assets)
    return collection


def _stream(seed: int) -> Stream:
    """What splits are drawn from."""
    return public_stream(seed).stream(stage="load")


def _among(samples: Samples, known: Samples) -> Tensor:
    """Which of these images are among the known ones, by content."""
    import torch

    contents = set(_contents(known.images))
    return torch.tensor([each in contents for each in _contents(samples.images)], dtype=torch.bool)


Adapt = Callable[[Samples], Samples]

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as Pillow's conversion to grey
_CHUNK = 4096
NOBODY = -1


@dataclass(frozen=True)
class SplitSizes:
    """How many images each split holds; those named in `at_most` may hold fewer."""

    private: int
    public: int
    test: int
    at_most: frozenset[str] = frozenset()


def _contents(images: Tensor) -> list[bytes]:
    """One hash per image of [n, c, h, w]; equal exactly where the bytes are.

    60 000 of CIFAR-10's size take 0.15 s.
    """
    rows = images.contiguous().numpy()
    return [hashlib.sha256(row).digest() for row in rows]


def _grey_or_colour(images: Tensor, channels: int) -> Tensor:
    """Float images [n, c, h, w] with `channels` channels: grey repeated, or colour as luma."""
    have = images.shape[1]
    if have == channels:
        return images
    if have == 1:
        return images.expand(-1, channels, -1, -1)
    if (have, channels) != (3, 1):
        raise UsageError(f"public images of {have} channels cannot stand in for {channels}")
    return (images * images.new_tensor(_LUMA).view(3, 1, 1)).sum(1, keepdim=True)


def _resized(samples: Samples, like: Tensor) -> Samples:
    """Images in the channels, size and number type of `like` [n, c, h, w]."""
    from torch.nn.functional import interpolate

    floats = interpolate(samples.unit().images, like.shape[-2:], mode="bilinear", antialias=True)
    floats = _grey_or_colour(floats, like.shape[1]).clamp(0, 1)
    images = floats if like.is_floating_point() else (floats * 255).round().to(like.dtype)
    return Samples(images, samples.labels)


def adapted(samples: Samples, like: Tensor) -> Samples:
    """Images in the shape and number type of `like`; unchanged where they have them."""
    if samples.images.shape[1:] == like.shape[1:] and samples.images.dtype == like.dtype:
        return samples
    starts = range(0, max(len(samples), 1), _CHUNK)
    return _joined([_resized(samples[i : i + _CHUNK], like) for i in starts])


def _unchanged(samples: Samples) -> Samples:
    return samples


def _joined(parts: list[Samples]) -> Samples:
    import torch

    images = torch.cat([part.images for part in parts])
    subjects = [part.subjects for part in parts if part.subjects is not None]
    labels = torch.cat([part.labels for part in parts])
    return Samples(images, labels, torch.cat(subjects) if len(subjects) == len(parts) else None)


@dataclass
class _Taken:
    """What other splits may not hold: contents of images, and subjects."""

    contents: set[bytes] = field(default_factory=set)
    subjects: set[int] = field(default_factory=set)

    def add(self, samples: Samples) -> None:
        """Take all that a split holds."""
        self.contents |= set(_contents(samples.images))
        self.subjects |= set(_subjects(samples)) - {NOBODY}

    def leaves(self, samples: Samples) -> Tensor:
        """Which of these rows are free."""
        import torch

        named = zip(_contents(samples.images), _subjects(samples), strict=True)
        free = [c not in self.contents and s not in self.subjects for c, s in named]
        return torch.tensor(free, dtype=torch.bool)


def _subjects(samples: Samples) -> list[int]:
    """By image."""
    return [NOBODY] * len(samples) if samples.subjects is None else samples.subjects.tolist()


def _together(order: Tensor, subjects: Tensor | None) -> Tensor:
    """Rows in their order, but for those of a subject, which follow the first of them."""
    if subjects is None:
        return order
    places: dict[int, list[int]] = {}
    for row, subject in zip(order.tolist(), subjects[order].tolist(), strict=True):
        places.setdefault(subject, []).append(row)
    return order.new_tensor(list(chain(*places.values())))


def _draw(
    name: str,
    samples: Samples,
    rows: Tensor,
    count: int,
    taken: _Taken,
    *,
    at_most: bool,
    adapt: Adapt = _unchanged,
) -> Samples:
    """The first `count` images of `rows` that are not `taken`, which they are then.

    Reads no more images than it needs. Raises UsageError when there are too few, unless
    `at_most` allows that.
    """
    order, kept = _together(rows, samples.subjects), [adapt(samples[:0])]
    missing = count
    while missing and len(order):
        some, order = adapt(samples[order[:missing]]), order[missing:]
        kept.append(some[taken.leaves(some)])
        missing -= len(kept[-1])
    if missing and not at_most:
        raise UsageError(_too_few(name, count, count - missing, len(samples)))
    drawn = _joined(kept)
    taken.add(drawn)
    return drawn


def _too_few(name: str, asked: int, found: int, available: int) -> str:
    less = (
        "those reserved for the public pool" if name == "private" else "those of the other splits"
    )
    note = "" if found == available else f" ({available} less {less})"
    return f"{asked} {name} images were asked for, and there are {found}{note}."


def _check_sizes(sizes: SplitSizes) -> None:
    if sizes.private < 1 or sizes.public < 0 or sizes.test < 0:
        raise UsageError(
            "the private split needs at least one image, and no split fewer than none; asked "
            f"for {sizes.private} private, {sizes.public} public and {sizes.test} test images."
        )


def _check_disjoint(splits: Iterable[tuple[str, Samples]]) -> None:
    """Raises IntegrityError if any image content is in two splits."""
    seen: dict[bytes, str] = {}
    for name, samples in splits:
        contents = set(_contents(samples.images))
        for content in contents & seen.keys():
            raise IntegrityError(
                f"an image of the {seen[content]} split is also in the {name} split "
                f"(sha256 {content.hex()[:16]}…); splits must be disjoint by content."
            )
        seen |= dict.fromkeys(contents, name)


def load(
    collection: Collection,
    public: Collection | None,
    sizes: SplitSizes,
    stream: Stream,
    known: Splits | None = None,
) -> Splits:
    """Draw private, public and test images, disjoint by content and by subject.

    Private images come from `collection.train`, but for what is reserved there; public ones from
    the rest of it, first what is reserved, or from `public.train`, resized (antialiased bilinear)
    and converted to the private images' channels. Their labels are kept where the classes are the
    same, else drawn at random: labels of other classes must mislead nobody. Test images come from
    `collection.test`. An image that occurs twice stays on the private side, as do all images of a
    subject; the last subject of a split may be cut short. A private split that may be smaller
    takes half of the pool at most. Each split has an order of its own, drawn from `stream`. What is
    private, or a test image, in the `known` splits comes last there.

    Raises UsageError when a split asks for more than there is, IntegrityError when splits meet.
    """
    import torch

    _check_sizes(sizes)
    taken = _Taken()

    def draw(name: str, samples: Samples, rows: Tensor, adapt: Adapt = _unchanged) -> Samples:
        count, spare = getattr(sizes, name), name in sizes.at_most
        return _draw(name, samples, rows, count, taken, at_most=spare, adapt=adapt)

    def order(name: str, samples: Samples) -> Tensor:
        rows = stream.stream(split=name).permutation(len(samples))
        if known is None or name == "public":
            return rows
        late = _among(samples, getattr(known, name))[rows]
        return torch.cat([rows[~late], rows[late]])

    if public is None and "private" in sizes.at_most:
        half = max(1, len(collection.train) // 2)
        sizes = replace(sizes, private=min(sizes.private, half))
    _, free = _parted(order("private", collection.train), collection.reserved)
    private = draw("private", collection.train, free)
    pool = collection if public is None else _of_strangers(public)
    rows = torch.cat(_parted(order("public", pool.train), pool.reserved))
    others = draw("public", pool.train, rows, lambda samples: adapted(samples, private.images))
    if sizes.public and not len(others):
        raise UsageError(
            f"{len(private)} private images leave none for the public pool; ask for fewer."
        )
    test = draw("test", collection.test, order("test", collection.test))
    _check_disjoint([("private", private), ("public", others), ("test", test)])
    if public is not None and public.classes != collection.classes:
        others = _unlabelled(others, len(collection.classes), stream)
    return Splits(private, others, test, collection.scale, collection.classes)


def _parted(rows: Tensor, reserved: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rows that are reserved, and the others, each in their order."""
    if reserved is None:
        return rows[:0], rows
    return rows[reserved[rows]], rows[~reserved[rows]]


def _of_strangers(public: Collection) -> Collection:
    """Another dataset: its numbers of subjects are of nobody here."""
    return replace(public, train=replace(public.train, subjects=None))


def _unlabelled(samples: Samples, classes: int, stream: Stream) -> Samples:
    """The same images under labels drawn at random."""
    return Samples(samples.images, stream.stream(what="labels").integers(classes, len(samples)))
