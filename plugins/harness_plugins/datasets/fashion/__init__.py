"""Fashion-MNIST: 70 000 pictures of clothes of 28 x 28 pixels."""

from __future__ import annotations

from harness.api import Asset, AssetFile, DatasetSpec, Source, hookimpl

_HOST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"

FASHION = Asset(
    name="fashion",
    summary="Fashion-MNIST, four idx files",
    licence="MIT (Zalando SE)",
    files=(
        AssetFile("train-images-idx3-ubyte", "md5:f4a8712d7a061bf5bd6d2ca38dc4d50a"),
        AssetFile("train-labels-idx1-ubyte", "md5:9018921c3c673c538a1fc5bad174d6f9"),
        AssetFile("t10k-images-idx3-ubyte", "md5:8181f5470baa50b63fa0f6fddb340f0a"),
        AssetFile("t10k-labels-idx1-ubyte", "md5:15d484375f8d13e6eb1aabb0c3f46965"),
    ),
    sources=(
        Source(
            "url",
            f"{_HOST}/train-images-idx3-ubyte.gz {_HOST}/train-labels-idx1-ubyte.gz "
            f"{_HOST}/t10k-images-idx3-ubyte.gz {_HOST}/t10k-labels-idx1-ubyte.gz",
            unpack="harness_plugins.archives:gunzip",
            megabytes=30.9,
        ),
        # Compressed anew by Debian: only the unpacked files have a published digest.
        Source(
            "apt",
            "dataset-fashion-mnist",
            unpack="harness_plugins.datasets.fashion.unpack:from_debian",
            megabytes=30.9,
        ),
    ),
)


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `fashion`."""
    return [
        DatasetSpec(
            name="fashion",
            version="1",
            example="harness evaluate --dataset fashion",
            summary="Fashion-MNIST: 70 000 pictures of clothes, 28 x 28, grey",
            reference="Xiao et al., Fashion-MNIST, arXiv:1708.07747",
            factory="harness_plugins.datasets.fashion.dataset:Fashion",
            assets=(FASHION,),
        )
    ]
