"""Where a descent begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from harness.api.plugins import silent
from harness_plugins.features.ridge import regress

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View
    from harness_plugins.attacks.inversion import InversionConfig


_MOST = 4000
"""Public images that a regression is solved on: its cost grows with their cube."""


def first_guess(view: View, config: InversionConfig, *, public: bool) -> Tensor:
    """[n, *view.shape] in the config's domain, before any noise."""
    if config.start == "ridge" and public:
        return to_domain(view, config, regress(view, min(config.images, _MOST), silent)[0])
    return torch.zeros(len(view.features), *view.shape, device=view.device)


def noise_of(view: View, config: InversionConfig, restart: int) -> Tensor | float:
    """What restart number `restart` adds to the first guess, in the config's domain."""
    scale = 1.0 if config.start == "noise" else _jitter(view, config, restart)
    if scale == 0:
        return 0.0
    drawn = view.rng.stream(use="start", restart=restart).normal(len(view.features), *view.shape)
    return scale * drawn.to(view.device)


def _jitter(view: View, config: InversionConfig, restart: int) -> float:
    if restart == 0:
        return 0.0
    standard = sum(view.scale.std) / len(view.scale.std)
    return config.jitter * (standard if config.domain == "unit" else 1.0)


def to_domain(view: View, config: InversionConfig, images: Tensor) -> Tensor:
    """Standardised images in the domain of the descent."""
    return view.scale.restore(images) if config.domain == "unit" else images


def from_domain(view: View, config: InversionConfig, images: Tensor) -> Tensor:
    """Images of the descent's domain, standardised."""
    return view.scale.standardise(images) if config.domain == "unit" else images


def held(view: View, config: InversionConfig, images: Tensor) -> Tensor:
    """Images of the descent's domain in the valid range."""
    return view.scale.within(images) if config.domain == "unit" else view.scale.clamp(images)
