"""`pixels-imagenet`: images as networks of ImageNet take them, in three channels."""

from __future__ import annotations

from harness.api import Scale, SpaceSpec, hookimpl


@hookimpl
def harness_spaces() -> list[SpaceSpec]:
    """The identity space again, with the mean and deviation of ImageNet."""
    return [
        SpaceSpec(
            name="pixels-imagenet",
            version="1",
            summary="the images themselves in three channels, standardised as ImageNet's",
            reference="Augmented Mixup Procedure for Privacy-Preserving Collaborative Training, "
            "appendix F; the numbers are torchvision's",
            factory="harness_plugins.spaces.pixels:Pixels",
            formula="z = (x - mean) / std, per channel, with ImageNet's mean and deviation; grey "
            "images are repeated for three channels",
            weaknesses=(
                "zeros are ImageNet's mean colour: of data with another mean they score above or "
                "below what they score in the space 'pixels'",
            ),
            example="harness evaluate --space pixels-imagenet --dataset mnist --judge-at release "
            "--defense 'singmix[tau=1,preset=upsampled]' --attack 'linear[preset=paper]' "
            "--private-size 64 --public-size 1000 --test-size 500",
            extracts=False,
            scale=Scale(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        )
    ]
