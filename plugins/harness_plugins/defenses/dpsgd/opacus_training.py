"""The parts of a private training, made with Opacus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

from harness.api import Loader, Stream, UsageError
from harness_plugins.defenses.dpsgd.budget import Budget

if TYPE_CHECKING:
    from torch import Tensor


def private(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: Loader,
    spending: Budget,
    *,
    epochs: int,
    rng: Stream,
) -> tuple[nn.Module, torch.optim.Optimizer, PoissonBatches]:
    """`model`, `optimizer` and `loader`, wrapped; each step taken is counted in `spending`."""
    wrapped = _separable(model)
    device = next(model.parameters()).device
    private_optimizer = NoisyOptimizer(
        optimizer,
        noise_multiplier=spending.noise_multiplier,
        max_grad_norm=spending.clip,
        expected_batch_size=spending.sample_rate * loader.examples,
        generator=rng.stream(what="noise").generator(device),
    )
    private_optimizer.attach_step_hook(_counting(spending))
    batches = PoissonBatches(
        loader, wrapped, private_optimizer, spending.sample_rate, epochs, rng.stream(what="rows")
    )
    return wrapped, private_optimizer, batches


class PerImage(GradSampleModule):  # type: ignore[misc]
    """A model that keeps the gradient of each image, until `restore`."""

    def forward(self, images: Tensor) -> Tensor:
        """Logits, in the model's own precision: norms that are clipped must be exact.

        Asking for the gradient of the images spares torch a warning about Opacus' hooks.
        """
        with torch.autocast(images.device.type, enabled=False):
            logits: Tensor = self._module(
                images.detach().contiguous().requires_grad_(self.training)
            )
        return logits

    def restore(self) -> None:
        """Leave the model that was wrapped as it came."""
        self.cleanup()
        for parameter in self._module.parameters():
            parameter.__dict__.pop("summed_grad", None)
        for part in self._module.modules():
            part.__dict__.pop("activations", None)
            part.__dict__.pop("max_batch_len", None)


def _separable(model: nn.Module) -> PerImage:
    """`model` with Opacus' hooks, its weights laid out contiguously.

    Of channels-last activations Opacus computes wrong gradients for convolutions, in silence.
    """
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    try:
        return PerImage(model)
    except NotImplementedError as error:
        raise UsageError(f"dpsgd cannot train this victim: {error}") from None


class NoisyOptimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus' optimiser, which can also step where nobody joined."""

    def noise_only(self) -> None:
        """The step of a batch that nobody joined."""
        self.zero_grad()
        for parameter in self.params:
            parameter.grad_sample = parameter.new_zeros(0, *parameter.shape)
        self.step()


class PoissonBatches:
    """Epochs of batches that each row joins by a coin of its own.

    A batch that none joined is a step of pure noise, as Opacus does it; it is taken here,
    because a mean over no images is no number. The last epoch restores the model at its end.
    """

    def __init__(
        self,
        loader: Loader,
        model: PerImage,
        optimizer: NoisyOptimizer,
        sample_rate: float,
        epochs: int,
        rng: Stream,
    ) -> None:
        self.batch_size = loader.batch_size
        self._loader, self._model, self._optimizer = loader, model, optimizer
        self._sample_rate, self._epochs_left, self._rng = sample_rate, epochs, rng

    @property
    def examples(self) -> int:
        """Rows of one round."""
        return self._loader.examples

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in self._loader.epoch_of(self._draw() for _ in range(len(self))):
            if len(images):
                yield images, labels
            else:
                self._optimizer.noise_only()
        self._epochs_left -= 1
        if self._epochs_left == 0:
            self._model.restore()

    def epoch_of(self, batches: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Refused: batches chosen by anyone else carry no guarantee."""
        raise UsageError("dpsgd draws its own batches; no other defense can choose them")

    def _draw(self) -> Tensor:
        """Row numbers [b] int64."""
        return (self._rng.uniform(self.examples) < self._sample_rate).nonzero().flatten()


def _counting(spending: Budget) -> Callable[[DPOptimizer], None]:
    def count(_: DPOptimizer) -> None:
        spending.steps += 1

    return count
