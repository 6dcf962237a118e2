"""LPIPS v0.1 on trunks that are known to be the published ones.

The lpips package is built with `pnet_rand=True`, or it would download; that leaves a random
trunk, which returns plausible nonsense. So the trunk's weights are loaded from an asset, and the
network is then checked twice: its parameters by their digest, and the whole of it (trunk, heads,
scaling) by a distance known from an independent implementation.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from harness.api import IntegrityError, Metric, Scene
from harness_plugins.torchvision_cpu import load_torchvision
from harness_plugins.trunks import ALEXNET_TRUNK, VGG16_TRUNK

SMALLEST = 32
CHUNK_PIXELS = 2**18
"""Pixels of one chunk: 256 images of 32 px."""


@dataclass(frozen=True)
class Trunk:
    """A trunk: the lpips package's name for it, its asset, and how to know it is the right one.

    `digest` is SHA-256 over the parameters in the order of their names, each name in UTF-8
    followed by its float32 bytes. `probe_distance` is the distance of `probe_pair()`.
    """

    net: str
    asset: str
    file: str
    digest: str
    probe_distance: float


ALEX = Trunk(
    net="alex",
    asset=ALEXNET_TRUNK.name,
    file=ALEXNET_TRUNK.files[0].name,
    digest="8eed026b364dd02bdf76d6ca5a9bfaa0efb090d22a8b79ad51186269c08605c7",
    probe_distance=0.30666,
)
VGG = Trunk(
    net="vgg",
    asset=VGG16_TRUNK.name,
    file=VGG16_TRUNK.files[0].name,
    digest="2b36fb93d5999585cb8768685c9bf7c6c5e6a7982cca582d3138b2910433df50",
    probe_distance=0.62647,
)


def build(trunk: Trunk, weights: dict[str, Tensor]) -> nn.Module:
    """The checked network, in evaluation mode; `weights` as in torchvision's `.features`.

    Raises IntegrityError where the trunk is random, incomplete or not the published one.
    """
    network = _random_network(trunk.net)
    parameters = network.net.state_dict()
    wanted = {name: _layer(name) for name in parameters}
    if missing := sorted(set(wanted.values()) - set(weights)):
        raise IntegrityError(f"'{trunk.asset}' has no {', '.join(missing)}")
    network.net.load_state_dict({name: weights[layer] for name, layer in wanted.items()})
    verify(trunk, network)
    return network.requires_grad_(False).eval()


def _random_network(net: str) -> nn.Module:
    """The package's network before its trunk is loaded; the global generator stays as it was."""
    load_torchvision()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # lpips still uses torchvision's old `pretrained`
        import lpips

        network: nn.Module = lpips.LPIPS(net=net, version="0.1", pnet_rand=True, verbose=False)
    return network.eval()


def _layer(name: str) -> str:
    """`slice2.3.weight` of lpips is `3.weight` of torchvision's `.features`."""
    return name.split(".", 1)[1]


def digest(network: nn.Module) -> str:
    """The digest of an LPIPS network's trunk; `Trunk.digest` says over what."""
    state = {_layer(name): tensor for name, tensor in network.net.state_dict().items()}
    sha = hashlib.sha256()
    for name in sorted(state):
        sha.update(name.encode())
        sha.update(state[name].float().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()


def probe_pair() -> tuple[Tensor, Tensor]:
    """Two smooth colour images [1, 3, 64, 64] in [-1,1], made of waves and nothing random."""
    steps = torch.arange(64.0) / 64
    down, right = torch.meshgrid(steps, steps, indexing="ij")
    waves = [torch.sin(6.0 * (down + k * right)) for k in (1, 2, 3)]
    first = torch.stack(waves)[None]
    return first, first.flip(3) * down


def verify(trunk: Trunk, network: nn.Module) -> None:
    """Refuse a network whose trunk, heads or scaling are not those of the published metric."""
    if digest(network) != trunk.digest:
        raise IntegrityError(
            f"the LPIPS trunk from '{trunk.asset}' is random or not the published one: its "
            "parameters have another digest, so its distances would mean nothing"
        )
    with torch.inference_mode():
        found = network(*probe_pair()).item()
    if abs(found - trunk.probe_distance) > 1e-3 * trunk.probe_distance:
        raise IntegrityError(
            f"the installed lpips package gives {found:.5f} on '{trunk.asset}' for a pair whose "
            f"distance is {trunk.probe_distance:.5f}: its heads or its scaling differ from v0.1"
        )


@cache
def _network(trunk: Trunk, path: Path, device: torch.device) -> nn.Module:
    """One network for all metrics of a process; nothing changes it once it is checked."""
    return build(trunk, load_file(path)).to(device)


class Lpips(Metric):
    """The distance of two images on one trunk."""

    trunk: Trunk

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        path = scene.assets.path(self.trunk.asset, self.trunk.file)
        self.network = _network(self.trunk, path, scene.device)

    def unavailable(self, shape: tuple[int, ...]) -> str | None:
        """The trunks see grey or RGB images."""
        if shape[0] in (1, 3):
            return None
        return f"LPIPS sees grey or RGB images, not {shape[0]} channels"

    @torch.inference_mode()
    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n], 0 for equal images."""
        chunk = max(1, CHUNK_PIXELS // (max(SMALLEST, truth.shape[-1]) ** 2))
        pairs = zip(images.split(chunk), truth.split(chunk), strict=True)
        distances = [self.network(_prepare(x), _prepare(y)).flatten() for x, y in pairs]
        return torch.cat(distances).cpu().double()


def _prepare(images: Tensor) -> Tensor:
    """[n, 1 or 3, h, w] in [0,1] to [n, 3, ≥32, ≥32] in [-1,1]."""
    size = [max(SMALLEST, side) for side in images.shape[-2:]]
    if size != list(images.shape[-2:]):
        images = functional.interpolate(images, size, mode="bilinear", antialias=True)
    return images.expand(-1, 3, -1, -1) * 2 - 1


class LpipsAlex(Lpips):
    """On AlexNet."""

    trunk = ALEX


class LpipsVgg(Lpips):
    """On VGG16."""

    trunk = VGG
