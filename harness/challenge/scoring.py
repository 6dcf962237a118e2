"""Scoring a submission: the pack is verified, the commitment opened, the images compared.

The measures are those of the InstaHide challenge. By its own rules each encoding has one
decryption, which is compared with every private image mixed in it; a measure is the maximum,
minimum or mean of what that gives, averaged over all encodings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from harness.api import (
    AssetFolder,
    CellFailed,
    HarnessError,
    Metric,
    Reconstruction,
    Samples,
    Scale,
    Scene,
    UsageError,
)
from harness.asking.registry import registry
from harness.challenge import DECRYPTIONS, IMAGES, ROWS, TARGETS
from harness.challenge.opening import Truth, open_truth
from harness.challenge.pack import Pack, read_pack
from harness.challenge.public import public_splits
from harness.packages.statement import Statement
from harness.rng import KeyedStream, board_key
from harness.scoring.matching import (
    COLOUR,
    Matched,
    Nulls,
    make_nulls,
    match,
    match_nulls,
    with_codebook,
)
from harness.scoring.summary import MetricScore, Values, summarise
from harness.store.files import read_tensors, sha256_of_file

SLACK = 1e-3
"""How far beyond 0 and 1 values may lie, to be clamped."""


@dataclass(frozen=True)
class Submission:
    """Images in [0,1], float32.

    Either `images` [m, c, h, w] of private images, m at least 1, perhaps named by `rows` or
    `targets` [m]; or `decryptions` [rounds·n, c, h, w].
    """

    sha256: str
    images: Tensor | None
    decryptions: Tensor | None
    rows: Tensor | None = None
    targets: Tensor | None = None


def read_submission(path: Path, said: Statement) -> Submission:
    """A submission to the pack of this package; UsageError says what it should have been."""
    digest = sha256_of_file(path, "submission")
    tensors = read_tensors(path, "submission")
    _check_names(tensors)
    if DECRYPTIONS in tensors:
        shape = (said.rounds, said.rows, *said.preprocessing.shape)
        images = _unit(DECRYPTIONS, tensors[DECRYPTIONS], shape)
        return Submission(digest, None, images.flatten(0, 1))
    images = _unit(IMAGES, tensors[IMAGES], (None, *said.preprocessing.shape))
    if not 0 < len(images) <= said.rows:
        raise UsageError(
            f"The submission holds {len(images)} images; there are {said.rows} private "
            "ones, and each may be submitted once."
        )
    return Submission(digest, images, None, tensors.get(ROWS), tensors.get(TARGETS))


def _check_names(tensors: Mapping[str, Tensor]) -> None:
    kinds = {IMAGES, DECRYPTIONS} & set(tensors)
    allowed = {IMAGES, ROWS, TARGETS} if kinds == {IMAGES} else {DECRYPTIONS}
    if len(kinds) != 1 or not set(tensors) <= allowed or {ROWS, TARGETS} <= set(tensors):
        raise UsageError(
            f"The submission holds {', '.join(sorted(tensors)) or 'nothing'}; wanted `images`, "
            "perhaps with `rows` or `targets`, or `decryptions` alone."
        )


def _unit(name: str, values: Tensor, shape: tuple[int | None, ...]) -> Tensor:
    """Values in [0,1] as float32, if they have this shape; None stands for any length."""
    pairs = zip(shape, values.shape, strict=False)
    wanted = tuple(got if want is None else want for want, got in pairs)
    if len(shape) != values.ndim or wanted != tuple(values.shape):
        text = ", ".join("m" if size is None else str(size) for size in shape)
        raise UsageError(f"The submission's `{name}` are {list(values.shape)}; wanted [{text}].")
    if values.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        kind = str(values.dtype).removeprefix("torch.")
        raise UsageError(f"The submission's `{name}` are {kind}; wanted floats between 0 and 1.")
    bad = int((~values.isfinite()).flatten(1).any(1).sum()) if values.numel() else 0
    if bad:
        raise UsageError(f"The submission's `{name}` have NaN or infinite values in {bad} places.")
    low, high = (float(values.min()), float(values.max())) if values.numel() else (0.0, 1.0)
    if low < -SLACK or high > 1 + SLACK:
        raise UsageError(
            f"The submission's `{name}` go from {low:.4g} to {high:.4g}; wanted 0 to 1: restore "
            "standardised images, image * std + mean."
        )
    return values.float().clamp(0, 1)


def placed(submission: Submission, truth: Truth) -> Matched:
    """A submission's images with the private images they belong to."""
    assert submission.images is not None
    channels = truth.images.shape[1]
    found = Reconstruction(submission.images, submission.targets, submission.rows)
    first = truth.sources[..., 0].flatten()
    try:
        return match(found, truth.images, Scale((0.0,) * channels, (1.0,) * channels), first)
    except CellFailed as error:
        reason = str(error).removeprefix("the attack returned ")
        raise UsageError(f"The submission holds {reason}.") from None


Compare = Callable[["Tensor", "Tensor"], "Tensor"]
"""Images and truth [m, c, h, w] in [0,1] to [m] float64."""


def _leaks_more(measure: str) -> Literal["higher", "lower"]:
    """Of a measure, or of what it is of: `ssim` or `l2`."""
    return "higher" if measure.endswith("ssim") else "lower"


def l2(images: Tensor, truth: Tensor) -> Tensor:
    """[m] float64: mean squared difference of images [m, c, h, w], as if they were in [-1,1].

    Both are in [0,1], where it is a quarter of that.
    """
    return 4 * (images - truth).double().square().flatten(1).mean(1)


@dataclass(frozen=True)
class Mixtures:
    """Which private images are in which encoding.

    `targets` [encodings, k] int64 are the private images, 0 where `own` [encodings, k] is False;
    `primary` [encodings] is the first of them.
    """

    targets: Tensor
    own: Tensor
    primary: Tensor


def mixtures(truth: Truth) -> Mixtures:
    """Those of all encodings that hold a private image."""
    own, sources = truth.own, truth.sources.flatten(0, 1)
    some = own.any(1)
    own, sources = own[some], sources[some].where(own[some], 0)
    primary = sources.gather(1, own.int().argmax(1, keepdim=True)).squeeze(1)
    return Mixtures(sources, own, primary)


def by_images(images: Tensor, truth: Tensor, mixed: Mixtures, compare: Compare) -> Tensor:
    """[encodings, k] float64: the image of each encoding's primary against all that are in it.

    `images` and `truth` [n, c, h, w] are in one order. NaN where a source is public. Each pair of
    images is compared once.
    """
    n = len(truth)
    codes = (mixed.primary[:, None] * n + mixed.targets)[mixed.own]
    pairs, places = map(torch.from_numpy, np.unique(codes.numpy(), return_inverse=True))
    values = compare(images[pairs // n], truth[pairs % n])
    table = torch.full(mixed.own.shape, torch.nan, dtype=torch.float64)
    table[mixed.own] = values[places]
    return table


def by_encoding(decryptions: Tensor, truth: Tensor, mixed: Mixtures, compare: Compare) -> Tensor:
    """[encodings, k] float64: each decryption against all private images in its encoding."""
    table = torch.full(mixed.own.shape, torch.nan, dtype=torch.float64)
    for column, own in enumerate(mixed.own.T):
        if not own.any():  # public images alone
            continue
        table[own, column] = compare(decryptions[own], truth[mixed.targets[own, column]])
    return table


def summed_up(ssim: Tensor | None, squared: Tensor) -> dict[str, float]:
    """The measures of [encodings, k] values, averaged over encodings.

    Those of SSIM are left out where there is none.
    """
    found = {
        "min_l2": squared.nan_to_num(torch.inf).amin(1),
        "max_l2": squared.nan_to_num(-torch.inf).amax(1),
        "mean_l2": squared.nanmean(1),
    }
    if ssim is not None:
        best = ssim.nan_to_num(-torch.inf).amax(1)
        found = {"max_ssim": best, "mean_ssim": ssim.nanmean(1), **found}
    return {name: float(values.mean()) for name, values in found.items()}


class Measure(BaseModel, frozen=True, extra="forbid"):
    """One of the challenge's measures, and what it is of reconstructions without the release."""

    value: float
    leaks_more: Literal["higher", "lower"]
    null: float
    null_name: str
    nulls: dict[str, float]


class ChallengeScore(BaseModel, frozen=True, extra="forbid"):
    """What a submission scores.

    `measures` are the challenge's, over all `encodings`; `privacy` are the harness's own scores,
    image by image, of a submission of private images: of `targets` of them, `found` of which were
    submitted. `matched` says whether the truth was consulted for which is which.
    """

    pack: str
    submission: str
    kind: Literal["images", "decryptions"]
    encodings: int
    targets: int
    found: int
    matched: bool
    measures: dict[str, Measure]
    privacy: dict[str, MetricScore]
    notes: tuple[str, ...]


def score(pack: Path, truth: Path, submission: Path) -> ChallengeScore:
    """Score a submission; UsageError for bad input, IntegrityError for a broken pack."""
    read = read_pack(pack)
    said, known = read.said, open_truth(truth, read)
    given = read_submission(submission, said)
    answer, found, guesses = _answer(given, known, said)
    ssim, reason = _ssim(known, said)
    nulls, notes = _nulls(known, read, guesses)
    compares: dict[str, Compare] = {"ssim": ssim.score} if ssim else {}
    compares["l2"] = l2
    left = said.rows - found
    left_out = f"{left} of {said.rows} private images were not submitted: mean colour instead"
    return ChallengeScore(
        pack=read.described.id,
        submission=given.sha256,
        kind="images" if answer.images is not None else "decryptions",
        encodings=said.rounds * said.rows,
        targets=said.rows,
        found=found,
        matched=bool(guesses),
        measures=_measures(answer, known, nulls, compares),
        privacy=_privacy(answer, known, nulls, compares),
        notes=(*reason, *notes, *([left_out] if left else [])),
    )


def _answer(given: Submission, truth: Truth, said: Statement) -> tuple[Submission, int, int]:
    """The submission in the order of the private images, or of the encodings.

    Beside it, of how many private images it has one, and how many of these only the truth could
    place; a private image without one is the dataset's mean colour.
    """
    if given.images is None:
        return given, len(truth.images), 0
    matched = placed(given, truth)
    found = matched.found.view(-1, 1, 1, 1)
    images = matched.images.where(found, _colour(truth, said))
    return replace(given, images=images), int(found.sum()), matched.unnamed


def _colour(truth: Truth, said: Statement) -> Tensor:
    return truth.images.new_tensor(said.preprocessing.scale.mean).view(-1, 1, 1)


def _ssim(truth: Truth, said: Statement) -> tuple[Metric | None, tuple[str, ...]]:
    """The harness's SSIM, or a sentence on why there is none."""
    nobody = Samples(truth.images[:0], truth.classes[:0])
    scene = Scene(
        scale=said.preprocessing.scale,
        device=truth.images.device,
        assets=AssetFolder({}),
        decoys=nobody.images,
        public=nobody,
        labels=truth.classes,
        classes=len(said.classes),
    )
    metric: Metric = registry().build("metrics", "ssim", scene)
    reason = metric.unavailable(said.preprocessing.shape)
    return (None, (f"no SSIM: {reason}",)) if reason else (metric, ())


def _nulls(truth: Truth, pack: Pack, guesses: int) -> tuple[Nulls, tuple[str, ...]]:
    """Reconstructions without the release, given as much help as the submission."""
    private = Samples(truth.images, truth.classes)
    colour = _colour(truth, pack.said).expand_as(truth.images)
    try:
        public = public_splits(pack).public
    except HarnessError as error:  # a dataset that is not here, or is another: no reason to stop
        reason = f"no null but the mean colour, for want of public images: {error}"
        return Nulls({COLOUR: colour}), (reason,)
    stream = KeyedStream(board_key(pack.described.public.seed)).stream(stage="judge", use="nulls")
    said = pack.said
    mean = said.preprocessing.scale.mean
    nulls = make_nulls(public, private, said.classes, mean, stream)
    if guesses:
        nulls = match_nulls(
            with_codebook(nulls, public, private, stream, guesses), truth.images, guesses
        )
    return nulls, nulls.notes


def _measures(
    answer: Submission, truth: Truth, nulls: Nulls, compares: Mapping[str, Compare]
) -> dict[str, Measure]:
    """The challenge's measures of the answer and of every null."""
    mixed = mixtures(truth)

    def of_images(images: Tensor) -> dict[str, float]:
        tables = {n: by_images(images, truth.images, mixed, c) for n, c in compares.items()}
        return summed_up(tables.get("ssim"), tables["l2"])

    if answer.images is not None:
        own = of_images(answer.images)
    else:
        assert answer.decryptions is not None
        kept = answer.decryptions[truth.own.any(1)]
        tables = {n: by_encoding(kept, truth.images, mixed, c) for n, c in compares.items()}
        own = summed_up(tables.get("ssim"), tables["l2"])
    guessed = {name: of_images(images) for name, images in nulls.images.items()}
    return {
        name: _measure(name, value, {null: found[name] for null, found in guessed.items()})
        for name, value in own.items()
    }


def _measure(name: str, value: float, nulls: dict[str, float]) -> Measure:
    """A measure beside the null that is best at it."""
    direction = _leaks_more(name)
    best = (max if direction == "higher" else min)(nulls, key=lambda null: nulls[null])
    return Measure(value=value, leaks_more=direction, null=nulls[best], null_name=best, nulls=nulls)


def _privacy(
    answer: Submission, truth: Truth, nulls: Nulls, compares: Mapping[str, Compare]
) -> dict[str, MetricScore]:
    """Image by image, each against its own private image."""
    images = answer.images
    if images is None:
        return {}
    values = {
        name: Values(
            attack=compare(images, truth.images).numpy(),
            nulls={n: compare(null, truth.images).numpy() for n, null in nulls.images.items()},
            leaks_more=_leaks_more(name),
        )
        for name, compare in compares.items()
    }
    return summarise(values, KeyedStream(board_key(0)).stream(use="bootstrap"))
