"""What a descent minimises, one value for each image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from harness_plugins.attacks.inversion.starts import from_domain
from harness_plugins.attacks.inversion.whitening import Whitening
from harness_plugins.features.encoder import embed

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View
    from harness_plugins.attacks.inversion import InversionConfig

_PRIOR_SHRINKAGE = 1e-3
_TINY = 1e-12


@dataclass(frozen=True)
class Objective:
    """D(h(s), z) + ζ·TV(s) + λ·‖s − μ‖² by the public covariance (MixCon, equation 3).

    `spread` is of public features, `likely` of public images; None where they are not used.
    """

    view: View
    config: InversionConfig
    spread: Whitening | None = None
    likely: Whitening | None = None

    @classmethod
    def of(cls, view: View, config: InversionConfig, *, public: bool) -> Objective:
        """With all that the options want of public images, where there are any."""
        if not public:
            return cls(view, config)
        images = view.public.images[: config.images]
        spread = likely = None
        if config.features == "whitened":
            spread = Whitening.of(embed(view, images).flatten(1), config.shrinkage)
        if config.lambda_prior > 0:
            likely = Whitening.of(images.flatten(1), _PRIOR_SHRINKAGE)
        return cls(view, config, spread, likely)

    def __call__(self, images: Tensor, released: Tensor) -> Tensor:
        """[b] for images [b, *view.shape] of the descent's domain and their features [b, ...]."""
        plain = from_domain(self.view, self.config, images)
        loss = self._fit(self.view.feature_encoder(plain).flatten(1), released.flatten(1))
        if self.config.lambda_tv > 0:
            loss = loss + self.config.lambda_tv * total_variation(images)
        if self.likely is not None:
            off = self.likely.apply(plain.flatten(1) - self.likely.mean)
            loss = loss + self.config.lambda_prior * off.square().sum(1)
        return loss

    def _fit(self, made: Tensor, asked: Tensor) -> Tensor:
        """[b] distances of features [b, p] in the units the config asks for."""
        off = made - asked
        if self.spread is not None:
            off = self.spread.apply(off)
        elif self.config.features != "raw":
            off = off / torch.linalg.vector_norm(asked, dim=1, keepdim=True).clamp(min=_TINY)
        return _DISTANCES[self.config.distance](off)


_DISTANCES: dict[str, Callable[[Tensor], Tensor]] = {
    "l2": lambda off: torch.linalg.vector_norm(off, dim=1),
    "squared": lambda off: off.square().sum(1),
    "l1": lambda off: off.abs().sum(1),
}


def total_variation(images: Tensor) -> Tensor:
    """[n] Σ_ij ((s_{i+1,j} − s_{i,j})² + (s_{i,j+1} − s_{i,j})²)^½ over pixels and channels.

    A neighbour beyond the edge adds nothing. The gradient of a flat spot is zero.
    """
    down = pad(images[..., 1:, :] - images[..., :-1, :], (0, 0, 0, 1))
    across = pad(images[..., 1:] - images[..., :-1], (0, 1))
    steps: Tensor = torch.linalg.vector_norm(torch.stack([down, across]), dim=0)
    return steps.flatten(1).sum(1)
