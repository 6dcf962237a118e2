"""CIFAR-100: 60 000 colour photographs of 32 x 32 pixels in a hundred classes."""

from __future__ import annotations

from harness.api import Asset, AssetFile, DatasetSpec, Source, hookimpl

ARCHIVE = "cifar-100-binary.tar.gz"

CIFAR100 = Asset(
    name="cifar100",
    summary="CIFAR-100, the official archive of its binary version",
    licence="none stated; published for research (Krizhevsky 2009)",
    # The archive itself is kept: its MD5 is the one its authors publish.
    files=(AssetFile(ARCHIVE, "md5:03b5dce01913d631647c71ecec9e9cb8"),),
    sources=(Source("url", f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}", megabytes=168.5),),
)


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `cifar100`."""
    return [
        DatasetSpec(
            name="cifar100",
            version="1",
            summary="CIFAR-100: 60 000 colour photographs, 32 x 32, a hundred fine classes",
            reference="Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
            factory="harness_plugins.datasets.cifar100.dataset:Cifar100",
            assets=(CIFAR100,),
            formula="50 000 train and 10 000 test images, 500 and 100 of each class; fine labels",
            weaknesses=(
                "Some test images have near copies among the train images (Barz & Denzler 2020, "
                "Do We Train on Test Data?); splits are kept disjoint by exact content only.",
            ),
            example="harness evaluate --dataset cifar100 --defense 'singmix[tau=0.01]'",
        )
    ]
