"""View: what the attacker holds, as a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from harness.api import Channel, Release, Splits
from harness.rng import KeyedStream
from harness.sandbox.jobs import Frame, write_folder

PLAIN = {Channel.ENCODINGS, Channel.LABELS, Channel.FEATURES}
MASKS = "extra.masks"
SECRET = {Channel.WEIGHTS, Channel.SOURCES, Channel.BATCH_LABELS}
PREFIXED = {
    Channel.FEATURE_ENCODER,
    Channel.GRADIENTS,
    Channel.MODEL,
    Channel.BN_STATISTICS,
}


@dataclass(frozen=True)
class Candidates:
    """Targets among decoys, in a secret order; `truth[i]` is where target i is."""

    images: Tensor
    truth: Tensor


def candidates(splits: Splits, stream: KeyedStream) -> Candidates:
    """Mix the private images with as many test images, or all there are if those are fewer.

    No attacker holds test images otherwise. `splits` are as the judge has them: where images are
    held out, those are the private ones.
    """
    private, test = splits.private.images, splits.test.images
    decoys = test[: len(private)].to(private.dtype)
    order = stream.stream(what="candidates").permutation(len(private) + len(decoys))
    truth = order.argsort()[: len(private)]
    return Candidates(torch.cat([private, decoys])[order], truth)


def _prefixed(tensors: Mapping[str, Tensor], channel: Channel) -> dict[str, Tensor]:
    prefix = f"{channel}."
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _tensors(
    channel: Channel, release: Release, splits: Splits, stream: KeyedStream
) -> dict[str, Tensor]:
    if channel is Channel.PUBLIC:
        return {"images": splits.public.images, "labels": splits.public.labels}
    if channel is Channel.CANDIDATES:
        mixed = candidates(splits, stream)
        images = mixed.images if mixed.images.is_floating_point() else mixed.images.float() / 255
        return {channel: splits.scale.standardise(images)}
    if channel in PREFIXED:
        held = release.secrets if channel is Channel.BN_STATISTICS else release.tensors
        return _prefixed(held, channel)
    if channel is Channel.MASKS:
        return {channel: release.secrets[MASKS]} if MASKS in release.secrets else {}
    held = release.secrets if channel in SECRET else release.tensors
    return {channel: held[channel]} if channel in held else {}


def view(
    folder: Path,
    frame: Frame,
    channels: frozenset[Channel],
    release: Release,
    splits: Splits,
    stream: KeyedStream,
) -> None:
    """Write exactly these channels. Nothing else enters the folder."""
    tensors = {c: _tensors(c, release, splits, stream) for c in sorted(channels)}
    write_folder(folder, frame, {c: named for c, named in tensors.items() if named})
