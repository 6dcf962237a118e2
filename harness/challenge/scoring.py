"""Scoring a submission: the pack is verified, the commitment opened, the images compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from harness.api import AssetFolder, HarnessError, Metric, Samples, Scene
from harness.asking.registry import load_factory, registry
from harness.challenge.measures import (
    LEAKS_MORE,
    Compare,
    by_encoding,
    by_images,
    l2,
    mixtures,
    summed_up,
)
from harness.challenge.opening import Truth, open_truth
from harness.challenge.pack import Description, read_pack
from harness.challenge.public import public_splits
from harness.challenge.submission import Submission, placed, read_submission
from harness.rng import KeyedStream, board_key
from harness.scoring.nulls import COLOUR, Nulls, make_nulls, match_nulls
from harness.scoring.summary import MetricScore, Values, summarise

if TYPE_CHECKING:
    from torch import Tensor


class Measure(BaseModel):
    """One of the challenge's measures, and what it is of reconstructions without the release."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    leaks_more: Literal["higher", "lower"]
    null: float
    null_name: str
    nulls: dict[str, float]


class ChallengeScore(BaseModel):
    """What a submission scores.

    `measures` are the challenge's, over all `encodings`; `privacy` are the harness's own scores,
    image by image, of a submission of private images: of `targets` of them, `found` of which were
    submitted. `matched` says whether the truth was consulted for which is which.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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


@dataclass(frozen=True)
class _Answer:
    """A submission in the order of the private images [n, c, h, w], or of the encodings."""

    images: Tensor | None
    decryptions: Tensor | None
    found: int
    guesses: int


def score(pack: Path, truth: Path, submission: Path) -> ChallengeScore:
    """Score a submission; UsageError for bad input, IntegrityError for a broken pack."""
    read = read_pack(pack)
    said, known = read.described, open_truth(truth, read)
    given = read_submission(submission, said)
    answer = _answer(given, known, said)
    ssim, reason = _ssim(known, said)
    nulls, notes = _nulls(known, said, answer.guesses)
    compares: dict[str, Compare] = {"ssim": ssim.score} if ssim else {}
    compares["l2"] = l2
    return ChallengeScore(
        pack=said.id,
        submission=given.sha256,
        kind="images" if answer.images is not None else "decryptions",
        encodings=said.rounds * said.private,
        targets=said.private,
        found=answer.found,
        matched=bool(answer.guesses),
        measures=_measures(answer, known, nulls, compares),
        privacy=_privacy(answer, known, nulls, compares),
        notes=(*reason, *notes, *_left_out(answer, said)),
    )


def _answer(given: Submission, truth: Truth, said: Description) -> _Answer:
    """The submission; a private image without one is the dataset's mean colour."""
    if given.images is None:
        return _Answer(None, given.decryptions, len(truth.images), 0)
    matched = placed(given, truth)
    found = matched.found.view(-1, 1, 1, 1)
    images = matched.images.where(found, _colour(truth, said))
    return _Answer(images, None, int(found.sum()), matched.unnamed)


def _colour(truth: Truth, said: Description) -> Tensor:
    return truth.images.new_tensor(said.mean).view(-1, 1, 1)


def _left_out(answer: _Answer, said: Description) -> Iterable[str]:
    if answer.found < said.private:
        left = said.private - answer.found
        yield f"{left} of {said.private} private images were not submitted: mean colour instead"


def _ssim(truth: Truth, said: Description) -> tuple[Metric | None, tuple[str, ...]]:
    """The harness's SSIM, or a sentence on why there is none."""
    known = registry()
    spec = known.metric("ssim")
    nobody = Samples(truth.images[:0], truth.classes[:0])
    scene = Scene(
        scale=said.scale,
        device=truth.images.device,
        assets=AssetFolder({}),
        decoys=nobody.images,
        public=nobody,
        labels=truth.classes,
        classes=len(said.classes),
    )
    metric: Metric = load_factory(spec, known.origin("metrics", spec.name))(scene)
    reason = metric.unavailable(said.shape)
    return (None, (f"no SSIM: {reason}",)) if reason else (metric, ())


def _nulls(truth: Truth, said: Description, guesses: int) -> tuple[Nulls, tuple[str, ...]]:
    """Reconstructions without the release, given as much help as the submission."""
    private = Samples(truth.images, truth.classes)
    colour = _colour(truth, said).expand_as(truth.images)
    try:
        public = public_splits(said).public
    except HarnessError as error:  # a dataset that is not here, or is another: no reason to stop
        reason = f"no null but the mean colour, for want of public images: {error}"
        return Nulls({COLOUR: colour}), (reason,)
    stream = KeyedStream(board_key(said.public.seed)).stream(stage="judge", use="nulls")
    nulls = make_nulls(public, private, said.classes, said.mean, stream)
    return (match_nulls(nulls, truth.images, guesses) if guesses else nulls), nulls.notes


def _measures(
    answer: _Answer, truth: Truth, nulls: Nulls, compares: Mapping[str, Compare]
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
    direction = LEAKS_MORE[name]
    best = (max if direction == "higher" else min)(nulls, key=lambda null: nulls[null])
    return Measure(value=value, leaks_more=direction, null=nulls[best], null_name=best, nulls=nulls)


def _privacy(
    answer: _Answer, truth: Truth, nulls: Nulls, compares: Mapping[str, Compare]
) -> dict[str, MetricScore]:
    """Image by image, each against its own private image."""
    images = answer.images
    if images is None:
        return {}
    values = {
        name: Values(
            attack=compare(images, truth.images).numpy(),
            nulls={n: compare(null, truth.images).numpy() for n, null in nulls.images.items()},
            leaks_more="higher" if name == "ssim" else "lower",
        )
        for name, compare in compares.items()
    }
    return summarise(values, KeyedStream(board_key(0)).stream(use="bootstrap"))
