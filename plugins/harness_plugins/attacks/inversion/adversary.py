"""MixCon's decoder: one that must also fool a judge of images (appendix D.2, equation 7)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.functional import l1_loss, softplus

from harness_plugins.features.decoder import Lessons, School
from harness_plugins.networks import training

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View


class Discriminator(nn.Module):
    """Images of any size to one logit each: high for real ones."""

    def __init__(self, channels: int, base: int) -> None:
        super().__init__()
        widths = [channels, base, 2 * base, 4 * base]
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.LeakyReLU(0.2)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], 1)

    def forward(self, images: Tensor) -> Tensor:
        """[n, c, h, w] to [n]."""
        logits: Tensor = self.head(self.body(images).mean((2, 3)))
        return logits.squeeze(1)


class AdversarialSchool(School):
    """Generator and discriminator in turn, with L1 errors of images and of their features."""

    def __init__(self, view: View, lessons: Lessons, xi: float) -> None:
        super().__init__(view, lessons)
        self.xi = xi
        self.encoder = view.feature_encoder.requires_grad_(False)
        self.critic = Discriminator(view.shape[0], lessons.base).to(view.device)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=lessons.lr)

    def teach(self, epoch: int) -> None:
        """One pass; the rate is constant, as in the paper."""
        training.train_epoch(
            self.network,
            self.optimizer,
            self.batches(epoch),
            self._loss,
            precision=self.view.precision,
        )

    def _loss(self, index: Tensor) -> Tensor:
        """−log D(G(z)) + ξ|x − G(z)| + ξ|z − h(G(z))|, means of moduli, after D's own step."""
        guess, truth = self.guess(index), self.samples.images[index]
        self._judge(truth, guess.detach())
        fooled = softplus(-self.critic(guess)).mean()
        echo = self.standardise(self.encoder(guess))
        return fooled + self.xi * (l1_loss(guess, truth) + l1_loss(echo, self.known[index]))

    # Not through `harness.api.training.descend`: that walks over batches, and this is one step amid
    # a step of the generator, always in float32.
    def _judge(self, real: Tensor, false: Tensor) -> None:
        """One step of the discriminator on −log D(x) − log(1 − D(G(z)))."""
        self.critic_optimizer.zero_grad(set_to_none=True)
        loss = softplus(-self.critic(real)).mean() + softplus(self.critic(false)).mean()
        loss.backward()
        self.critic_optimizer.step()
