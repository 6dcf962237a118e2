"""Reconstructions against the truth: the only code that holds both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.api import (
    CellFailed,
    Metric,
    MetricSpec,
    PluginError,
    Reconstruction,
    Samples,
    Scale,
    Splits,
    Stream,
)
from harness.scoring.matching import Matched, match
from harness.scoring.nulls import MEAN, Nulls, make_nulls, match_nulls
from harness.scoring.summary import MetricScore, Values, best_null, summarise

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Metrics = Mapping[str, tuple[MetricSpec, Metric | str]]
"""By name: what the metric declares, and the metric at work or why it is unavailable."""


@dataclass(frozen=True)
class Judgement:
    """What one reconstruction gives away.

    `privacy` and `per_image` ([targets] float64, NaN where undefined) are by metric's name;
    `images` [targets, c, h, w] in [0,1] are what was judged, the mean public image where
    `found` [targets] is False (everywhere, if the attack made only claims). `notes` say in
    sentences what the numbers do not; `unnamed` is how many images were matched by the truth.
    """

    privacy: Mapping[str, MetricScore]
    per_image: Mapping[str, Tensor]
    images: Tensor
    found: Tensor
    notes: tuple[str, ...] = ()
    unnamed: int = 0


@dataclass(frozen=True)
class NullScores:
    """What the nulls score: `per_image[metric][null]` is [targets] float64.

    `guesses` is 0 where they name their targets, else how many of each null's images were
    matched with the private images. `mean` [c, h, w] is the mean public image.
    """

    guesses: int
    per_image: Mapping[str, Mapping[str, Tensor]]
    mean: Tensor
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Scorer:
    """One metric in one domain: signed, or absolute values of standardised images."""

    spec: MetricSpec
    metric: Metric
    fold: Scale | None = None

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        if self.fold is not None:
            images, truth = fold(images, self.fold), fold(truth, self.fold)
        values = self.metric.score(images, truth).detach().cpu().double()
        if values.shape != (len(truth),) or values.isinf().any():
            raise PluginError(
                f"metric '{self.spec.name}' returned values of shape {tuple(values.shape)}; "
                f"wanted {len(truth)} numbers, finite or NaN"
            )
        return values

    def values(self, attack: Tensor, nulls: Mapping[str, Tensor]) -> Values:
        return Values(
            attack=attack.numpy(),
            nulls={name: scores.numpy() for name, scores in nulls.items()},
            leaks_more=self.spec.leaks_more,
            unit=self.spec.unit,
            chance=self.metric.chance(len(attack)),
        )


def judge(
    reconstruction: Reconstruction,
    truth: Splits,
    targets: int,
    *,
    sources: Tensor | None,
    metrics: Metrics,
    stream: Stream,
    device: torch.device,
    signs_hidden: bool = False,
    nulls: NullScores | None = None,
    attack: str = "",
) -> Judgement:
    """Score one reconstruction on the first `targets` private images.

    `sources` [rounds·n] is the primary private image of each encoding. With `signs_hidden`
    every metric also runs on absolute values, as `<metric>_abs`. `nulls` saves work where
    `score_nulls` has run on the same splits, metrics and stream; they are scored anew where
    they were matched for another number of guesses. A target without a reconstruction scores
    its best null. Raises CellFailed where the reconstruction cannot be judged.
    """
    panel = _panel(metrics, truth, signs_hidden)
    if reconstruction.images is None:
        if not reconstruction.claims:
            raise CellFailed(f"attack '{attack}' returned neither images nor claims")
        return _claims_only(panel, truth, targets, stream, device)
    private = _on(truth.private, device)
    matched = match(reconstruction, private.images, truth.scale, sources, attack)
    if nulls is None or nulls.guesses != matched.unnamed or set(nulls.per_image) != set(panel.fit):
        nulls = _score_nulls(panel, truth, targets, stream, device, guesses=matched.unnamed)
    return _judge(panel, matched, private.images[:targets], nulls, stream)


def score_nulls(
    truth: Splits,
    targets: int,
    *,
    metrics: Metrics,
    stream: Stream,
    device: torch.device,
    signs_hidden: bool = False,
    guesses: int = 0,
) -> NullScores:
    """Score the nulls once, for every attack on the same splits that names its targets.

    `guesses` > 0 scores them for an attack that named none of so many reconstructions.
    """
    panel = _panel(metrics, truth, signs_hidden)
    return _score_nulls(panel, truth, targets, stream, device, guesses=guesses)


def score_images(
    images: Tensor,
    truth: Splits,
    *,
    metrics: Metrics,
    device: torch.device,
    signs_hidden: bool = False,
) -> dict[str, Tensor]:
    """By metric, [targets] of images [targets, c, h, w] in [0,1] against the first targets."""
    wanted = _on(truth.private[: len(images)], device).images
    scorers = _panel(metrics, truth, signs_hidden).fit
    return {name: each.score(images.to(device), wanted) for name, each in scorers.items()}


def fold(images: Tensor, scale: Scale) -> Tensor:
    """Images in [0,1] whose standardised values are absolute values, still in [0,1].

    Each channel is folded about its mean towards the side that has room: upwards, to |x|, for
    means up to one half, else downwards, to −|x|. Sign by channel changes no error or angle.
    Without bounds all are folded upwards.
    """
    mean = images.new_tensor(scale.mean).view(-1, 1, 1)
    distance = (images - mean).abs()
    upwards = mean <= (0.5 if scale.of_images else math.inf)
    return scale.within(mean + distance.where(upwards, -distance))


def _on(samples: Samples, device: torch.device) -> Samples:
    """Images in [0,1] and labels on `device`."""
    samples = samples.unit()
    return Samples(samples.images.to(device), samples.labels.to(device))


@dataclass(frozen=True)
class _Panel:
    """The metrics `fit` to run on these images, and a score that says why for the `unfit`."""

    fit: Mapping[str, _Scorer]
    unfit: Mapping[str, MetricScore]


def _panel(metrics: Metrics, truth: Splits, signs_hidden: bool) -> _Panel:
    fit: dict[str, _Scorer] = {}
    unfit: dict[str, MetricScore] = {}
    domains = (("", None), ("_abs", truth.scale))[: 1 + signs_hidden]
    for name, (spec, metric) in metrics.items():
        reason = metric if isinstance(metric, str) else metric.unavailable(truth.shape)
        for suffix, scale in domains:
            if isinstance(metric, Metric) and reason is None:
                fit[name + suffix] = _scorer(spec, metric, scale)
            else:
                unfit[name + suffix] = _unavailable(spec, reason or "no reason given")
    return _Panel(fit, unfit)


def _scorer(spec: MetricSpec, metric: Metric, fold_by: Scale | None) -> _Scorer:
    """The metric in one domain; decoys are folded as the images are, or they would stand out."""
    if fold_by is None:
        return _Scorer(spec, metric)
    folded = copy(metric)
    folded.scene = replace(metric.scene, decoys=fold(metric.scene.decoys, fold_by))
    return _Scorer(spec, folded, fold_by)


def _unavailable(spec: MetricSpec, reason: str) -> MetricScore:
    return MetricScore(unit=spec.unit, leaks_more=spec.leaks_more, unavailable=reason)


def _score_nulls(
    panel: _Panel,
    truth: Splits,
    targets: int,
    stream: Stream,
    device: torch.device,
    *,
    guesses: int,
) -> NullScores:
    private = _on(truth.private if guesses else truth.private[slice(targets)], device)
    per_image: dict[str, Mapping[str, Tensor]] = {}
    plain = _nulls_in(None, truth, private, stream, guesses)
    for scale in {scorer.fold for scorer in panel.fit.values()}:
        nulls = plain if scale is None else _nulls_in(scale, truth, private, stream, guesses)
        for name, scorer in panel.fit.items():
            if scorer.fold == scale:
                per_image[name] = {
                    null: scorer.score(images[:targets], private.images[:targets])
                    for null, images in nulls.images.items()
                }
    return NullScores(guesses, per_image, plain.images[MEAN][0], plain.notes)


def _nulls_in(
    scale: Scale | None, truth: Splits, private: Samples, stream: Stream, guesses: int
) -> Nulls:
    """The nulls for images as they are, or folded about the mean of `scale`."""
    stream = stream.stream(use="nulls")
    if scale is None:
        nulls = make_nulls(truth.public, private, truth.classes, truth.scale.mean, stream)
        return match_nulls(nulls, private.images, guesses) if guesses else nulls
    folded = private.map(lambda x: fold(x, scale))
    nulls = make_nulls(
        truth.public, folded, truth.classes, scale.mean, stream, lambda x: fold(x, scale)
    )
    return match_nulls(nulls, folded.images, guesses) if guesses else nulls


def _judge(
    panel: _Panel, matched: Matched, wanted: Tensor, nulls: NullScores, stream: Stream
) -> Judgement:
    """Score what was matched against the targets' images `wanted`."""
    found = matched.found[: len(wanted)]
    images = matched.images[: len(wanted)].where(found.view(-1, 1, 1, 1), nulls.mean)
    values = {
        name: _fill(scorer, scorer.score(images, wanted), nulls.per_image[name], found.cpu())
        for name, scorer in panel.fit.items()
    }
    return Judgement(
        privacy={**summarise(values, stream.stream(use="bootstrap")), **panel.unfit},
        per_image={name: _tensor(value) for name, value in values.items()},
        images=images,
        found=found,
        notes=nulls.notes + _left_out(found),
        unnamed=matched.unnamed,
    )


def _fill(scorer: _Scorer, scores: Tensor, nulls: Mapping[str, Tensor], found: Tensor) -> Values:
    """The values of one metric, with the best null's for targets that were not found."""
    values = scorer.values(scores, nulls)
    if found.all() or not values.defined.any():
        return values
    return scorer.values(scores.where(found, nulls[best_null(values)]), nulls)


def _tensor(values: Values) -> Tensor:
    import torch

    return torch.from_numpy(values.attack)


def _left_out(found: Tensor) -> tuple[str, ...]:
    left = int((~found).sum())
    if not left:
        return ()
    return (f"{left} of {len(found)} targets have no reconstruction and score their best null",)


def _claims_only(
    panel: _Panel, truth: Splits, targets: int, stream: Stream, device: torch.device
) -> Judgement:
    """An attack that shows no images: no image metric applies."""
    import torch

    reason = "the attack makes claims and returns no images"
    privacy = {name: _unavailable(scorer.spec, reason) for name, scorer in panel.fit.items()}
    private = _on(truth.private[slice(targets)], device)
    nulls = make_nulls(
        truth.public, private, truth.classes, truth.scale.mean, stream.stream(use="nulls")
    )
    found = torch.zeros(targets, dtype=torch.bool, device=device)
    return Judgement({**privacy, **panel.unfit}, {}, nulls.images[MEAN], found)
