"""Fashion-MNIST in small: 8 000 real images that come with the package."""

from __future__ import annotations

from harness.api import Asset, AssetFile, DatasetSpec, Source, hookimpl

FASHION_MINI = Asset(
    name="fashion-mini",
    summary="8 000 images of Fashion-MNIST; comes with the package",
    licence="MIT (Zalando SE)",
    files=(
        AssetFile(
            "fashion-mini.npz",
            "sha256:cf3f160a586d3dde2c84e017445c1c6d43a2a65e17b169f817f40d0cedcab69c",
        ),
    ),
    sources=(Source("package", "harness_plugins.datasets.fashion_mini:images", megabytes=6.3),),
)


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `fashion-mini`."""
    return [
        DatasetSpec(
            name="fashion-mini",
            version="1",
            example="harness evaluate --dataset fashion-mini",
            summary="8 000 pictures of Fashion-MNIST, 28 x 28, grey; no download",
            reference="Xiao et al., Fashion-MNIST, arXiv:1708.07747",
            factory="harness_plugins.datasets.fashion_mini.dataset:FashionMini",
            assets=(FASHION_MINI,),
        )
    ]
