"""A learner of a few lines: sums over a release, and the nearest mean."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.api import Budget, Classifier, Config, Learner, Lesson, Progress


class Spectrum(Learner[Config]):
    """Stripes of one direction have one spectrum, wherever they begin."""

    def learn(self, lesson: Lesson, budget: Budget, progress: Progress) -> Classifier:
        """One pass; soft labels weigh."""
        release = lesson.release
        sums = torch.zeros(lesson.classes, *release.shape, device=lesson.device)
        mass = torch.zeros(lesson.classes, device=lesson.device)
        for turn in range(release.rounds):
            for encodings, labels in release.pieces(turn):
                sums += torch.einsum("nk,n...->k...", labels, amplitudes(encodings))
                mass += labels.sum(0)
            progress(turn + 1, release.rounds)
        return Nearest(sums.flatten(1) / mass.clamp(min=1).view(-1, 1))


class Nearest(Classifier):
    """Means [classes, d] of amplitude spectra."""

    def __init__(self, means: Tensor) -> None:
        self.means = means

    def logits(self, images: Tensor) -> Tensor:
        """[b, classes]."""
        return -torch.cdist(amplitudes(images).flatten(1), self.means).square()


def amplitudes(images: Tensor) -> Tensor:
    """[n, c, h, w]: how much of each wave there is, wherever it begins."""
    return torch.fft.fft2(images).abs()
