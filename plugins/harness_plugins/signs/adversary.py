"""The adversarial way of InstaHide's section 5.3: mixtures that pass for true ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from harness_plugins.signs.school import cross_entropy

if TYPE_CHECKING:
    from harness_plugins.signs.school import Lesson

# Of the generator's loss. A colouriser's is as small: the truth leads, the critic sharpens.
_SHARE = 0.02


class Critic(nn.Module):
    """Log-odds [n, 1, h', w'] that patches of a mixture are true, given its absolute values."""

    def __init__(self, channels: int, base: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(2 * channels, base, 4, 2, 2),
            nn.LeakyReLU(0.2),
            nn.Conv2d(base, 2 * base, 4, 2, 2),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * base, 1, 3, 1, 1),
        )

    def forward(self, mixtures: Tensor, seen: Tensor) -> Tensor:
        """Mixtures and absolute values, both [n, c, h, w]."""
        odds: Tensor = self.layers(torch.cat([mixtures, seen], 1))
        return odds


class Adversary:
    """A critic that learns as the generator of signs does, step by step."""

    def __init__(self, channels: int, base: int, lr: float, device: torch.device) -> None:
        self.critic = Critic(channels, base).to(device)
        self.optimizer = torch.optim.Adam(self.critic.parameters(), lr=lr / 4, betas=(0.5, 0.999))

    def objective(self, odds: Tensor, lesson: Lesson) -> Tensor:
        """The generator's loss, after one step of the critic."""
        guess = lesson.seen * odds.tanh()
        self._criticise(guess.detach(), lesson)
        fooled = softplus(-self.critic(guess, lesson.seen)).mean()
        return cross_entropy(odds, lesson) + _SHARE * fooled

    # Not through `harness.api.training.descend`: that walks over batches, and this is one step amid
    # a step of the generator, always in float32.
    def _criticise(self, guess: Tensor, lesson: Lesson) -> None:
        true = softplus(-self.critic(lesson.truth, lesson.seen)).mean()
        false = softplus(self.critic(guess, lesson.seen)).mean()
        self.optimizer.zero_grad(set_to_none=True)
        (true + false).backward()
        self.optimizer.step()
