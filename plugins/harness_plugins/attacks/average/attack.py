"""Averages of encodings, read as images by what averages of public images were worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Channel, Progress, Reconstruction, Samples, View
from harness_plugins.attacks.average import AverageConfig
from harness_plugins.attacks.average.search import cosine, most_similar, ssim
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.mixtures.prior import GaussianPrior, prior_of
from harness_plugins.resizing import fit_images
from harness_plugins.signs.demasker import Demasker
from harness_plugins.signs.exercise import Exercise, encode, hides_signs
from harness_plugins.signs.reading import Reading

if TYPE_CHECKING:
    from torch import Tensor

_EXAM = 500  # public images of the exercise
_EXAM_VALUES = 20_000_000  # numbers in its encodings, at the most
_ROWS = 20_000  # encodings that are enough to whiten by
_TRACES = "traces."


@dataclass(frozen=True)
class _Rounds:
    """Encodings [rounds, n, *shape], `sources` and `weights` [rounds, n, k] where known."""

    encodings: Tensor
    sources: Tensor | None
    weights: Tensor | None


class Average(Attack[AverageConfig]):
    """Section 5.3's stronger attack where sources are granted, else its weaker one."""

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """For a search by cosine: how encodings, or their absolute values, vary."""
        if self._known(view) or self.config.similarity != "cosine":
            return {}
        pool = view.public[: min(self.config.images, _ROWS)]
        work = encode(view, pool, view.rng.stream(use="whiten"))
        rows = Samples(_traces(work.encodings, hides_signs(work)), torch.zeros_like(pool.labels))
        prior = prior_of(rows, 1, "public", budget.megabytes)
        return {_TRACES + name: tensor for name, tensor in prior.tensors().items()}

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """All private images by name where sources are used, else the rows of round 0."""
        progress(0, 3, "public images encoded alike")
        reading, told = self._exercise(view, prepared)
        progress(1, 3, "the release")
        rounds = _released(view)
        known = self._known(view)
        read = self._known_sets(view, rounds) if known else self._found(view, rounds, prepared)[0]
        progress(3, 3)
        names = torch.arange(len(read))
        return Reconstruction(
            images=view.scale.clamp(reading.of(read)),
            targets=names if known else None,
            rows=None if known else names,
            diagnostics={"share": reading.share, **told},
        )

    def _known(self, view: View) -> bool:
        return self.config.strength == "known" and view.has(Channel.SOURCES)

    def _exercise(
        self, view: View, prepared: Mapping[str, Tensor]
    ) -> tuple[Reading, dict[str, float]]:
        """How to read an average, from averages of public images that are made the same way."""
        rounds, samples = _encoded(view)
        if self._known(view):
            read, truth = self._known_sets(view, rounds, len(samples)), samples.images
            return Reading.learn(read, truth), {}
        read, found = self._found(view, rounds, prepared)
        assert rounds.sources is not None  # of its own images the attacker knows all
        own = rounds.sources[0, :, 0]
        holds = (rounds.sources.flatten(0, 1)[found] == own.view(-1, 1, 1)).any(2)
        reading = Reading.learn(read, samples.images[own])
        return reading, {"public_search_precision": float(holds.float().mean())}

    def _known_sets(self, view: View, rounds: _Rounds, n: int | None = None) -> Tensor:
        """[n, *shape]: the mean of all encodings of each image, by weight where that is known."""
        assert rounds.sources is not None  # granted wherever sets are known
        weights = rounds.weights
        if weights is None:
            weights = torch.ones_like(rounds.sources, dtype=rounds.encodings.dtype)
        count = view.n_private if n is None else n
        mixture = Mixture.of(weights, rounds.sources, count)
        mixtures = _demasked(view, rounds)
        total = mixture.gather(torch.ones_like(mixtures[:, :1, 0, 0])).clamp(min=1e-12)
        return (mixture.gather(mixtures.flatten(1)) / total).view(count, *view.shape)

    def _found(
        self, view: View, rounds: _Rounds, prepared: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """[n, *shape]: means of each encoding of round 0 and those found; and which [n, m]."""
        mixtures = _demasked(view, rounds)
        asked = rounds.encodings.shape[1]
        if self.config.similarity == "ssim":
            found = most_similar(mixtures, asked, self.config.matches, ssim)
        else:
            prior = _prior(prepared)
            traces = _traces(rounds.encodings.flatten(0, 1), Demasker.of(view).hidden)
            whitened = prior.whiten(prior.embed(traces))
            found = most_similar(whitened, asked, self.config.matches, cosine)
        total = mixtures[:asked].clone()
        for column in found.T:
            total += mixtures[column]
        return total / (1 + found.shape[1]), found


def _demasked(view: View, rounds: _Rounds) -> Tensor:
    """[rounds · n, *view.shape]: the mixtures, as far as they can be told."""
    weights = None if rounds.weights is None else rounds.weights.flatten(0, 1)
    return Demasker.of(view).apply(rounds.encodings.flatten(0, 1), weights)[0]


def _traces(encodings: Tensor, hidden: bool) -> Tensor:
    """What of encodings can be compared before signs are known."""
    return encodings.abs() if hidden else encodings


def _prior(prepared: Mapping[str, Tensor]) -> GaussianPrior:
    kept = {k.removeprefix(_TRACES): v for k, v in prepared.items() if k.startswith(_TRACES)}
    return GaussianPrior(**kept)


def _released(view: View) -> _Rounds:
    encodings = view.encodings
    fitted = fit_images(encodings.flatten(0, 1), view.shape)
    return _Rounds(
        fitted.view(*encodings.shape[:2], *view.shape),
        view.sources if view.has(Channel.SOURCES) else None,
        view.weights if view.has(Channel.WEIGHTS) else None,
    )


def _encoded(view: View) -> tuple[_Rounds, Samples]:
    """Public images as the release was made: as many rounds, as many images if there are."""
    turns, rows = view.encodings.shape[:2]
    most = max(32, _EXAM_VALUES // (turns * torch.Size(view.shape).numel()))
    samples = view.public[: min(rows, most, _EXAM)]
    rng = view.rng.stream(use="exam")
    works = [encode(view, samples, rng.stream(turn=turn)) for turn in range(turns)]
    return _stacked(works, view.has(Channel.WEIGHTS)), samples


def _stacked(works: list[Exercise], weighed: bool) -> _Rounds:
    return _Rounds(
        torch.stack([work.encodings for work in works]),
        torch.stack([work.sources for work in works]),
        torch.stack([work.weights for work in works]) if weighed else None,
    )
