"""Adam on the penalised least squares of a mixture, with the gradient written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from harness_plugins.mixtures.mixture import Mixture


_IMAGES = 64
"""For as many images this is the paper's mean over all entries."""


@dataclass(frozen=True)
class Objective:
    """n/64 · (mean((X~ - W X)²) + lambda_tv · mean|∇X| + lambda_2 · mean(X²)), for one channel.

    `observed` [rows, h·w]; `mixture` is W, of n images. The means run over entries of their own
    kind: encodings, neighbouring pairs (horizontal and vertical ones apart), pixels. Without the
    factor gradients fall with n, below the eps that Adam adds to their size (1e-8): images of a
    large release would come back worse for no other reason.
    """

    mixture: Mixture
    observed: Tensor
    size: tuple[int, int]
    lambda_tv: float
    lambda_2: float

    @property
    def scale(self) -> float:
        """n/64: what an image adds is the same in any release."""
        return self.mixture.n / _IMAGES

    def value(self, images: Tensor) -> Tensor:
        """The objective at images [n, h·w]."""
        fit = (self.observed - self.mixture.apply(images)).square().mean()
        across, down = self._differences(images)
        roughness = sum(d.abs().mean() for d in (across, down) if d.numel())
        size = images.square().mean()
        return self.scale * (fit + self.lambda_tv * roughness + self.lambda_2 * size)

    def gradient(self) -> Callable[[Tensor, Tensor], None]:
        """A function that writes the gradient at images [n, h·w] into its second argument."""
        scale = self.scale * 2 / self.observed.numel()
        gram = self.mixture.gram() * scale
        pull = self.mixture.gather(self.observed) * scale

        def write(images: Tensor, out: Tensor) -> None:
            torch.sub(torch.sparse.mm(gram, images), pull, out=out)
            out.add_(images, alpha=self.scale * 2 * self.lambda_2 / images.numel())
            self._add_roughness(images, out)

        return write

    def _differences(self, images: Tensor) -> tuple[Tensor, Tensor]:
        planes = images.view(-1, *self.size)
        return planes[:, :, 1:] - planes[:, :, :-1], planes[:, 1:] - planes[:, :-1]

    def _add_roughness(self, images: Tensor, out: Tensor) -> None:
        """Each difference pulls its two pixels together, by the sign of the difference."""
        planes = out.view(-1, *self.size)
        across, down = self._differences(images)
        if across.numel():
            across.sign_().mul_(self.scale * self.lambda_tv / across.numel())
            planes[:, :, 1:].add_(across)
            planes[:, :, :-1].sub_(across)
        if down.numel():
            down.sign_().mul_(self.scale * self.lambda_tv / down.numel())
            planes[:, 1:].add_(down)
            planes[:, :-1].sub_(down)


def descend(
    objective: Objective,
    bounds: tuple[float, float],
    steps: int,
    lr: float,
    stepped: Callable[[int], None],
) -> Tensor:
    """Images [n, h·w] after Adam from zeros, held to `bounds` after each step."""
    pixels = objective.observed.shape[1]
    images = objective.observed.new_zeros(objective.mixture.n, pixels).requires_grad_()
    images.grad = torch.zeros_like(images)
    adam = torch.optim.Adam([images], lr=lr, fused=images.device.type in {"cpu", "cuda"})
    write = objective.gradient()
    with torch.no_grad():
        for step in range(steps):
            write(images, images.grad)
            adam.step()
            images.clamp_(*bounds)
            stepped(step + 1)
    return images.detach()
