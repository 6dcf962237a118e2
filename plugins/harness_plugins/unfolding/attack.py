"""Two ways to the images behind masked mixtures, and the choice between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Progress, Reconstruction, View
from harness_plugins.mixtures.mixture import Mixture
from harness_plugins.mixtures.prior import GaussianPrior
from harness_plugins.networks.training import snr_db
from harness_plugins.resizing import fit_images
from harness_plugins.signs.demasker import Demasker
from harness_plugins.signs.exercise import encode
from harness_plugins.signs.unfolder import Unfolder
from harness_plugins.unfolding import UnfoldConfig
from harness_plugins.unfolding.magnitudes import Wishes, magnitudes_of
from harness_plugins.unfolding.signed import Folded, solved

if TYPE_CHECKING:
    from torch import Tensor

_EXAM = 200  # public images of the exercise
_EXAM_VALUES = 20_000_000  # numbers in its encodings, at the most
_COPIES = 10  # of the encodings in memory at a time


@dataclass(frozen=True)
class _Release:
    """`encodings` [rounds, n, *shape] with their `weights` and `sources` [rounds, n, k]."""

    encodings: Tensor
    weights: Tensor
    sources: Tensor
    n: int

    @property
    def mixture(self) -> Mixture:
        return Mixture.of(self.weights, self.sources, self.n)


@dataclass(frozen=True)
class _Choice:
    """What served public images: `sweeps` of the signed way, 0 for the absolute one.

    `error` is the deviation of the absolute way's |x|, `noise` that of encodings.
    """

    sweeps: int
    error: float
    noise: float
    diagnostics: dict[str, float]


class Unfold(Attack[UnfoldConfig]):
    """Solves for all private images at once."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """All private images, by name. Rounds beyond what memory holds are left out."""
        used = _fitting_rounds(view, budget)
        encodings = view.encodings[:used]
        release = _Release(
            fit_images(encodings.flatten(0, 1), view.shape).view(*encodings.shape[:2], *view.shape),
            view.weights[:used],
            view.sources[:used],
            view.n_private,
        )
        choice = self._choose(view, used, progress)
        images = self._images(view, release, choice, progress)
        return Reconstruction(
            images=view.scale.clamp(images),
            targets=torch.arange(view.n_private),
            diagnostics={"rounds_used": float(used), **choice.diagnostics},
        )

    def _images(self, view: View, release: _Release, choice: _Choice, progress: Progress) -> Tensor:
        if not choice.sweeps:
            magnitudes = self._magnitudes(release, progress)
            return Unfolder.of(view).apply(magnitudes, choice.error)
        images = release.encodings.new_empty(0)
        turns = islice(self._signed(view, release, choice.noise), choice.sweeps)
        for sweep, images in enumerate(turns, 1):  # noqa: B007
            progress(sweep, choice.sweeps, "signs and images in turn")
        return images

    def _magnitudes(self, release: _Release, progress: Progress) -> Tensor:
        """[n, *shape]; without mixing the start is the answer, and rounds repeat each other."""
        steps = self.config.steps if release.weights.shape[2] > 1 else 0
        seen = release.encodings.abs().flatten(0, 1).flatten(1)

        def stepped(step: int) -> None:
            progress(step, steps, "absolute values")

        shape = tuple(release.encodings.shape[2:])
        wishes = Wishes(self.config.spread, self.config.tv, shape)
        found = magnitudes_of(seen, release.mixture, steps, wishes, stepped)
        return found.view(-1, *release.encodings.shape[2:])

    def _signed(self, view: View, release: _Release, noise: float) -> Iterator[Tensor]:
        """Images [n, *shape] after each sweep."""
        demasker = Demasker.of(view)
        encodings, weights = release.encodings.flatten(0, 1), release.weights.flatten(0, 1)
        folded = Folded(
            encodings.abs().flatten(1),
            demasker.odds(encodings, weights).flatten(1),
            release.mixture,
            noise,
            demasker.hidden,
        )
        for images in solved(folded, GaussianPrior.of(view), self.config.sweeps):
            yield images.view(-1, *encodings.shape[1:])

    def _choose(self, view: View, rounds: int, progress: Progress) -> _Choice:
        """Both ways, as far as the config allows them, on public images encoded alike."""
        release, truth, noise = _exercise(view, rounds)
        scores: dict[int, float] = {}
        error = 0.0
        if self.config.way != "signed":
            magnitudes = self._magnitudes(release, progress)
            error = float((magnitudes - truth.abs()).square().mean().sqrt())
            images = Unfolder.of(view).apply(magnitudes, error)
            scores[0] = snr_db(view.scale.clamp(images), truth)
        if self.config.way != "absolute":
            for sweep, images in enumerate(self._signed(view, release, noise)):
                scores[sweep + 1] = snr_db(view.scale.clamp(images), truth)
        best = max(scores, key=lambda sweeps: scores[sweeps])
        told = {"sweeps": float(best), "public_snr_db": scores[best]}
        if 0 in scores:
            told |= {"public_snr_db_absolute": scores[0], "magnitude_error": error}
        return _Choice(best, error, noise, told)


def _fitting_rounds(view: View, budget: Budget) -> int:
    """As many rounds as the work on them has memory for; one at least."""
    rounds, rows = view.encodings.shape[:2]
    values = rows * max(view.encodings[0, 0].numel(), torch.Size(view.shape).numel())
    return max(1, min(rounds, budget.megabytes * 2**20 // (4 * _COPIES * values)))


def _exercise(view: View, rounds: int) -> tuple[_Release, Tensor, float]:
    """Public images [m, *shape] encoded as often as the private ones, and the encodings' noise."""
    each = max(1, rounds * torch.Size(view.shape).numel())
    count = min(_EXAM, view.n_private, max(32, _EXAM_VALUES // each), len(view.public))
    samples = view.public[:count]
    rng = view.rng.stream(use="exam")
    works = [encode(view, samples, rng.stream(turn=turn)) for turn in range(rounds)]
    beyond = [(work.encodings.abs() - work.mixtures.abs()).square().mean() for work in works]
    release = _Release(
        torch.stack([work.encodings for work in works]),
        torch.stack([work.weights for work in works]),
        torch.stack([work.sources for work in works]),
        count,
    )
    return release, samples.images, float(torch.stack(beyond).mean().sqrt())


if TYPE_CHECKING:
    from collections.abc import Iterator
