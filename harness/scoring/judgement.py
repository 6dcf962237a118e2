"""Images against the truth, by every metric, beside guesses with as much help. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
from harness.scoring.matching import (
    INFORMED,
    MEAN,
    Matched,
    Nulls,
    few_others,
    make_nulls,
    match,
    match_nulls,
    others_of_class,
    with_codebook,
)
from harness.scoring.summary import OTHERS, MetricScore, Values, best_guess, summarise

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from harness.scoring.matching import Domain

Metrics = Mapping[str, tuple[MetricSpec, Metric | str]]
"""By name: what the metric declares, and the metric at work or why it is unavailable."""

Kept = Callable[[str, str, Callable[[], Mapping[str, "Tensor"]]], Mapping[str, "Tensor"]]
"""Gives the scores [targets] of a metric, by what was scored: those that are kept, or made now.

First is said against what: `PRIVATE` images, or `OTHERS` of their classes.
"""
PRIVATE = "private"


def _unkept(
    _against: str, _metric: str, make: Callable[[], Mapping[str, Tensor]]
) -> Mapping[str, Tensor]:
    return make()


@dataclass(frozen=True)
class Judgement:
    """What one reconstruction gives away.

    `privacy` and `per_image` ([targets] float64, NaN where undefined) are by metric's name, and
    so are `guesses`, what the best of the nulls scores that are guesses, `misplaced` [draws,
    targets], what the attack's answers score where other images of the class are the truth, and
    `easier` [draws, targets], how much easier to guess than those the targets are (`Judge.judge`);
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
    misplaced: Mapping[str, Tensor] = field(default_factory=dict)
    easier: Mapping[str, Tensor] = field(default_factory=dict)
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
MOST_DRAWS = 4
"""How often others of their classes are drawn for few targets: a fifth of what is left of noise."""
COMPARED = 1000
"""Targets, times draws, that are compared at most where there are several draws."""
SCORES = "scores"
"""What the scores of a reconstruction are called among what is kept of a metric."""


@dataclass(frozen=True)
class NullScores:
    """What the nulls score: `per_image[metric][null]` is [targets] float64.

    They were given as much `help` as the attack. `mean` [c, h, w] is the mean public image.
    `easier[metric]` [draws, targets] is how much more those that know the class tell of each
    target than of another image of the class, which stands in its place (`Judge.judge`).
    """

    help: Help
    per_image: Mapping[str, Mapping[str, Tensor]]
    mean: Tensor
    notes: tuple[str, ...]
    easier: Mapping[str, Tensor]


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

    def values(
        self, attack: Tensor, found: Tensor, wrong: Tensor, nulls: Mapping[str, Tensor]
    ) -> Values:
        """With the best guess's values for targets that were not `found`, or where `wrong` is NaN.

        `wrong` [draws, targets] is what the same answers are worth as guesses.
        """
        values = Values(
            attack=attack.numpy(),
            nulls={name: scores.numpy() for name, scores in nulls.items()},
            leaks_more=self.spec.leaks_more,
            unit=self.spec.unit,
            chance=self.metric.chance(len(attack)),
        )
        guess = nulls[best_guess(values)]
        others = wrong.where(wrong.isfinite(), guess).mean(0).numpy()
        filled = attack.where(found, guess).numpy()
        return replace(values, attack=filled, nulls={**values.nulls, OTHERS: others})


@dataclass(frozen=True)
class Judge:
    """Who holds the truth, and scores what is shown of its first `targets` private images.

    With `signs_hidden` every metric also runs on absolute values, as `<metric>_abs`, for which
    images that name no target are matched by absolute values. `kept` gives the scores of what is
    judged. `against` says what stands as private: other images of the class, where the judge asks
    what answers are worth that cannot be of them.
    """

    truth: Splits
    targets: int
    metrics: Metrics
    stream: Stream
    device: torch.device
    signs_hidden: bool = False
    kept: Kept = _unkept
    against: str = PRIVATE

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
        without a reconstruction scores its best guess. Raises CellFailed where the reconstruction
        cannot be judged.

        One of the nulls is the attack itself. Test images of the same classes, which no release
        holds, stand in the private images' places, and the answers are matched and scored again.
        If a release says nothing but the labels, its private images and those are drawn alike,
        and the answers are as near to the ones as to the others, however clever the guess, and
        however much the matching helps. Answers given to other *private* images would not do: the
        matching that the judge does in the attack's favour would undo any exchange of them, and
        with the best partners struck out it would do less for the null than for the attack.
        The other images may be easier to guess, so each score is corrected by what guesses that
        know the class, matched likewise, tell more of the target than of the image in its place:
        the comparison stays paired. Where targets are few, more images are drawn for each.
        """
        if reconstruction.images is None:
            if not reconstruction.claims:
                raise CellFailed(f"attack '{attack}' returned neither images nor claims")
            return self._claims_only()
        placed = partial(
            match,
            reconstruction,
            scale=self.truth.scale,
            sources=sources,
            attack=attack,
            groups=groups,
        )
        matched = placed(self._private.images)
        told = Help(matched.unnamed, groups if matched.grouped else None)
        if nulls is None or not nulls.help.same(told):
            nulls = replace(self, kept=_unkept).score_nulls(told)
        if not matched.unnamed:
            misplaced = [
                each._shown(matched, matched, nulls) for each in self._elsewhere(self.targets)
            ]
            return self._judged(matched, matched, misplaced, nulls)
        misplaced = [
            each._shown(*each._both(placed), nulls) for each in self._elsewhere(len(self._private))
        ]
        return self._judged(*self._both(placed, matched), misplaced, nulls)

    def _both(
        self, placed: Callable[..., Matched], plain: Matched | None = None
    ) -> tuple[Matched, Matched]:
        """Matched as images are, and by absolute values where metrics look at those."""
        truth = self._private.images
        plain = placed(truth) if plain is None else plain
        return plain, placed(truth, domain=Folded(self.truth.scale)) if self.signs_hidden else plain

    def score_nulls(self, told: Help = NO_HELP, plain: Nulls | None = None) -> NullScores:
        """Score the nulls once, for every attack on the same splits that needs as much help.

        `plain` are the nulls of `nulls_of`, where they are there already.
        """
        import torch

        count = len(self._private) if told.guesses else self.targets
        private = self._private[slice(count)]

        @cache
        def guesses(domain: Domain) -> Nulls:
            if plain is not None and domain is as_they_are and not told.guesses:
                return plain
            return _nulls_in(domain, self.truth, private, self.stream, told)

        def scores(judge: Judge, of: tuple[str, ...], scorer: _Scorer) -> Mapping[str, Tensor]:
            nulls = guesses(scorer.domain)
            chosen = Nulls({n: x for n, x in nulls.images.items() if not of or n in of})
            truth = scorer.domain(judge._private.images[:count])
            shown = match_nulls(chosen, truth, told.guesses, told.groups).images
            return {
                null: scorer.score(images[: self.targets].to(self.device), judge._wanted)
                for null, images in shown.items()
            }

        def scored(judge: Judge, of: tuple[str, ...] = ()) -> dict[str, Mapping[str, Tensor]]:
            fit, _ = judge._panel
            return {
                name: judge.kept(judge.against, name, partial(scores, judge, of, each))
                for name, each in fit.items()
            }

        here = scored(self)
        there = [scored(other, INFORMED) for other in self._elsewhere(count)]
        easier = {
            name: torch.stack([_informed(here[name]) - _informed(each[name]) for each in there])
            for name in here
        }
        guessed = guesses(as_they_are)
        return NullScores(told, here, guessed.images[MEAN][0], guessed.notes, easier)

    def score_images(self, images: Tensor, images_abs: Tensor | None = None) -> dict[str, Tensor]:
        """By metric, [targets] of images [targets, c, h, w] in [0,1] against the targets.

        `images_abs` are those of metrics on absolute values, where they are others.
        """
        folded = images if images_abs is None else images_abs

        def scores(scorer: _Scorer) -> Mapping[str, Tensor]:
            shown = images if scorer.domain is as_they_are else folded
            return {SCORES: scorer.score(shown.to(self.device), self._wanted)}

        fit, _ = self._panel
        return {
            name: self.kept(self.against, name, partial(scores, each))[SCORES]
            for name, each in fit.items()
        }

    def score_elsewhere(
        self, images: Tensor, images_abs: Tensor | None = None
    ) -> dict[str, Tensor]:
        """By metric, [draws, targets] of the same images where others of the class are true."""
        import torch

        drawn = [each.score_images(images, images_abs) for each in self._elsewhere(self.targets)]
        return {name: torch.stack([each[name] for each in drawn]) for name in drawn[0]}

    def _elsewhere(self, count: int) -> list[Judge]:
        """The judge if others of their classes stood in the first `count` private images' places.

        Images to hide the truth among are exchanged with them: none is there twice.
        """
        if count in self._drawn:
            return self._drawn[count]
        own = self.truth.private[slice(self.targets)].unit().images
        found = self._drawn[count] = []
        for draw in range(max(1, min(MOST_DRAWS, COMPARED // self.targets))):
            stream = self.stream.stream(use=OTHERS, draw=draw)
            others = others_of_class(self.truth, count, stream)
            metrics = {
                name: (spec, metric if isinstance(metric, str) else _exchanged(metric, own, others))
                for name, (spec, metric) in self.metrics.items()
            }
            truth, against = replace(self.truth, private=others), f"{OTHERS} {draw}"
            found.append(replace(self, truth=truth, metrics=metrics, against=against))
        return found

    @cached_property
    def _drawn(self) -> dict[int, list[Judge]]:
        """What `_elsewhere` found, by how many places."""
        return {}

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

    def _shown(self, matched: Matched, folded: Matched, nulls: NullScores) -> dict[str, Tensor]:
        """By metric, [targets] scores of what was matched; NaN where nothing was."""
        plain, absolute = (_completed(x, self.targets, nulls.mean) for x in (matched, folded))
        scores, (fit, _) = self.score_images(plain.images, absolute.images), self._panel
        found = {
            name: plain.found if fit[name].domain is as_they_are else absolute.found
            for name in scores
        }
        return {n: each.where(found[n].cpu(), math.nan) for n, each in scores.items()}

    def _judged(
        self,
        matched: Matched,
        folded: Matched,
        misplaced: Sequence[Mapping[str, Tensor]],
        nulls: NullScores,
    ) -> Judgement:
        """Score what was matched, `folded` by absolute values: what metrics on those look at."""
        import torch

        plain, absolute = (_completed(x, self.targets, nulls.mean) for x in (matched, folded))
        fit, unfit = self._panel
        count = len(self._private) if matched.unnamed else self.targets
        scores = self.score_images(plain.images, absolute.images)
        wrong = {n: torch.stack([each[n] for each in misplaced]) + nulls.easier[n] for n in fit}
        values = {
            name: scorer.values(
                scores[name],
                (plain if scorer.domain is as_they_are else absolute).found.cpu(),
                wrong[name],
                nulls.per_image[name],
            )
            for name, scorer in fit.items()
        }
        guesses = {name: nulls.per_image[name][best_guess(each)] for name, each in values.items()}
        return Judgement(
            privacy={**summarise(values, self.stream.stream(use="bootstrap")), **unfit},
            per_image={name: torch.from_numpy(value.attack) for name, value in values.items()},
            images=plain.images,
            found=plain.found,
            notes=(*nulls.notes, *few_others(self.truth, count), *left_out(plain.found)),
            unnamed=matched.unnamed,
            grouped=matched.grouped,
            guesses=guesses,
            misplaced={
                n: each.where(each.isfinite(), guesses[n]) - nulls.easier[n]
                for n, each in wrong.items()
            },
            easier={n: nulls.easier[n] for n in fit},
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


def _informed(scores: Mapping[str, Tensor]) -> Tensor:
    """What guesses that know the class tell of each target: a measure of how easy it is."""
    import torch

    return torch.stack([scores[name] for name in INFORMED if name in scores]).mean(0)


def nulls_of(truth: Splits, targets: int, stream: Stream, device: torch.device) -> Nulls:
    """What guesses without the release show of the first `targets` private images."""
    private = _on(truth.private[slice(targets)], device)
    return _nulls_in(as_they_are, truth, private, stream, NO_HELP)


def _nulls_in(domain: Domain, truth: Splits, private: Samples, stream: Stream, told: Help) -> Nulls:
    """Not matched yet."""
    folded, drawn = private.map(domain), stream.stream(use="nulls")
    nulls = make_nulls(truth.public, folded, truth.classes, truth.scale.mean, drawn, domain)
    if not told.guesses:
        return nulls
    return with_codebook(nulls, truth.public, folded, drawn, told.guesses, told.groups, domain)


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


def _exchanged(metric: Metric, own: Tensor, others: Samples) -> Metric:
    """The metric with `own` images [t, c, h, w] in place of the `others` among its decoys."""
    at = {image.numpy().tobytes(): i for i, image in enumerate(others.images[: len(own)])}
    decoys = metric.scene.decoys.clone()
    for place, image in enumerate(decoys):
        if (i := at.get(image.cpu().numpy().tobytes())) is not None:
            decoys[place] = own[i]
    found = copy(metric)
    found.scene = replace(metric.scene, decoys=decoys)
    return found


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
