"""What the faulty plugins do. Each has one fault, and otherwise leaves images as they are."""

import numpy as np
import torch
from torch.nn.functional import one_hot

from harness.api import (
    Attack,
    Classifier,
    Encoded,
    EncodingDefense,
    Learner,
    Reconstruction,
    Secrets,
)

HOARD = []


class Faulty(EncodingDefense):
    def change(self, images, rng):
        """The images to release."""
        raise NotImplementedError

    def encode(self, private, public, rng):
        n = len(private)
        released = self.change(private.images, rng)
        secrets = Secrets(torch.ones(n, 1), torch.arange(n).view(n, 1))
        return Encoded(released, one_hot(private.labels, 3).float(), secrets)


class FlipsCoins(Faulty):
    def change(self, images, rng):
        return images + torch.rand(images.shape)


class Widens(Faulty):
    def change(self, images, rng):
        return images * torch.ones(1, dtype=torch.float64)


class HoardsRounds(Faulty):
    def change(self, images, rng):
        HOARD.append(images + 0)
        return images


class IgnoresItsKey(Faulty):
    def change(self, images, rng):
        rng.seed()
        return images + torch.randn(images.shape, generator=torch.Generator().manual_seed(0))


class SpoilsItsInput(Faulty):
    def change(self, images, rng):
        return images.neg_()


class MixesDevices(Faulty):
    def change(self, images, rng):
        return images + rng.normal(*images.shape)


class DrawsByNumpy(Attack):
    def reconstruct(self, view, prepared, budget, progress):
        images = view.encodings[0] + float(np.random.rand())
        return Reconstruction(images, rows=torch.arange(len(images)))


class WantsTwo(Attack):
    """Takes for granted what it calls optional, and more images than there may be."""

    def reconstruct(self, view, prepared, budget, progress):
        images = view.encodings[0]
        third = images[2]
        order = view.sources[0, :, 0]
        return Reconstruction(images + 0 * third, targets=order)


class AnswersIn(Attack):
    """Halves the encodings, in numbers of a kind."""

    def reconstruct(self, view, prepared, budget, progress):
        images = (view.encodings[0] / 2).to(getattr(torch, self.config.kind))
        return Reconstruction(images, rows=torch.arange(len(images)))


class Flat(Classifier):
    """Says the same of every image."""

    def __init__(self, logits):
        self.made = logits

    def logits(self, images):
        return self.made.to(images).expand(len(images), -1)


class Typed(Flat):
    """Says it in numbers of a kind."""

    def logits(self, images):
        return self.made.expand(len(images), -1)


class SaysIn(Learner):
    """Thinks the first class likeliest."""

    def learn(self, lesson, budget, progress):
        return Typed(torch.arange(lesson.classes, 0, -1).to(getattr(torch, self.config.kind)))


class SaysTooLittle(Learner):
    def learn(self, lesson, budget, progress):
        return Flat(torch.zeros(lesson.classes - 1))


class LearnsByNumpy(Learner):
    def learn(self, lesson, budget, progress):
        return Flat(torch.from_numpy(np.random.rand(lesson.classes)).float())


class NeedsAPublic(Learner):
    def learn(self, lesson, budget, progress):
        return Flat(lesson.public.images[0].sum() * torch.ones(lesson.classes))


class KnowsTwoRounds(Learner):
    """Takes for granted that there are two."""

    def learn(self, lesson, budget, progress):
        (_, labels), *_ = lesson.release.pieces(1)
        return Flat(labels.mean(0))
