"""SVHN: house numbers cropped to single digits of 32 x 32 pixels."""

from __future__ import annotations

from harness.api import Asset, AssetFile, DatasetSpec, Source, hookimpl

_HOST = "http://ufldl.stanford.edu/housenumbers"

SVHN = Asset(
    name="svhn",
    summary="SVHN, cropped digits, train and test as Matlab files",
    licence="for non-commercial use only (Netzer et al. 2011)",
    files=(
        AssetFile("train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373"),
        AssetFile("test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3"),
    ),
    sources=(
        Source(
            "url",
            f"{_HOST}/train_32x32.mat {_HOST}/test_32x32.mat",
            unpack="harness_plugins.archives:unchanged",
            megabytes=246.3,
        ),
    ),
)


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `svhn`."""
    return [
        DatasetSpec(
            name="svhn",
            version="1",
            summary="SVHN: 99 289 house-number digits, 32 x 32, colour",
            reference="Netzer et al., Reading Digits in Natural Images, NIPS workshop 2011",
            factory="harness_plugins.datasets.svhn.dataset:Svhn",
            assets=(SVHN,),
            formula="73 257 train and 26 032 test images; the file's label 10 is the digit 0",
            weaknesses=(
                "Neighbouring digits reach into the crops, and the classes are uneven: in the "
                "train images the digit 1 occurs about three times as often as 9.",
            ),
            example="harness evaluate --dataset svhn --victim lenet5",
        )
    ]
