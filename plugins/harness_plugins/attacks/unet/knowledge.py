"""What public images tell before the release is seen: their prior, the law, weights by norm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import torch

from harness_plugins.mixtures.law import NoiseLaw, exercise, law_of
from harness_plugins.mixtures.released import fitting_prior
from harness_plugins.mixtures.subspace import Subspace

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Budget, Encoded, View
    from harness_plugins.attacks.unet.rows import Rows
    from harness_plugins.mixtures.prior import GaussianPrior


@dataclass(frozen=True)
class Knowledge:
    """Of images in the coordinates of `subspace`: their `prior`, and the `law` of encodings.

    `line` [3]: intercept and slope of the own image's weight over the root mean square of an
    encoding, and the deviation of what is left.
    """

    subspace: Subspace
    prior: GaussianPrior
    law: NoiseLaw
    line: Tensor

    @classmethod
    def learn(cls, view: View, budget: Budget) -> Knowledge:
        """From public images, and the encodings of some of them."""
        samples, encoded = exercise(view)
        subspace = Subspace.between(view.shape, encoded.images, "auto")
        rows = subspace.project(encoded.images.to(view.device))
        line = _weight_by_norm(rows, encoded)
        law = law_of(rows, subspace.embed(samples.images), encoded)
        return cls(subspace, fitting_prior(view, subspace, "class", budget), law, line)

    @classmethod
    def of(cls, view: View, budget: Budget, kept: Mapping[str, Tensor]) -> Knowledge:
        """What was learned before, as stored; the prior is what attacks share."""
        subspace = Subspace.between(view.shape, view.encodings[0], "auto")
        law = NoiseLaw(*kept["law"].tolist())
        return cls(subspace, fitting_prior(view, subspace, "class", budget), law, kept["line"])

    def tensors(self) -> dict[str, Tensor]:
        """All but the prior, by name, for storing."""
        return {"law": torch.tensor(astuple(self.law)), "line": self.line}

    def weights(self, rows: Rows) -> Tensor:
        """[n, k]; where they are not granted, [n, 2]: the image's own, and what it leaves.

        The norm of the encoding gives a first guess, because the noise in it is multiplied by
        1 - w. A soft label of several classes then says it exactly: it is the share nearest to
        that guess.
        """
        if rows.weights is not None:
            return rows.weights
        size = rows.values.square().mean(1).sqrt()
        guess = (self.line[0] + self.line[1] * size).clamp(0.02, 1.0)
        own = guess if rows.labels is None else _nearest_share(rows.labels, guess)
        return torch.stack([own, 1 - own], 1)


def _nearest_share(labels: Tensor, guess: Tensor) -> Tensor:
    """[n]: of each soft label with several classes the share nearest to the guess."""
    distance = (labels - guess.view(-1, 1)).abs().masked_fill(labels <= 0, torch.inf)
    share = labels.gather(1, distance.argmin(1, keepdim=True)).squeeze(1)
    return torch.where((labels > 0).sum(1) > 1, share, guess)


def _weight_by_norm(rows: Tensor, encoded: Encoded) -> Tensor:
    """Intercept, slope and deviation of the residual of weight over size."""
    x = rows.square().mean(1).sqrt()
    y = encoded.secrets.weights[:, 0].to(x)
    dx, dy = x - x.mean(), y - y.mean()
    slope = (dx * dy).mean() / dx.square().mean().clamp(min=1e-12)
    error = (dy - slope * dx).square().mean().sqrt()
    return torch.stack([y.mean() - slope * x.mean(), slope, error])
