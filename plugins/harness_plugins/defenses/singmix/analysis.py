"""What theorems 4.1 and 4.2 say of one set of images."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.api import Samples, Stream, Table
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.calibration import Spread, measure_spread
from harness_plugins.defenses.singmix.encode import Singmix, draw_weights
from harness_plugins.defenses.singmix.inversion import log_amplification
from harness_plugins.defenses.singmix.rows import flat_rows

if TYPE_CHECKING:
    from harness.api import Encoded

_TAUS = tuple(10.0**-power for power in range(7))
_MEASURED_ROWS = 1000


def analyse(config: SingmixConfig, private: Samples, rng: Stream) -> tuple[Table, ...]:
    """The spread of the images, the radius of each tau, the amplification of plain inversion."""
    spread = measure_spread(private, config.resolution)
    return (
        _spread_table(spread),
        _radius_table(config, spread, private, rng),
        _amplification_table(config, len(private), rng.stream(use="amplification")),
    )


def _spread_table(spread: Spread) -> Table:
    return Table(
        "Spread of the private images (theorem 4.2)",
        ("D, mean distance", "V, total variance", "c = D²/2V"),
        ((spread.distance, spread.variance, spread.c),),
    )


def _radius_table(config: SingmixConfig, spread: Spread, private: Samples, rng: Stream) -> Table:
    rows = []
    for tau in _TAUS:
        radius = spread.radius(tau, config.alpha)
        ratio = _measured_ratio(config, radius, private, rng.stream(use="measured", tau=str(tau)))
        bound = spread.bound(radius, config.alpha)
        factor = spread.factor(tau, config.alpha)
        rows.append((tau, factor, radius, bound, ratio, 10 * math.log10(ratio)))
    columns = ("tau", "m_f", "r", "bound on SNR", "measured SNR", "measured, dB")
    return Table("Noise radius by theorem 4.2", columns, tuple(rows))


def _measured_ratio(config: SingmixConfig, radius: float, private: Samples, rng: Stream) -> float:
    """E‖S‖² / E‖I‖² of one real encoding, S = w x and I all the rest."""
    few = private[: min(len(private), _MEASURED_ROWS)]
    defense = Singmix(config.model_copy(update={"radius": radius}))
    encoded = defense.encode(few, few, rng)
    return _ratio(encoded, flat_rows(few.images, config.resolution))


def _ratio(encoded: Encoded, images: torch.Tensor) -> float:
    signal = interference = 0.0
    own = encoded.secrets.weights[:, :1]
    for w, x, mixed in zip(own, images, encoded.images.flatten(1).cpu(), strict=True):
        share = w.double() * x.double()
        signal += float(share.square().sum())
        interference += float((mixed.double() - share).square().sum())
    return signal / interference


def _amplification_table(config: SingmixConfig, n: int, rng: Stream) -> Table:
    partners = rng.permutation(n).numpy()
    weights = draw_weights(n, config.alpha, rng, config.first)[:, 0].double().numpy()
    values = np.exp(np.minimum(log_amplification(weights, partners), 700.0))
    row = tuple(
        float(value)
        for value in (
            values.min(),
            np.median(values),
            values.mean(),
            np.quantile(values, 0.95),
            values.max(),
        )
    )
    title = "T_i of theorem 4.1: mean squared error of plain inversion is at least r² T_i"
    return Table(title, ("min", "median", "mean", "95 %", "max"), (row,))
