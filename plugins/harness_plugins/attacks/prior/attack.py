"""The plug-and-play attack: the linear answer, and what turns of denoising add to it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, Progress, Reconstruction, View
from harness_plugins.attacks.prior import PriorConfig
from harness_plugins.attacks.prior.denoiser import PublicDenoiser
from harness_plugins.attacks.prior.exercise import Choice, Exam, exercised, linear_only
from harness_plugins.attacks.prior.turns import Turns
from harness_plugins.mixtures.released import Released

if TYPE_CHECKING:
    from torch import Tensor

_PATIENCE = 2
"""Turns without gain after which no more are tried."""


class PriorAttack(Attack[PriorConfig]):
    """Goes beyond the linear answer as far as it served public images."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """Every private image by name."""
        released = Released.of(view, self.config.mean, self.config.subspace, budget)
        targets = torch.arange(view.n_private)
        if released.law.hidden:
            images = view.scale.clamp(released.centres())
            return Reconstruction(images, targets, diagnostics={"linear_trace": 0.0})
        denoiser = PublicDenoiser.of(view, self.config.base)
        choice, diagnostics = self._choice(released, denoiser, progress)
        turns = Turns(released, denoiser, progress)
        images = _answer(turns, choice)
        return Reconstruction(view.scale.clamp(images), targets, diagnostics=diagnostics)

    def _choice(
        self, released: Released, denoiser: PublicDenoiser, progress: Progress
    ) -> tuple[Choice, dict[str, float]]:
        """What served public images best."""
        exercise = exercised(released)
        if exercise is None:
            return linear_only(), {"share": 0.0, "steps": 0.0}
        copy, truth = exercise
        turns = Turns(copy, denoiser, progress)
        exam = Exam(copy.view.scale, truth, turns.linear, turns.precision)
        best, most = linear_only(), 0.0
        for turn, found in enumerate(islice(turns, self.config.steps), 1):
            choice, gain = exam.choose(turn, found)
            progress(turn, self.config.steps, f"{gain:+.2f} dB on public images")
            if gain > most:
                best, most = choice, gain
            elif turn - best.turn >= _PATIENCE:
                break
        linear = float(exam.score(turns.linear).mean())
        return best, {
            "share": float(best.shares.mean()),
            "steps": float(best.turn),
            "exercise_lmmse_db": linear,
            "exercise_db": linear + most,
        }


def _answer(turns: Turns, choice: Choice) -> Tensor:
    """[n, *shape] as chosen."""
    if not choice.turn:
        return turns.linear
    found = next(islice(turns, choice.turn - 1, None))
    return choice.blend(turns.linear, found, turns.precision)
