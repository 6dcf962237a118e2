"""`resnet50-pooled`: what ResNet-50 hands to its own classifier, 2048 numbers an image."""

from __future__ import annotations

from harness.api import SpaceSpec, hookimpl
from harness_plugins.spaces.imagenet import RESNET50, ImageNetConfig


@hookimpl
def harness_spaces() -> list[SpaceSpec]:
    """The maps of `resnet50`, averaged over positions."""
    return [
        SpaceSpec(
            name="resnet50-pooled",
            version="1",
            summary="2048 features of ResNet-50 behind its average pooling, trained on ImageNet",
            reference="He et al. 2016, arXiv:1512.03385, with its authors' weights as Keras has "
            "them; the pooled features of the collaborative experiments in Augmented Mixup "
            "Procedure for Privacy-Preserving Collaborative Training, table 4, are ResNet-18's",
            factory="harness_plugins.spaces.pooled.averaging:PooledResNet50",
            config=ImageNetConfig,
            presets={"paper": {"resolution": 224}},
            formula="z = mean over positions of the maps that `resnet50` gives",
            weaknesses=(
                "the network is public: whoever holds an image can compute its features and "
                "compare",
                "where in an image something is, is lost; a ninth of the numbers of 96 pixels' "
                "maps also costs an attacker a ninth",
                "maps are averaged as `resnet50` keeps them, in 16-bit floats",
            ),
            example="harness evaluate --space resnet50-pooled --dataset cifar10",
            assets=(RESNET50,),
            arithmetic="harness_plugins.spaces.imagenet:arithmetic",
        )
    ]
