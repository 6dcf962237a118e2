"""Images against the truth, by every metric, beside guesses with as much help. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
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
from harness.scoring.matching import (
    MEAN,
    Matched,
    Nulls,
    make_nulls,
    match,
    match_nulls,
    match_nulls_within,
)
from harness.scoring.summary import MetricScore, Values, best_null, strongest, summarise

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Metrics = Mapping[str, tuple[MetricSpec, Metric | str]]
"""By name: what the metric declares, and the metric at work or why it is unavailable."""


Kept = Callable[[str, Callable[[], Mapping[str, "Tensor"]]], Mapping[str, "Tensor"]]
"""Gives the scores [targets] of a metric, by what was scored: those that are kept, or made now."""


def _unkept(_metric: str, make: Callable[[], Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
    return make()


@dataclass(frozen=True)
class Judgement:
    """What one reconstruction gives away.

    `privacy` and `per_image` ([targets] float64, NaN where undefined) are by metric's name, and
    so are `guesses`, the best of the nulls image by image;
    `images` [targets, c, h, w] in [0,1] are what was judged, the mean public image where
    `found` [targets] is False (everywhere, if the attack made only claims). Metrics on absolute
    values judge `images_abs` in their place, where it is not None: the same images, matched with
    the truth by absolute values. `notes` say in sentences what the numbers do not; `unnamed` is
    how many images were matched by the truth, `grouped` whether only within batches.
    """

    privacy: Mapping[str, MetricScore]
    per_image: Mapping[str, Tensor]
    images: Tensor
    found: Tensor
    notes: tuple[str, ...] = ()
    unnamed: int = 0
    grouped: bool = False
    guesses: Mapping[str, Tensor] = field(default_factory=dict)
    images_abs: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Help:
    """What the judge told of the truth in order to match reconstructions, and tells nulls too.

    `guesses` is how many of them named no target; `groups` [batches, b] the private images of
    each batch, where they named at least that.
    """

    guesses: int = 0
    groups: Tensor | None = None

    def same(self, other: Help) -> bool:
        """Whether both tell as much; the groups of one release are always the same."""
        grouped = self.groups is not None, other.groups is not None
        return self.guesses == other.guesses and grouped[0] == grouped[1]


NO_HELP = Help()
SCORES = "scores"
"""What the scores of a reconstruction are called among what is kept of a metric."""


@dataclass(frozen=True)
class NullScores:
    """What the nulls score: `per_image[metric][null]` is [targets] float64.

    They were given as much `help` as the attack. `mean` [c, h, w] is the mean public image.
    """

    help: Help
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
    groups: Tensor | None = None,
    kept: Kept = _unkept,
) -> Judgement:
    """Score one reconstruction on the first `targets` private images of the `truth`.

    `sources` [rounds·n] is the primary private image of each encoding, `groups` [batches, b]
    are those of each released gradient. With `signs_hidden` every metric also runs on absolute
    values, as `<metric>_abs`, for which images that name no target are matched by absolute
    values. `nulls` saves work where `score_nulls` has run on the same splits, metrics and
    stream; they are scored anew where they were matched for another number of guesses. A target
    without a reconstruction scores its best null. Raises CellFailed where the reconstruction
    cannot be judged.
    """
    panel = _panel(metrics, truth, signs_hidden)
    if reconstruction.images is None:
        if not reconstruction.claims:
            raise CellFailed(f"attack '{attack}' returned neither images nor claims")
        return _claims_only(panel, truth, targets, stream, device)
    private = _on(truth.private, device).images
    placed = partial(match, reconstruction, private, truth.scale, sources, attack, groups)
    matched = folded = placed()
    if signs_hidden and matched.unnamed:
        folded = placed(domain=Folded(truth.scale))
    told = Help(matched.unnamed, groups if matched.grouped else None)
    if nulls is None or not nulls.help.same(told) or set(nulls.per_image) != set(panel.fit):
        nulls = _score_nulls(panel, truth, targets, stream, device, told)
    return _judge(panel, matched, folded, private[:targets], nulls, stream, kept)


def score_nulls(
    truth: Splits,
    targets: int,
    *,
    metrics: Metrics,
    stream: Stream,
    device: torch.device,
    signs_hidden: bool = False,
    told: Help = NO_HELP,
    plain: Nulls | None = None,
    kept: Kept = _unkept,
) -> NullScores:
    """Score the nulls once, for every attack on the same splits that needs as much help.

    `plain` are the nulls of `nulls_of`, where they are there already.
    """
    panel = _panel(metrics, truth, signs_hidden)
    return _score_nulls(panel, truth, targets, stream, device, told, plain, kept)


def nulls_of(truth: Splits, targets: int, stream: Stream, device: torch.device) -> Nulls:
    """What guesses without the release show of the first `targets` private images."""
    return _nulls_in(None, truth, _on(truth.private[slice(targets)], device), stream, NO_HELP)


def score_images(
    images: Tensor,
    truth: Splits,
    *,
    metrics: Metrics,
    device: torch.device,
    signs_hidden: bool = False,
    images_abs: Tensor | None = None,
    kept: Kept = _unkept,
) -> dict[str, Tensor]:
    """By metric, [targets] of images [targets, c, h, w] in [0,1] against the first targets.

    `images_abs` are those of metrics on absolute values, where they are others.
    """
    wanted = _on(truth.private[: len(images)], device).images
    folded = images if images_abs is None else images_abs
    scorers = _panel(metrics, truth, signs_hidden).fit
    return {
        name: _kept_one(kept, name, each, (images if each.fold is None else folded), wanted)
        for name, each in scorers.items()
    }


def _kept_one(kept: Kept, name: str, scorer: _Scorer, images: Tensor, wanted: Tensor) -> Tensor:
    return kept(name, lambda: {SCORES: scorer.score(images.to(wanted.device), wanted)})[SCORES]


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


@dataclass(frozen=True)
class Folded:
    """The domain of absolute values, as metrics get to know it: `fold` about the mean of `by`."""

    by: Scale

    def __call__(self, images: Tensor) -> Tensor:
        """Images in [0,1] to images in [0,1]."""
        return fold(images, self.by)


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
        for suffix, scale in domains:
            if isinstance(metric, str):
                unfit[name + suffix] = unscored(spec, metric)
                continue
            scorer = _scorer(spec, metric, scale)
            reason = scorer.metric.unavailable(truth.shape)
            if reason is None:
                fit[name + suffix] = scorer
            else:
                unfit[name + suffix] = unscored(spec, reason)
    return _Panel(fit, unfit)


def _scorer(spec: MetricSpec, metric: Metric, fold_by: Scale | None) -> _Scorer:
    """The metric in one domain; decoys are folded as the images are, or they would stand out.

    A metric that learns keeps what it learned in each domain, which all copies of it share.
    """
    if fold_by is None:
        return _Scorer(spec, metric)
    folded = copy(metric)
    decoys = fold(metric.scene.decoys, fold_by)
    folded.scene = replace(metric.scene, decoys=decoys, domain=Folded(fold_by))
    return _Scorer(spec, folded, fold_by)


def unscored(spec: MetricSpec, reason: str) -> MetricScore:
    """The score of a metric that cannot be had, or was not wanted."""
    return MetricScore(unit=spec.unit, leaks_more=spec.leaks_more, unavailable=reason)


def _score_nulls(
    panel: _Panel,
    truth: Splits,
    targets: int,
    stream: Stream,
    device: torch.device,
    told: Help,
    plain: Nulls | None = None,
    kept: Kept = _unkept,
) -> NullScores:
    private = _on(truth.private if told.guesses else truth.private[slice(targets)], device)
    if plain is None or told.guesses:
        plain = _nulls_in(None, truth, private, stream, told)
    made: dict[Scale | None, Nulls] = {None: plain}

    def scores(scorer: _Scorer) -> Mapping[str, Tensor]:
        if scorer.fold not in made:
            made[scorer.fold] = _nulls_in(scorer.fold, truth, private, stream, told)
        wanted = private.images[:targets]
        named = made[scorer.fold].images
        return {null: scorer.score(x[:targets].to(device), wanted) for null, x in named.items()}

    per_image = {name: kept(name, partial(scores, each)) for name, each in panel.fit.items()}
    return NullScores(told, per_image, plain.images[MEAN][0], plain.notes)


def _nulls_in(
    scale: Scale | None, truth: Splits, private: Samples, stream: Stream, told: Help
) -> Nulls:
    """The nulls for images as they are, or folded about the mean of `scale`."""
    stream = stream.stream(use="nulls")
    if scale is None:
        nulls = make_nulls(truth.public, private, truth.classes, truth.scale.mean, stream)
        return _helped(nulls, private.images, told)
    folded = private.map(lambda x: fold(x, scale))
    nulls = make_nulls(
        truth.public, folded, truth.classes, scale.mean, stream, lambda x: fold(x, scale)
    )
    return _helped(nulls, folded.images, told)


def _helped(nulls: Nulls, truth: Tensor, told: Help) -> Nulls:
    if not told.guesses:
        return nulls
    if told.groups is None:
        return match_nulls(nulls, truth, told.guesses)
    return match_nulls_within(nulls, truth, told.groups)


def _judge(
    panel: _Panel,
    matched: Matched,
    folded: Matched,
    wanted: Tensor,
    nulls: NullScores,
    stream: Stream,
    kept: Kept,
) -> Judgement:
    """Score what was matched against the targets' images `wanted`.

    `folded` is the same, matched by absolute values: what metrics on those look at.
    """
    plain, absolute = (_completed(each, len(wanted), nulls.mean) for each in (matched, folded))
    values = {
        name: _values(
            name,
            scorer,
            plain if scorer.fold is None else absolute,
            wanted,
            nulls.per_image[name],
            kept,
        )
        for name, scorer in panel.fit.items()
    }
    return Judgement(
        privacy={**summarise(values, stream.stream(use="bootstrap")), **panel.unfit},
        per_image={name: _tensor(value) for name, value in values.items()},
        images=plain.images,
        found=plain.found,
        notes=nulls.notes + left_out(plain.found),
        unnamed=matched.unnamed,
        grouped=matched.grouped,
        guesses={
            name: strongest(nulls.per_image[name], scorer.spec.leaks_more)[0]
            for name, scorer in panel.fit.items()
        },
        images_abs=None if folded is matched else absolute.images,
    )


def _completed(matched: Matched, targets: int, mean: Tensor) -> Matched:
    """The first `targets` of them, `mean` [c, h, w] where there is none."""
    found = matched.found[:targets]
    images = matched.images[:targets].where(found.view(-1, 1, 1, 1), mean)
    return replace(matched, images=images, found=found)


def _values(
    name: str,
    scorer: _Scorer,
    answer: Matched,
    wanted: Tensor,
    nulls: Mapping[str, Tensor],
    kept: Kept,
) -> Values:
    """The values of one metric, with the best null's for targets that were not found."""
    scores, found = _kept_one(kept, name, scorer, answer.images, wanted), answer.found.cpu()
    values = scorer.values(scores, nulls)
    if found.all() or not values.defined.any():
        return values
    return scorer.values(scores.where(found, nulls[best_null(values)]), nulls)


def _tensor(values: Values) -> Tensor:
    import torch

    return torch.from_numpy(values.attack)


def left_out(found: Tensor) -> tuple[str, ...]:
    """A sentence on the targets that were not `found` [targets], if there are any."""
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
    privacy = {name: unscored(scorer.spec, reason) for name, scorer in panel.fit.items()}
    private = _on(truth.private[slice(targets)], device)
    nulls = make_nulls(
        truth.public, private, truth.classes, truth.scale.mean, stream.stream(use="nulls")
    )
    found = torch.zeros(targets, dtype=torch.bool, device=device)
    return Judgement({**privacy, **panel.unfit}, {}, nulls.images[MEAN], found)
