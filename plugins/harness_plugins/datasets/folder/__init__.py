"""A folder of one's own images: each sub-folder is a class."""

from __future__ import annotations

from pydantic import Field

from harness.api import Config, DatasetSpec, hookimpl


class FolderConfig(Config):
    """Where the images are, and what they become."""

    path: str = Field("", description="folder with one sub-folder per class; must be given")
    size: int = Field(32, ge=4, le=1024, description="height and width to bring images to, pixels")
    test: float = Field(
        0.2,
        gt=0,
        lt=1,
        allow_inf_nan=False,
        description="share of each class kept for testing; unused where there is a test/",
    )


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `folder`."""
    return [
        DatasetSpec(
            name="folder",
            version="1",
            summary="your own images: PATH/CLASS/image.png, or PATH/{train,test}/CLASS/image.png",
            reference="the layout of torchvision's ImageFolder",
            factory="harness_plugins.datasets.folder.dataset:Folder",
            config=FolderConfig,
            measured_scale=True,
            fingerprint="harness_plugins.datasets.folder.files:fingerprint",
            formula="the shorter side is resized to `size` (bicubic, antialiased), the centre cut "
            "out; grey where every image is grey, else RGB. Without a test/: of each class's n "
            "images, those with the round(test·n) smallest SHA-256 of their bytes are for "
            "testing, at least one and never all",
            weaknesses=(
                "The scale is the mean and deviation of all train images, private ones among "
                "them, and counts as public knowledge.",
                "Near copies (bursts, augmented files, several images of one person) can stand "
                "on both sides of a split, which is disjoint by exact content only; give your "
                "own test/ where that matters.",
                "All images are held in memory as they are used: 12 kB each at 64 x 64 RGB.",
            ),
            example="harness evaluate --dataset 'folder[path=~/scans,size=64]' --private-size 200",
        )
    ]
