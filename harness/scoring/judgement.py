"""Images against the truth, by every metric, beside guesses with as much help. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
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
from harness.api.plugins import as_they_are
from harness.scoring.matching import MEAN, Matched, Nulls, make_nulls, match, match_nulls
from harness.scoring.summary import MetricScore, Values, best_null, strongest, summarise

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from harness.scoring.matching import Domain

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
        return self.guesses == other.guesses and (self.groups is None) == (other.groups is None)


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
    """One metric in one domain: images as they are, or absolute values of standardised ones."""

    spec: MetricSpec
    metric: Metric
    domain: Domain = as_they_are

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        values = self.metric.score(self.domain(images), self.domain(truth)).detach().cpu().double()
        if values.shape != (len(truth),) or values.isinf().any():
            raise PluginError(
                f"metric '{self.spec.name}' returned values of shape {tuple(values.shape)}; "
                f"wanted {len(truth)} numbers, finite or NaN"
            )
        return values

    def values(self, attack: Tensor, found: Tensor, nulls: Mapping[str, Tensor]) -> Values:
        """With the best null's values for targets that were not `found`."""
        values = Values(
            attack=attack.numpy(),
            nulls={name: scores.numpy() for name, scores in nulls.items()},
            leaks_more=self.spec.leaks_more,
            unit=self.spec.unit,
            chance=self.metric.chance(len(attack)),
        )
        if found.all() or not values.defined.any():
            return values
        return replace(values, attack=attack.where(found, nulls[best_null(values)]).numpy())


@dataclass(frozen=True)
class Judge:
    """Who holds the truth, and scores what is shown of its first `targets` private images.

    With `signs_hidden` every metric also runs on absolute values, as `<metric>_abs`, for which
    images that name no target are matched by absolute values. `kept` gives the scores of what is
    judged.
    """

    truth: Splits
    targets: int
    metrics: Metrics
    stream: Stream
    device: torch.device
    signs_hidden: bool = False
    kept: Kept = _unkept

    def judge(
        self,
        reconstruction: Reconstruction,
        *,
        sources: Tensor | None = None,
        groups: Tensor | None = None,
        nulls: NullScores | None = None,
        attack: str = "",
    ) -> Judgement:
        """Score one reconstruction.

        `sources` [rounds·n] is the primary private image of each encoding, `groups` [batches, b]
        are those of each released gradient. `nulls` saves work where this judge has scored them;
        they are scored anew where they were matched for another number of guesses. A target
        without a reconstruction scores its best null. Raises CellFailed where the reconstruction
        cannot be judged.
        """
        if reconstruction.images is None:
            if not reconstruction.claims:
                raise CellFailed(f"attack '{attack}' returned neither images nor claims")
            return self._claims_only()
        scale, private = self.truth.scale, self._private.images
        placed = partial(match, reconstruction, private, scale, sources, attack, groups)
        matched = absolute = placed()
        if self.signs_hidden and matched.unnamed:
            absolute = placed(domain=Folded(scale))
        told = Help(matched.unnamed, groups if matched.grouped else None)
        if nulls is None or not nulls.help.same(told):
            nulls = replace(self, kept=_unkept).score_nulls(told)
        return self._judged(matched, absolute, nulls)

    def score_nulls(self, told: Help = NO_HELP, plain: Nulls | None = None) -> NullScores:
        """Score the nulls once, for every attack on the same splits that needs as much help.

        `plain` are the nulls of `nulls_of`, where they are there already.
        """
        private = self._private if told.guesses else self._private[slice(self.targets)]

        @cache
        def nulls(domain: Domain) -> Nulls:
            if plain is not None and domain is as_they_are and not told.guesses:
                return plain
            return _nulls_in(domain, self.truth, private, self.stream, told)

        def scores(scorer: _Scorer) -> Mapping[str, Tensor]:
            named, wanted = nulls(scorer.domain).images, self._wanted
            return {
                null: scorer.score(shown[: self.targets].to(self.device), wanted)
                for null, shown in named.items()
            }

        fit, _ = self._panel
        per_image = {name: self.kept(name, partial(scores, each)) for name, each in fit.items()}
        guessed = nulls(as_they_are)
        return NullScores(told, per_image, guessed.images[MEAN][0], guessed.notes)

    def score_images(self, images: Tensor, images_abs: Tensor | None = None) -> dict[str, Tensor]:
        """By metric, [targets] of images [targets, c, h, w] in [0,1] against the targets.

        `images_abs` are those of metrics on absolute values, where they are others.
        """
        folded = images if images_abs is None else images_abs

        def scores(scorer: _Scorer) -> Mapping[str, Tensor]:
            shown = images if scorer.domain is as_they_are else folded
            return {SCORES: scorer.score(shown.to(self.device), self._wanted)}

        fit, _ = self._panel
        return {name: self.kept(name, partial(scores, each))[SCORES] for name, each in fit.items()}

    @cached_property
    def _private(self) -> Samples:
        return _on(self.truth.private, self.device)

    @property
    def _wanted(self) -> Tensor:
        return self._private.images[: self.targets]

    @cached_property
    def _panel(self) -> tuple[dict[str, _Scorer], dict[str, MetricScore]]:
        """The metrics that can run on these images, and for the others a score that says why."""
        fit: dict[str, _Scorer] = {}
        unfit: dict[str, MetricScore] = {}
        domains: dict[str, Domain] = {"": as_they_are, "_abs": Folded(self.truth.scale)}
        for name, (spec, metric) in self.metrics.items():
            for suffix in ("", "_abs")[: 1 + self.signs_hidden]:
                if isinstance(metric, str):
                    unfit[name + suffix] = unscored(spec, metric)
                    continue
                scorer = _scorer(spec, metric, domains[suffix])
                reason = scorer.metric.unavailable(self.truth.shape)
                if reason is None:
                    fit[name + suffix] = scorer
                else:
                    unfit[name + suffix] = unscored(spec, reason)
        return fit, unfit

    def _judged(self, matched: Matched, folded: Matched, nulls: NullScores) -> Judgement:
        """Score what was matched, `folded` by absolute values: what metrics on those look at."""
        import torch

        plain, absolute = (_completed(x, self.targets, nulls.mean) for x in (matched, folded))
        fit, unfit = self._panel
        scores = self.score_images(plain.images, absolute.images)
        values = {
            name: scorer.values(
                scores[name],
                (plain if scorer.domain is as_they_are else absolute).found.cpu(),
                nulls.per_image[name],
            )
            for name, scorer in fit.items()
        }
        return Judgement(
            privacy={**summarise(values, self.stream.stream(use="bootstrap")), **unfit},
            per_image={name: torch.from_numpy(value.attack) for name, value in values.items()},
            images=plain.images,
            found=plain.found,
            notes=nulls.notes + left_out(plain.found),
            unnamed=matched.unnamed,
            grouped=matched.grouped,
            guesses={
                name: strongest(nulls.per_image[name], scorer.spec.leaks_more)[0]
                for name, scorer in fit.items()
            },
            images_abs=None if folded is matched else absolute.images,
        )

    def _claims_only(self) -> Judgement:
        """An attack that shows no images: no image metric applies."""
        import torch

        fit, unfit = self._panel
        reason = "the attack makes claims and returns no images"
        privacy = {name: unscored(scorer.spec, reason) for name, scorer in fit.items()}
        nulls = nulls_of(self.truth, self.targets, self.stream, self.device)
        found = torch.zeros(self.targets, dtype=torch.bool, device=self.device)
        return Judgement({**privacy, **unfit}, {}, nulls.images[MEAN], found)


def nulls_of(truth: Splits, targets: int, stream: Stream, device: torch.device) -> Nulls:
    """What guesses without the release show of the first `targets` private images."""
    private = _on(truth.private[slice(targets)], device)
    return _nulls_in(as_they_are, truth, private, stream, NO_HELP)


def _nulls_in(domain: Domain, truth: Splits, private: Samples, stream: Stream, told: Help) -> Nulls:
    folded, drawn = private.map(domain), stream.stream(use="nulls")
    nulls = make_nulls(truth.public, folded, truth.classes, truth.scale.mean, drawn, domain)
    return match_nulls(nulls, folded.images, told.guesses, told.groups)


def _on(samples: Samples, device: torch.device) -> Samples:
    """Images in [0,1] and labels on `device`."""
    samples = samples.unit()
    return Samples(samples.images.to(device), samples.labels.to(device))


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


def _scorer(spec: MetricSpec, metric: Metric, domain: Domain) -> _Scorer:
    """The metric in one domain; decoys are folded as the images are, or they would stand out.

    A metric that learns keeps what it learned in each domain, which all copies of it share.
    """
    if domain is as_they_are:
        return _Scorer(spec, metric)
    folded = copy(metric)
    folded.scene = replace(metric.scene, decoys=domain(metric.scene.decoys), domain=domain)
    return _Scorer(spec, folded, domain)


def unscored(spec: MetricSpec, reason: str) -> MetricScore:
    """The score of a metric that cannot be had, or was not wanted."""
    return MetricScore(unit=spec.unit, leaks_more=spec.leaks_more, unavailable=reason)


def _completed(matched: Matched, targets: int, mean: Tensor) -> Matched:
    """The first `targets` of them, `mean` [c, h, w] where there is none."""
    found = matched.found[:targets]
    images = matched.images[:targets].where(found.view(-1, 1, 1, 1), mean)
    return replace(matched, images=images, found=found)


def left_out(found: Tensor) -> tuple[str, ...]:
    """A sentence on the targets that were not `found` [targets], if there are any."""
    left = int((~found).sum())
    if not left:
        return ()
    return (f"{left} of {len(found)} targets have no reconstruction and score their best null",)
