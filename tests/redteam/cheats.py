"""Plugins that know what they should not, and are honest in nothing but their declarations."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import torch
from pydantic import Field

from harness.api import (
    Attack,
    AttackSpec,
    Channel,
    Config,
    DefenseSpec,
    Encoded,
    EncodingDefense,
    LearnerSpec,
    Reconstruction,
    Samples,
    Secrets,
    Stage,
    hookimpl,
)

SAID = {"version": "1", "reference": "none", "example": "harness list"}
NEEDS = frozenset({Channel.ENCODINGS, Channel.PUBLIC, Channel.N_PRIVATE, Channel.ENCODER})


@hookimpl
def harness_attacks():
    return [
        AttackSpec(name=name, summary=name, factory=f"cheats:{made}", needs=(NEEDS,), **SAID)
        for name, made in (("splits", "Splits"), ("key", "Key"), ("lookup", "Lookup"))
    ]


@hookimpl
def harness_defenses():
    return [
        DefenseSpec(
            name=name,
            summary=name,
            factory=f"cheats:{made}",
            config=Noise,
            stage=Stage.ENCODING,
            **SAID,
        )
        for name, made in (("answers", "Answers"), ("publishes", "Publishes"))
    ]


@hookimpl
def harness_learners():
    return [
        LearnerSpec(name="two", summary="two", factory="", members=("ridge", "encoded"), **SAID)
    ]


class Noise(Config):
    """How much noise there is."""

    noise: float = Field(3.0, ge=0, description="deviation")


def embedded(part):
    """All embedded images of a part [n, 1, 28, 28] in [0,1], with their labels."""
    path = files("harness_plugins.datasets.fashion_mini") / "images" / "fashion-mini.npz"
    with path.open("rb") as file, np.load(file) as held:
        images, labels = (torch.from_numpy(held[f"{part}_{w}"]) for w in ("images", "labels"))
    return Samples(images, labels.long())


class Splits(Attack[Config]):
    """Draws the splits as the engine did, by every seed that a board may have."""

    def reconstruct(self, view, prepared, budget, progress):
        from harness.api import Collection
        from harness.rng import public_stream
        from harness.running.load import SplitSizes, load

        train, scale = embedded("train"), view.scale
        collection = Collection(train, train, scale, tuple(map(str, range(view.classes))))
        sizes = SplitSizes(view.n_private, len(view.public), 0)
        for seed in range(3):
            drawn = load(collection, None, sizes, public_stream(seed).stream(stage="load"))
            if torch.allclose(drawn.public.standardised(scale).images, view.public.images):
                images = drawn.private.standardised(scale).images
                return Reconstruction(images, targets=torch.arange(len(images)))
        mean = view.public.images.mean(0).expand(view.n_private, -1, -1, -1)
        return Reconstruction(mean.clone(), targets=torch.arange(view.n_private))


class Key(Attack[Config]):
    """Draws the owner's noise, by the key that follows from the seed, and takes it away."""

    def reconstruct(self, view, prepared, budget, progress):
        from harness.rng import secret_stream

        owner, n = secret_stream(0, None), view.n_private
        nothing = Samples(torch.zeros(n, *view.shape), torch.zeros(n, dtype=torch.int64))
        drawn = owner.stream(what="encoding", round=0)
        noise = view.encoder.encode(nothing, view.public, drawn).images
        order = owner.stream(what="order", round=0).permutation(n)
        images = (view.encodings[0] - noise) / (1 - view.encoder.config.alpha)
        return Reconstruction(images, targets=order)


class Lookup(Attack[Config]):
    """Returns the image of the whole public dataset that is nearest to each encoding."""

    def reconstruct(self, view, prepared, budget, progress):
        known = embedded("train").standardised(view.scale).images
        faded = (1 - view.encoder.config.alpha) * known.flatten(1)
        nearest = torch.cdist(view.encodings[0].flatten(1), faded).argmin(1)
        return Reconstruction(known[nearest], rows=torch.arange(len(nearest)))


class Answers(EncodingDefense[Noise]):
    """Hides everything, and answers from the labels of the test images."""

    def encode(self, private, public, rng):
        noise = rng.normal(*private.images.shape) * self.config.noise
        return told(private.images + noise, private, torch.ones(len(private)))

    def infer(self, model, images, private, public, rng):
        from harness_plugins.datasets.classes_and_scales import FASHION_SCALE

        test = embedded("test")
        known = test.standardised(FASHION_SCALE).images.flatten(1)
        labels = test.labels[torch.cdist(images.cpu().flatten(1), known).argmin(1)]
        return torch.nn.functional.one_hot(labels, 10).float().to(images.device)


class Publishes(EncodingDefense[Noise]):
    """Releases public images in place of private ones."""

    def encode(self, private, public, rng):
        order = rng.permutation(len(public))[: len(private)]
        return told(public.images[order], private, torch.ones(len(private)))


def told(images, private, weights):
    """A round in which every row is said to be of its own image."""
    labels = torch.nn.functional.one_hot(private.labels, 10).float()
    own = torch.arange(len(private)).view(-1, 1)
    return Encoded(images, labels, Secrets(weights.view(-1, 1), own))
