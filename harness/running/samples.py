"""Samples: the splits in their space, as images or features, and which of them are judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from harness.api.data import Samples, SamplesOnDemand, Scale, Splits
from harness.api.errors import CellFailed, UsageError
from harness.running.load import LoadStage, adapted
from harness.running.stage import Output, plugin_boundary
from harness.store.provenance import (
    assets_identity,
    module_sha256,
    packages_of,
    plugin_identity,
    sha256_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from harness.asking.plan import Cell
    from harness.running.run import Run

HELD_OUT = 100
"""Held-out images that are judged where the user names no number: as many as MixCon inverts."""
OF_GRADIENTS = 16
"""Images judged of gradients and updates, where the user names no number: each costs a model's
size."""
CHUNK = 4096
"""Samples that are standardised at a time."""
HELD, FLOAT32 = 1 << 30, 4
"""Bytes of samples that are standardised once for all rounds, and of one number."""


@dataclass(frozen=True, eq=False)
class Space(Output[Splits]):
    """Private, public and test samples in the space; each image's features are stored once."""

    @property
    def inputs(self) -> tuple[LoadStage]:
        """The images."""
        return (LoadStage.of(self.cell),)

    def facts(self) -> dict[str, Any]:
        """The space, and what names its features."""
        return {"space": space_identity(self.cell)}

    def obtain(self, run: Run) -> Splits:
        """The images themselves, or features of them, those that were met before from disk."""
        images = run(LoadStage.of(self.cell))
        space = self.cell.space
        if not space.spec.extracts and space.spec.scale is None:
            return images
        if not images.scale.of_images:
            raise UsageError(
                f"'{space.name}' is a space of images, and '{self.cell.dataset.name}' has vectors; "
                "leave --space at pixels."
            )
        if not space.spec.extracts:
            return under(images, space.spec.scale)
        extractor = run.build("spaces", space.spec, space.config)
        with plugin_boundary(space.name):
            return embed(images, lambda batch: _features(run, extractor, batch))


def features_key(cell: Cell) -> str:
    """Key of a space's features, whatever the images and however many threads.

    They take minutes to extract, so of the engine it holds the store of features alone, and not how
    samples become images in [0,1].
    """
    spec = cell.space.spec
    return sha256_of(
        {
            "stage": "embed",
            "code": module_sha256("harness.store.features"),
            "space": plugin_identity(cell.space),
            "assets": assets_identity(spec.assets),
            "packages": packages_of("harness.store.features"),
            "device": cell.device,
            "arithmetic": resolve_name(spec.arithmetic)() if spec.arithmetic else "",
        }
    )


def space_identity(cell: Cell) -> dict[str, Any]:
    """What makes two spaces the same."""
    features = {"features": features_key(cell)} if cell.space.spec.extracts else {}
    return {**plugin_identity(cell.space), **features}


def _features(run: Run, extractor: Any, images: Tensor) -> Tensor:
    def extract(batch: Tensor) -> Tensor:
        unit = Samples(batch, batch.new_empty(0)).unit().images.to(run.device)
        found: Tensor = extractor.embed(unit, run.assets)
        return found

    from harness.store.features import FeatureStore

    features = FeatureStore(run.store, features_key(run.cell), tuple(images.shape[1:]))
    with run.watched("features") as progress:
        return features.obtain(images, extract, progress)


def embed(splits: Splits, features_of: Callable[[Tensor], Tensor]) -> Splits:
    """The same splits with features [n, c, h, w] in place of images, and their scale.

    One mean and one deviation, of all the public pool's features, serve every channel: how the
    channels compare is the extractor's, and a channel that is hardly ever on is not blown up. The
    private images do not speak of themselves before they are protected. Raises CellFailed where
    features are not maps of finite numbers.
    """
    private, public, test = (
        part.map(lambda images: _checked(features_of(images)))
        for part in (splits.private, splits.public, splits.test)
    )
    scale = _scale(public.images)
    return replace(splits, private=private, public=public, test=test, scale=scale)


def under(splits: Splits, scale: Scale) -> Splits:
    """The same images with a scale that is not their dataset's, and as many channels."""
    like = splits.private.images[:0].expand(-1, len(scale.mean), -1, -1)
    return replace(_each(splits, like), scale=scale)


def _each(splits: Splits, like: Tensor) -> Splits:
    """Images of all splits in the shape and number type of `like` [n, c, h, w]."""
    private, public, test = (
        adapted(part, like) for part in (splits.private, splits.public, splits.test)
    )
    return replace(splits, private=private, public=public, test=test)


def _checked(features: Tensor) -> Tensor:
    """Piece by piece: what is asked of each value takes room too."""
    starts = range(0, len(features), CHUNK)
    if features.ndim != 4 or not all(
        bool(features[i : i + CHUNK].isfinite().all()) for i in starts
    ):
        raise CellFailed(
            f"the space returned features of shape {tuple(features.shape)}; wanted [n, c, h, w], "
            "all of them finite"
        )
    return features


def _scale(features: Tensor) -> Scale:
    """In float64, where the order of summation does not show; constant features keep theirs."""
    import torch

    std, mean = (value.item() for value in torch.std_mean(features.double(), correction=0))
    channels = features.shape[1]
    return Scale((mean,) * channels, (std if std > 0 else 1.0,) * channels, low=None, high=None)


@dataclass(frozen=True)
class Standardised:
    """Samples that are standardised, float32, whenever they are asked for."""

    raw: Samples
    scale: Scale

    @property
    def labels(self) -> Tensor:
        """[n] int64."""
        return self.raw.labels

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one image."""
        return self.raw.shape

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: slice | Tensor) -> Samples:
        """Some of them, in the order asked for."""
        return standardised(self.raw[index], self.scale)


def on_demand(samples: Samples, scale: Scale) -> SamplesOnDemand:
    """Samples standardised: at once where that takes little memory, piece by piece otherwise."""
    if samples.images.numel() * FLOAT32 > HELD:
        return Standardised(samples, scale)
    return standardised(samples, scale)


def standardised(samples: Samples, scale: Scale) -> Samples:
    """Samples standardised, float32, made chunk by chunk to spare memory."""
    import torch

    images = torch.empty(samples.images.shape)
    for start in range(0, len(samples), CHUNK):
        span = slice(start, start + CHUNK)
        images[span] = samples[span].standardised(scale).images
    return Samples(images, samples.labels)


@dataclass(frozen=True)
class JudgedSplits:
    """`splits` whose first `targets` private images are judged; `batches` of them in pieces.

    A piece is a released gradient, or a party's update. Held-out images stand as `private`, and
    `test` has none of them.
    """

    splits: Splits
    targets: int
    batches: int


@dataclass(frozen=True, eq=False)
class Truth(Output[JudgedSplits]):
    """The splits as the judge has them."""

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """All samples; the release where its resolution counts."""
        from harness.running.release import ReleaseStage

        released = (ReleaseStage.of(self.cell),) if self.cell.judged_at_release else ()
        return (Space.of(self.cell), *released)

    def facts(self) -> dict[str, Any]:
        """Which images are judged, how many, and at what resolution if it is not their own."""
        request = self.cell.request
        batch = self.cell.together
        at = {"judge_at": request.judge_at} if self.cell.judged_at_release else {}
        return {"targets": [request.targets_from, request.targets, batch], **at}

    def obtain(self, run: Run) -> JudgedSplits:
        """Of gradients and updates, no more than full batches hold."""
        splits, request = run.splits, self.cell.request
        if self.cell.judged_at_release:
            splits = enlarged(splits, tuple(run.release.tensors["encodings"].shape[2:]))
        together = self.cell.together
        default = OF_GRADIENTS if together else len(splits.private)
        wanted = min(request.targets or default, len(splits.private))
        size = together or request.batch_size
        batches = max(1, min(-(-wanted // size), len(splits.private) // size))
        if self.cell.held_out:
            judged = held_out(splits, request.targets)
            return JudgedSplits(judged, len(judged.private), batches)
        return JudgedSplits(splits, min(wanted, batches * size) if together else wanted, batches)


def enlarged(splits: Splits, shape: tuple[int, ...]) -> Splits:
    """The splits as they would be released unmixed: resized to `shape` (c, h, w), bilinear.

    Where they have another shape they become float32 in [0,1], not rounded to bytes. Raises
    CellFailed where encodings of that shape are no such images.
    """
    if shape == splits.shape:
        return splits
    if len(shape) != 3 or shape[0] != splits.shape[0] or not splits.scale.of_images:
        raise CellFailed(
            f"encodings of shape {shape} are not images like the targets {splits.shape}, whatever "
            "the resolution; leave --judge-at at image"
        )
    return _each(splits, splits.private.images.new_empty(0, *shape).float())


def held_out(splits: Splits, asked: int | None) -> Splits:
    """The splits as the judge has them: the first test images are `private`, the others `test`.

    `asked` images; 100 where that is None, or all test images if those are fewer. UsageError
    where there are none, or more were asked for.
    """
    available = len(splits.test)
    count = min(HELD_OUT, available) if asked is None else asked
    if not 0 < count <= available:
        raise UsageError(
            f"{asked or 'some'} held-out targets were asked for, and there are {available} test "
            "images; raise --test-size or lower --targets."
        )
    return replace(splits, private=splits.test[:count], test=splits.test[count:])
