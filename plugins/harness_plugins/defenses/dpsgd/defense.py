"""DP-SGD as a training defense. Opacus is imported only where it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

from harness.api import CellFailed, Loader, Stream, TrainingDefense, UsageError
from harness_plugins.defenses.dpsgd import DpSgdConfig

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.defenses.dpsgd.budget import Budget

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
# As Opacus does: no division by the norm of a zero gradient.
_SMALLEST_NORM = 1e-6


class DpSgd(TrainingDefense[DpSgdConfig]):
    """Clips the gradient of each image, adds noise to their sum (Abadi et al., algorithm 1)."""

    def __init__(self, config: DpSgdConfig) -> None:
        super().__init__(config)
        self._budget: Budget | None = None

    def prepare(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loader: Loader,
        *,
        epochs: int,
        rng: Stream,
    ) -> tuple[nn.Module, torch.optim.Optimizer, Loader]:
        """Poisson batches, gradients per image, and a noisy optimiser over the same parameters.

        Sampling reads `rng`'s cryptographic stream; noise comes from a torch generator seeded
        from it, which is reproducible and not cryptographic. After the last of `epochs` the
        model is as plain as it came. UsageError where a layer mixes the images of a batch, or
        without Opacus.
        """
        _require_separable(model)
        with _needing_opacus():
            from harness_plugins.defenses.dpsgd.budget import resolve
            from harness_plugins.defenses.dpsgd.opacus_training import private
        rate = min(1.0, loader.batch_size / loader.examples)
        self._budget = resolve(self.config, sample_rate=rate, steps=epochs * len(loader))
        if not epochs:
            return model, optimizer, loader
        return private(model, optimizer, loader, self._budget, epochs=epochs, rng=rng)

    def measures(self) -> Mapping[str, float]:
        """The budget that the steps taken have spent, and what it was spent on."""
        return {} if self._budget is None else self._budget.measures()

    def gradient(self, per_image: Mapping[str, Tensor], rng: Stream) -> Mapping[str, Tensor]:
        """The clipped sum of gradients [b, …], noise from `rng` added, over b."""
        deviation = self._noise_multiplier() * self.config.clip
        noisy = {}
        for name, total in clipped_sum(per_image, self.config.clip).items():
            noise = rng.normal(*total.shape).to(total)
            noisy[name] = (total + deviation * noise) / len(per_image[name])
        return noisy

    def _noise_multiplier(self) -> float:
        if self.config.noise_multiplier is not None:
            return self.config.noise_multiplier
        if self._budget is None:
            raise CellFailed(
                "dpsgd knows its noise only from a training: epsilon was given, and no training "
                "was prepared whose steps it could be divided among; give noise_multiplier"
            )
        return self._budget.noise_multiplier


def clipped_sum(per_image: Mapping[str, Tensor], clip: float) -> dict[str, Tensor]:
    """Σ_i g_i·min(1, clip/‖g_i‖) by name, where ‖g_i‖ is taken over all names at once.

    One image more or less moves it by at most `clip` in L2, an exchanged one by 2·clip.
    """
    squares = [g.flatten(1).square().sum(1) for g in per_image.values()]
    norms = torch.stack(squares).sum(0).sqrt()
    shares = (clip / (norms + _SMALLEST_NORM)).clamp(max=1)
    return {name: torch.tensordot(shares, g, dims=1) for name, g in per_image.items()}


def _require_separable(model: nn.Module) -> None:
    mixing = [name for name, part in model.named_modules() if isinstance(part, _BATCH_NORMS)]
    if mixing:
        raise UsageError(
            f"dpsgd cannot train a victim with BatchNorm (here: {', '.join(mixing)}): it mixes "
            "the images of a batch, so that none has a gradient of its own. Use "
            "--victim 'cnn[norm=group]' or 'resnet18[norm=group]', or lenet5 or mlp, which "
            "have none."
        )


@contextmanager
def _needing_opacus() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in {"opacus", "opt_einsum"}:
            raise
        raise UsageError(
            "dpsgd needs Opacus, which is not installed: pip install 'encoding-harness[dp]'"
        ) from None
