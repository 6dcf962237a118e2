"""Encodings of some private images over many rounds, compared with one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, NotApplicable, Progress, Reconstruction, View
from harness_plugins.attacks.indistinguishability import IndistinguishabilityConfig
from harness_plugins.attacks.indistinguishability.kolmogorov import (
    equal_sizes,
    largest_gap,
    one_against_others,
)
from harness_plugins.attacks.indistinguishability.statistics import (
    LOCATIONS,
    NAMES,
    statistics_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Stream

FEWEST = 8
"""Encodings of an image below which no test is tried."""
_LEVEL = 0.05
_BLOCK = 256


class Indistinguishability(Attack[IndistinguishabilityConfig]):
    """Tests each statistic between each pair of images (InstaHide, appendix E.3)."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """p-values [7, pairs]; NotApplicable where there are too few rounds or images."""
        rows = rows_of_images(view.sources[:, :, 0].flatten(), self.config.images, view.rng)
        values = _statistics(view.encodings.flatten(0, 1), rows, view.rng, progress)
        p_values = by_pair(values)
        found = {"encodings_per_image": float(rows.shape[1])}
        found |= _by_statistic("mean_p", p_values)
        found |= _by_statistic("rejected", (p_values < _LEVEL).double())
        found |= _by_statistic("table4_p", one_against_others(values).flatten(1))
        return Reconstruction(claims={"p_values": p_values.float()}, diagnostics=found)


def rows_of_images(own: Tensor, images: int, rng: Stream) -> Tensor:
    """[images, m] numbers of the rows whose primary image, `own` [rows], is a random image's.

    As many of each: m is what the image with the fewest of them has, at least `FEWEST`.
    """
    counts = own.bincount()
    often = (counts >= FEWEST).nonzero().flatten()
    if len(often) < 2:
        raise NotApplicable(
            f"fewer than two images have {FEWEST} encodings (the most of one is "
            f"{int(counts.max())}), too few to compare their laws: release more rounds, "
            "--rounds 20 or, as in the paper, --rounds 400."
        )
    drawn = rng.stream(use="images").permutation(len(often))[:images]
    chosen = often[drawn.to(often.device)]
    first = counts.cumsum(0) - counts
    each = torch.arange(int(counts[chosen].min()), device=own.device)
    rows: Tensor = own.argsort(stable=True)[first[chosen].view(-1, 1) + each]
    return rows


def _statistics(encodings: Tensor, rows: Tensor, rng: Stream, progress: Progress) -> Tensor:
    """[7, images, m] of encodings [rows, c, h, w], a block at a time."""
    places = rng.stream(use="places").permutation(encodings[0].numel())[:LOCATIONS]
    places = places.to(encodings.device)
    parts = torch.split(rows.flatten(), _BLOCK)
    found = []
    for done, part in enumerate(parts, 1):
        found.append(statistics_of(encodings[part], places))
        progress(done, len(parts), "statistics of encodings")
    return torch.cat(found, 1).view(len(NAMES), *rows.shape)


def by_pair(values: Tensor) -> Tensor:
    """P [statistics, pairs] float64 between any two images of values [statistics, images, m]."""
    images, m = values.shape[1:]
    first, second = torch.triu_indices(images, images, offset=1, device=values.device)
    gaps = [largest_gap(statistic[first], statistic[second]) for statistic in values]
    return equal_sizes(torch.stack(gaps), m)


def _by_statistic(name: str, numbers: Tensor) -> dict[str, float]:
    """Means of numbers [statistics, ...] under the names of the statistics."""
    means = numbers.flatten(1).mean(1).tolist()
    return {f"{name}_{of}": mean for of, mean in zip(NAMES, means, strict=True)}
