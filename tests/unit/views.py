"""Views built by hand, as the engine would build them, on real images."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load, save

from harness.api import Budget, Channel, Encoder, Samples, View
from harness.api.knowledge import PRIOR_CHANNELS
from harness.rng import KeyedStream, board_key
from harness_plugins.datasets import fashion_mini
from harness_plugins.datasets.classes_and_scales import FASHION_SCALE as SCALE
from harness_plugins.mixtures import PRIOR
from harness_plugins.mixtures.prior import learn_prior

BUDGET = Budget(seconds=600, megabytes=4000, threads=1)
MIXTURE = (Channel.WEIGHTS, Channel.SOURCES)


def stream(**axes):
    return KeyedStream(board_key(0)).stream(**axes)


@cache
def _all_clothes():
    with np.load(Path(fashion_mini.__file__).parent / "images" / "fashion-mini.npz") as file:
        images, labels = file["train_images"], file["train_labels"]
    return Samples(torch.from_numpy(images), torch.from_numpy(labels).long()).standardised(SCALE)


def clothes(n, start=0):
    """`n` real images [n, 1, 28, 28], standardised, with their labels."""
    return _all_clothes()[start : start + n]


def coloured(samples, size):
    """The same clothes [n, 3, *size]: three unlike channels of any height and width."""
    images = torch.nn.functional.interpolate(samples.images, size=size, mode="bilinear")
    return Samples(torch.cat([images, -images, images.flip(-1)], 1), samples.labels)


def photographs(count, size):
    """Truth and images [count, 3, size, size] in [0,1]: pieces of two photographs, not resized."""
    from skimage.data import astronaut, coffee

    places = [(7 * i % (381 - size), 11 * i % (501 - size)) for i in range(count)]
    pieces = (
        [photo[y : y + size, x : x + size] for y, x in places] for photo in (astronaut(), coffee())
    )
    truth, images = (torch.from_numpy(np.stack(each)).permute(0, 3, 1, 2) / 255 for each in pieces)
    return truth, images


def released(defense, private, public, *, rounds=1, without=(), scale=SCALE):
    """What an informed attacker sees of `rounds` rounds, less the channels `without`."""
    encoded = [defense.encode(private, public, stream(use="owner", round=t)) for t in range(rounds)]
    orders = [stream(use="order", round=t).permutation(len(private)) for t in range(rounds)]
    resolved = type(defense)(defense.config.model_copy(update=dict(encoded[0].resolved)))
    rows = list(zip(encoded, orders, strict=True))
    channels = {
        Channel.ENCODINGS: torch.stack([e.images[order] for e, order in rows]),
        Channel.LABELS: torch.stack([e.labels[order] for e, order in rows]),
        Channel.WEIGHTS: torch.stack([e.secrets.weights[order] for e, order in rows]),
        Channel.SOURCES: torch.stack([e.secrets.sources[order] for e, order in rows]),
        Channel.PUBLIC: public,
        Channel.N_PRIVATE: len(private),
        Channel.ENCODER: Encoder("defense", resolved.config, resolved.encode),
    }
    return view_of({c: v for c, v in channels.items() if c not in without}, private, scale)


def view_of(channels, private, scale=SCALE):
    """A view of the given channels for an attack on `private`."""
    return View(
        channels=channels,
        granted=frozenset(channels),
        threat_model="informed",
        scale=scale,
        shape=tuple(private.images.shape[1:]),
        classes=10,
        device=torch.device("cpu"),
        rng=stream(use="attack"),
        protocol={"rounds": len(channels[Channel.ENCODINGS])} if _encoded(channels) else {},
    )


def _encoded(channels):
    return Channel.ENCODINGS in channels


def quiet(done, total, note=""):
    """Progress that nobody watches."""


@cache
def _prior(public, classes, mean):
    view = View(
        channels={Channel.PUBLIC: public},
        granted=frozenset({Channel.PUBLIC}),
        threat_model="",
        scale=SCALE,
        shape=tuple(public.images.shape[1:]),
        classes=classes,
        device=torch.device("cpu"),
        rng=stream(use="prior"),
    )
    return {f"{PRIOR.name}.{k}": v for k, v in learn_prior(view, BUDGET, quiet, mean=mean).items()}


def with_prior(view, mean="class"):
    """The view with what the preparation `gaussian-prior` makes of its public images."""
    if Channel.PUBLIC not in view.channels:
        return view
    return replace(view, shared={**_prior(view.public, view.classes, mean), **view.shared})


def attack(plugin, view):
    """Prepare without the release, store, and reconstruct; seeded as the engine seeds."""
    view = with_prior(view, getattr(plugin.config, "mean", "class"))
    before = {c: v for c, v in view.channels.items() if c in PRIOR_CHANNELS}
    torch.manual_seed(0)
    prepared = plugin.prepare(replace(view, channels=before), BUDGET, quiet)
    prepared = load(save(dict(prepared)))
    torch.manual_seed(0)
    return plugin.reconstruct(view, prepared, BUDGET, quiet)


def snr(images, truth, scale=SCALE):
    """[n] signal-to-noise ratio in dB of standardised images, clamped first."""
    error = (scale.clamp(images) - truth).flatten(1).square().sum(1).clamp(min=1e-12)
    return 10 * torch.log10(truth.flatten(1).square().sum(1) / error)
