"""From the norm of an encoding to the weight of its own image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from harness.api import Attack, Budget, CellFailed, Channel, Progress, Reconstruction, View
from harness_plugins.attacks.normchannel import NormChannelConfig

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1024
_SURE = 0.99
# Soft labels and weights are float32: none is known closer than this.
_ROUNDING = 1e-7


@dataclass(frozen=True)
class Calibration:
    """w as a Chebyshev polynomial in the norm, worked out in float64 on the CPU.

    `coefficients` [degree + 1] over `norms` [2], the least and largest that were met; answers
    stay within `weights` [2]. `deviation` [] is the root mean square error on encodings that
    took no part in the fit, `error` [] its mean absolute error. `mixed` [] images make a row.
    """

    coefficients: Tensor
    norms: Tensor
    weights: Tensor
    deviation: Tensor
    error: Tensor
    mixed: Tensor

    @classmethod
    def of(cls, prepared: Mapping[str, Tensor]) -> Calibration:
        """What was stored."""
        return cls(**{name: value.cpu().double() for name, value in prepared.items()})

    def stored(self) -> dict[str, Tensor]:
        """In float32, which any device holds: 1e-7 of a weight is below every noise."""
        return {name: value.float() for name, value in vars(self).items()}

    @classmethod
    def fit(cls, norms: Tensor, weights: Tensor, degree: int) -> Calibration:
        """From norms [m] and weights [m, k], the own image's first; every fifth is held out."""
        own = weights[:, 0].double()
        held = torch.arange(len(own)) % 5 == 0
        bounds, limits = torch.stack(norms.aminmax()), torch.stack(own.aminmax())
        powers = _chebyshev(norms, bounds, degree)
        coefficients = torch.linalg.lstsq(powers[~held], own[~held, None]).solution[:, 0]
        wrong = ((powers[held] @ coefficients).clamp(*limits) - own[held]).abs()
        mixed = torch.tensor(weights.shape[1])
        return cls(coefficients, bounds, limits, wrong.square().mean().sqrt(), wrong.mean(), mixed)

    def read(self, norms: Tensor) -> Tensor:
        """Weights [m] of norms [m]."""
        powers = _chebyshev(norms, self.norms, len(self.coefficients) - 1)
        return (powers @ self.coefficients).clamp(*self.weights)


def _chebyshev(norms: Tensor, bounds: Tensor, degree: int) -> Tensor:
    """T_0 … T_degree [m, degree + 1] of norms scaled to [-1, 1] and held there."""
    span = (bounds[1] - bounds[0]).clamp(min=torch.finfo(torch.float64).tiny)
    angle = (2 * (norms - bounds[0]) / span - 1).clamp(-1, 1).acos()
    return (angle.view(-1, 1) * torch.arange(degree + 1)).cos()


def norms_of(rows: Tensor) -> Tensor:
    """‖x~‖ [n] in float64 on the CPU, of rows [n, ...]; never a copy of more than a block."""
    parts = [torch.linalg.vector_norm(b.flatten(1), dim=1) for b in torch.split(rows, _BLOCK)]
    return torch.cat(parts).cpu().double()


class NormChannel(Attack[NormChannelConfig]):
    """Reads weights off norms, as an exercise on public images taught it to."""

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """The calibration: public images are encoded until there are enough rows."""
        if not len(view.public):
            raise CellFailed("the public pool is empty: there is nothing to exercise on.")
        norms, weights = _exercise(view, self.config.exercise, progress)
        return Calibration.fit(norms, weights, self.config.degree).stored()

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """A weight for every row of every round."""
        calibration = Calibration.of(prepared)
        norms = torch.cat([norms_of(rows) for rows in view.encodings])
        weights = calibration.read(norms)
        diagnostics = {"predicted_weight_error": float(calibration.error)}
        if view.has(Channel.LABELS) and int(calibration.mixed) == 2:
            diagnostics |= _primary(weights, view.labels, float(calibration.deviation))
        rows = torch.arange(len(weights))
        return Reconstruction(
            claims={"weights": weights.float()}, rows=rows, diagnostics=diagnostics
        )


def _exercise(view: View, wanted: int, progress: Progress) -> tuple[Tensor, Tensor]:
    """Norms [m] float64 and weights [m, k] of at least `wanted` encodings of public images."""
    pool = view.public[:wanted]
    turns = -(-wanted // len(pool))
    norms, weights = [], []
    for turn in range(turns):
        encoded = view.encoder.encode(pool, view.public, view.rng.stream(use="exercise", turn=turn))
        norms.append(norms_of(encoded.images))
        weights.append(encoded.secrets.weights.cpu())
        progress(turn + 1, turns, "encoding public images")
    return torch.cat(norms), torch.cat(weights)


def _primary(weights: Tensor, labels: Tensor, deviation: float) -> dict[str, float]:
    """How often the weight tells which of a row's two classes is its own image's.

    The label of a mixture of two classes holds w and 1 - w; the entry nearer to the weight w^
    belongs to the own image. Sure where its posterior, for normal errors, is above .99.
    """
    if labels.shape[-1] < 2:
        return {}
    entries = labels.flatten(0, 1).topk(2).values.cpu().double()
    two = entries[:, 1] > _ROUNDING
    misses = (weights.view(-1, 1) - entries)[two] / max(deviation, _ROUNDING)
    posterior = (-misses.square() / 2).softmax(1).amax(1)
    if not len(posterior):
        return {}
    return {"primary_class_sure": float((posterior > _SURE).double().mean())}
