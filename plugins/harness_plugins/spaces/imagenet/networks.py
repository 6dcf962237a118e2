"""Images through a public network, up to its last feature maps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from harness.api import AssetFolder, Space, UsageError
from harness_plugins.resizing import resize
from harness_plugins.spaces.imagenet import (
    EFFICIENTNET_LITE0,
    RESNET18,
    RESNET50,
    ImageNetConfig,
    arithmetic,
)
from harness_plugins.spaces.imagenet.efficientnet import EfficientNetLite0
from harness_plugins.spaces.imagenet.resnet50 import ResNet50
from harness_plugins.torchvision_cpu import load_torchvision
from harness_plugins.trunks import VGG16_TRUNK

Colour = tuple[float, float, float]


class ImageNetSpace(Space[ImageNetConfig]):
    """Resize, normalise, and run one network; each device gets a copy of it once."""

    mean: Colour = (0.485, 0.456, 0.406)
    std: Colour = (0.229, 0.224, 0.225)
    kept: torch.dtype = torch.float32

    def __init__(self, config: ImageNetConfig) -> None:
        super().__init__(config)
        self._networks: dict[torch.device, nn.Module] = {}
        self._loading = Lock()

    @abstractmethod
    def load(self, assets: AssetFolder) -> nn.Module:
        """The network with its published weights, on the CPU, ending with its feature maps."""

    def computed_in(self, device: torch.device) -> torch.dtype:
        """The type of its weights and of what passes between its layers."""
        return torch.float32

    @torch.no_grad()
    def embed(self, images: Tensor, assets: AssetFolder) -> Tensor:
        """Images [b, 1 or 3, h, w] in [0,1] to feature maps [b, c', h', w'] of type `kept`."""
        device = images.device
        pixels = prepare(images, self.config.resolution, self.mean, self.std)
        features: Tensor = self._network(device, assets)(pixels.to(self.computed_in(device)))
        return features.to(self.kept).contiguous()

    def _network(self, device: torch.device, assets: AssetFolder) -> nn.Module:
        with self._loading:
            if device not in self._networks:
                network = self.load(assets).requires_grad_(False).eval()
                network = network.to(device, self.computed_in(device))
                self._networks[device] = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            return self._networks[device]


def prepare(images: Tensor, resolution: int, mean: Colour, std: Colour) -> Tensor:
    """Images [b, 1 or 3, h, w] in [0,1] to [b, 3, resolution, resolution], channels last.

    Grey ones are repeated; `mean` and `std` normalise each colour. UsageError for any other
    number of channels.
    """
    if images.shape[1] not in (1, 3):
        raise UsageError(
            f"networks trained on ImageNet see grey or RGB images, not {images.shape[1]} "
            "channels; the space 'pixels' takes any."
        )
    resized = resize(images.float(), resolution, resolution).expand(-1, 3, -1, -1)
    shift, scale = (resized.new_tensor(values).view(3, 1, 1) for values in (mean, std))
    return ((resized - shift) / scale).contiguous(memory_format=torch.channels_last)


def with_weights(network: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """A network without memory (built on `meta`) takes its tensors from `state`, by name.

    As a plain dict: one with version marks would have to count BatchNorm's batches, which files
    of torchvision's older releases do not.
    """
    network.load_state_dict(dict(state), assign=True)
    return network


def torchvision_network(name: str) -> Any:
    """One of torchvision's networks, without memory: no weights are drawn only to be replaced."""
    load_torchvision()
    from torchvision import models

    with torch.device("meta"):
        return getattr(models, name)(weights=None)


def _checkpoint(path: Path) -> Mapping[str, Tensor]:
    state: Mapping[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _safetensors(path: Path) -> Mapping[str, Tensor]:
    from safetensors.torch import load_file

    state: Mapping[str, Tensor] = load_file(path)
    return state


class VGG16Space(ImageNetSpace):
    """512 maps behind the last maximum pooling."""

    def load(self, assets: AssetFolder) -> nn.Module:
        """The `.features` of torchvision's VGG16."""
        state = _safetensors(assets.path(VGG16_TRUNK.name, VGG16_TRUNK.files[0].name))
        return with_weights(torchvision_network("vgg16").features, state)


class ResNet18Space(ImageNetSpace):
    """512 maps of `layer4`."""

    def load(self, assets: AssetFolder) -> nn.Module:
        """ResNet-18 of torchvision without pooling and classifier."""
        state = _checkpoint(assets.path(RESNET18.name, RESNET18.files[0].name))
        network = with_weights(torchvision_network("resnet18"), state)
        parts = network.named_children()
        return nn.Sequential(*(part for name, part in parts if name not in ("avgpool", "fc")))


class ResNet50Space(ImageNetSpace):
    """2048 maps of `conv5_x`.

    It was trained on brightnesses from 0 to 255, less the mean of each colour, not divided. Kept
    as float16, which holds what bfloat16 does: 60 000 images at 96 pixels are 2.2 GB.
    """

    mean = (123.68 / 255, 116.779 / 255, 103.939 / 255)
    std = (1 / 255, 1 / 255, 1 / 255)
    kept = torch.float16

    def computed_in(self, device: torch.device) -> torch.dtype:
        """In half the time where the processor has bfloat16: a linear probe does not notice."""
        able = device.type == "cpu" and arithmetic() == "bfloat16"
        return torch.bfloat16 if able else torch.float32

    def load(self, assets: AssetFolder) -> nn.Module:
        """ResNet-50 without pooling and classifier."""
        state = _safetensors(assets.path(RESNET50.name, RESNET50.files[0].name))
        with torch.device("meta"):
            network = ResNet50()
        return with_weights(network, state)


class EfficientNetLite0Space(ImageNetSpace):
    """1280 maps of the last convolution.

    It was trained with TensorFlow's colours: with ImageNet's, a linear probe on 2000 images of
    CIFAR-10 loses five points.
    """

    mean = (127 / 255, 127 / 255, 127 / 255)
    std = (128 / 255, 128 / 255, 128 / 255)

    def load(self, assets: AssetFolder) -> nn.Module:
        """EfficientNet-Lite0 without pooling and classifier."""
        state = _safetensors(assets.path(EFFICIENTNET_LITE0.name, EFFICIENTNET_LITE0.files[0].name))
        with torch.device("meta"):
            network = EfficientNetLite0()
        return with_weights(network, state)
