"""How a server reads encodings, as far as the law of the defense tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.mixing import mix
from harness_plugins.mixtures.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Lesson

_TRIED = 400
"""Public images that are encoded to see what the law does."""
_FEWEST = 16
"""With fewer nothing is tried: a law may need as many to mix."""
_EXPLAINED = 0.95
"""What the norm must explain of the noise to be believed. It also grows with the brightness of
the images: rows weighted by it would count dark images for more, and no number of rows mends
that."""
_HIDDEN, _SEEN = 0.1, 0.3
"""Correlations of encodings with mixtures, below and above which signs are hidden."""


@dataclass(frozen=True)
class Reading:
    """Encodings as rows of numbers that images have too.

    A row holds a mixture of images and white noise, of the variance `floor` + `slope` t, held
    between `least` and `most`, where t is the encoding's mean square; no noise where the law
    could not be tried. With `magnitudes`, encodings carry random signs: rows are their absolute
    values, which images do not have until they are encoded too. `changes` is False where the law
    leaves images as they are. What images differ in from their classes comes again in every round:
    in sums over T rounds it counts for `again` T + `once` times what it does in a row of one image.
    """

    space: Subspace
    floor: float = 0.0
    slope: float = 0.0
    least: float = 0.0
    most: float = 0.0
    magnitudes: bool = False
    changes: bool = True
    again: float = 1.0
    once: float = 0.0

    @classmethod
    def of(cls, lesson: Lesson) -> Reading:
        """Tried on public images, whose mixtures are known."""
        example = torch.empty(1, *lesson.release.shape, device=lesson.device)
        space = Subspace.between(lesson.shape, example, "auto")
        if len(lesson.public) < _FEWEST:
            return cls(space)
        encodings, mixtures, weights = _tried(lesson)
        rows, content = space.project(encodings), space.embed(mixtures)
        if _alike(rows, content) < _HIDDEN and _alike(rows.abs(), content.abs()) > _SEEN:
            return cls(space, magnitudes=True)
        noise = (rows - content).square().mean(1)
        floor, slope = _line(mean_square(encodings), noise)
        least, most = (float(end) for end in noise.aminmax())
        images = lesson.public.images[: len(encodings)]
        changes = encodings.shape != images.shape or not torch.equal(encodings, images)
        again, once = _mixed(weights)
        return cls(space, floor, slope, least, most, changes=changes, again=again, once=once)

    def rows(self, encodings: Tensor) -> Tensor:
        """[b, d] of encodings [b, *shape]."""
        rows = self.space.project(encodings)
        return rows.abs() if self.magnitudes else rows

    def embed(self, images: Tensor) -> Tensor:
        """[b, d] of images [b, *shape], where signs are not hidden."""
        return self.space.embed(images)

    def noise(self, encodings: Tensor) -> Tensor:
        """[b] variance of the noise in each row."""
        if not self.slope:
            return torch.full((len(encodings),), self.floor, device=encodings.device)
        told = self.floor + self.slope * mean_square(encodings)
        return told.clamp(self.least, self.most)


def mean_square(rows: Tensor) -> Tensor:
    """[n] of rows [n, ...]."""
    flat = rows.flatten(1)
    norms: Tensor = torch.linalg.vector_norm(flat, dim=1)
    return norms.square() / flat.shape[1]


def readings(lesson: Lesson, reading: Reading) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """All pieces of all rounds, in order: the round, rows [b, d], noise [b], labels [b, classes].

    Only one piece is held at a time.
    """
    for turn in range(lesson.release.rounds):
        for encodings, labels in lesson.release.pieces(turn):
            yield turn, reading.rows(encodings), reading.noise(encodings), labels


def public_rows(lesson: Lesson, reading: Reading, most: int) -> Tensor:
    """[m, d] of at most `most` public images, encoded where images are no rows before that."""
    public = lesson.public[:most]
    if not reading.magnitudes:
        return reading.embed(public.images)
    encoded = lesson.law.encode(public, lesson.public, lesson.rng.stream(use="public rows"))
    return reading.rows(encoded.images.to(lesson.device))


def _tried(lesson: Lesson) -> tuple[Tensor, Tensor, Tensor]:
    """Encodings of public images, and the mixtures that they hide, with their weights [n, k]."""
    pool = lesson.public[:_TRIED]
    encoded = lesson.law.encode(pool, lesson.public, lesson.rng.stream(use="law"))
    images = torch.cat([pool.images, lesson.public.images])  # public ones count from n on
    mixtures = mix(images, encoded.secrets.sources, encoded.secrets.weights)
    return encoded.images.to(mixtures), mixtures, encoded.secrets.weights


def _mixed(weights: Tensor) -> tuple[float, float]:
    """Mean s of the sums of squared weights [n, k], and s - q/s, q that of fourth powers.

    With W the mixing matrix of a round, least squares on WY have an error of WW' along WY, and
    tr (W'W)² / tr W'W is 2s - q/s where partners are drawn apart. Over rounds W'W comes to s I.
    """
    s, q = (float(weights.pow(power).sum(1).mean()) for power in (2, 4))
    return (s, s - q / s) if s else (1.0, 0.0)


def _alike(one: Tensor, other: Tensor) -> float:
    """The correlation of all values, about the mean of each column."""
    one, other = one - one.mean(0), other - other.mean(0)
    scale = one.square().sum() * other.square().sum()
    return float((one * other).sum() / scale.sqrt().clamp(min=torch.finfo(one.dtype).tiny))


def _line(powers: Tensor, noise: Tensor) -> tuple[float, float]:
    """Intercept and slope of noise [n] over powers [n]; no slope where they do not explain it."""
    apart, off = powers - powers.mean(), noise - noise.mean()
    spread = apart.square().sum()
    if not spread > 0 or not off.square().sum() > 0:
        return float(noise.mean()), 0.0
    slope = (apart * off).sum() / spread
    explained = slope * (apart * off).sum() / off.square().sum()
    if explained < _EXPLAINED or (apart - off).square().sum() > (1 - _EXPLAINED) * spread:
        return float(noise.mean()), 0.0
    return float(noise.mean() - slope * powers.mean()), float(slope)
