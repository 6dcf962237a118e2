"""The inversion attack: which of its methods, and which images its answers are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import (
    Attack,
    Budget,
    CellFailed,
    Channel,
    NotApplicable,
    Progress,
    Reconstruction,
    View,
)
from harness_plugins.attacks.inversion import InversionConfig
from harness_plugins.attacks.inversion.adversary import AdversarialSchool
from harness_plugins.attacks.inversion.descent import Found, restarted
from harness_plugins.attacks.inversion.objective import Objective
from harness_plugins.attacks.inversion.starts import first_guess
from harness_plugins.features.decoder import Lessons, School, answer
from harness_plugins.features.encoder import require_own_features

if TYPE_CHECKING:
    from torch import Tensor

_FEWEST = 20
"""Public images below which nothing is learned from them."""


class Inversion(Attack[InversionConfig]):
    """Looks for images whose features are those that were released."""

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """The decoder, where one is asked for: the encoder is known before the release."""
        if self.config.method != "decoder":
            return {}
        if not _has_public(view):
            raise NotApplicable(
                f"a decoder is trained on public images, and this attacker has fewer than "
                f"{_FEWEST}; give it some (--public-size) or use method=descent."
            )
        return self._school(view).learn(progress)

    def _school(self, view: View) -> School:
        config = self.config
        lessons = Lessons(
            config.base, config.epochs, config.batch, config.decoder_lr, config.images
        )
        if config.gan:
            return AdversarialSchool(view, lessons, config.xi)
        return School(view, lessons)

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """One image for each row of features, by name."""
        require_own_features(view)
        if self.config.method == "decoder":
            return answer(view, prepared, self.config.base)
        return _answer(self._descend(view, progress), len(view.features))

    def _descend(self, view: View, progress: Progress) -> Found:
        public = _has_public(view)
        if self.config.features == "whitened" and not public:
            raise NotApplicable(
                "features=whitened measures features by public images, and this attacker has "
                f"fewer than {_FEWEST}; give it some (--public-size) or use features=relative."
            )
        objective = Objective.of(view, self.config, public=public)
        start = first_guess(view, self.config, public=public)
        return restarted(objective, view.features, start, self.config, view, progress)


def _has_public(view: View) -> bool:
    return view.has(Channel.PUBLIC) and len(view.public) >= _FEWEST


def _answer(found: Found, count: int) -> Reconstruction:
    """The images of which a descent survived; CellFailed where none did."""
    alive = found.loss.isfinite()
    if not bool(alive.any()):
        raise CellFailed(
            f"all {found.diverged} descents on {count} images diverged; try a smaller lr"
        )
    diagnostics = {
        "diverged_restarts": float(found.diverged),
        "loss": float(found.loss[alive].mean()),
    }
    images, names = found.images[alive], torch.arange(count)[alive.cpu()]
    return Reconstruction(images=images, targets=names, diagnostics=diagnostics)
