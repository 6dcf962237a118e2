"""Tiny-ImageNet: 110 000 labelled colour photographs of 64 x 64 pixels in 200 classes."""

from __future__ import annotations

from harness.api import Asset, AssetFile, DatasetSpec, Source, hookimpl

ARCHIVE = "tiny-imagenet-200.zip"

TINY_IMAGENET = Asset(
    name="tiny-imagenet",
    summary="Tiny-ImageNet-200, the archive of the course that made it",
    licence="ImageNet's terms: non-commercial research and education",
    # The archive itself is kept, since only its MD5 is published.
    files=(AssetFile(ARCHIVE, "md5:90528d7ca1a48142e341f4ef8d21d0de"),),
    sources=(Source("url", f"http://cs231n.stanford.edu/{ARCHIVE}", megabytes=248.1),),
)


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `tiny-imagenet`."""
    return [
        DatasetSpec(
            name="tiny-imagenet",
            version="1",
            summary="Tiny-ImageNet: 110 000 colour photographs, 64 x 64, 200 classes",
            reference="Le & Yang, Tiny ImageNet Visual Recognition Challenge, Stanford CS231N, "
            "2015",
            factory="harness_plugins.datasets.tiny_imagenet.dataset:TinyImagenet",
            assets=(TINY_IMAGENET,),
            formula="500 train images of each class; the 10 000 validation images are the test "
            "images, because the archive's own test images have no labels",
            weaknesses=(
                "The first use decodes all JPEGs once (a minute or two) into a file of 1.4 GB "
                "beside the archive; how they decode hangs on Pillow's JPEG library.",
            ),
            example="harness evaluate --dataset cifar10 --public tiny-imagenet --attack unet",
        )
    ]
