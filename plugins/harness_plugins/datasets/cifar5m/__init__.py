"""CIFAR-5m: six million images that look like CIFAR-10's, drawn from a diffusion model."""

from __future__ import annotations

from pydantic import Field

from harness.api import Config, DatasetSpec, hookimpl


class Cifar5mConfig(Config):
    """Where the files are, and which of them to train on."""

    path: str = Field("", description="folder of part0.npz … part5.npz; must be given")
    part: int = Field(0, ge=0, le=4, description="the part that gives private and public images")


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `cifar5m`."""
    return [
        DatasetSpec(
            name="cifar5m",
            version="1",
            summary="CIFAR-5m: a million synthetic 32 x 32 colour images per part; your own files",
            reference="Nakkiran, Neyshabur & Sedghi, The Deep Bootstrap Framework, "
            "arXiv:2010.08127; files: gs://gresearch/cifar5m/part{0..5}.npz",
            factory="harness_plugins.datasets.cifar5m.dataset:Cifar5m",
            config=Cifar5mConfig,
            fingerprint="harness_plugins.datasets.cifar5m.files:fingerprint",
            formula="train: the part chosen; test: part 5; 10 classes labelled by a classifier "
            "that is right on 98.5 % of CIFAR-10",
            weaknesses=(
                "No hashes are published: the files are named by the sums their zip directories "
                "keep, which an adversary could leave as they are while changing the images.",
                "Images are mapped inside the files, so members must be stored, not compressed.",
                "Drawn from a model of CIFAR-10's train images, some of which it may repeat: not "
                "to be used as public images beside private ones of CIFAR-10.",
                "Standardised with CIFAR-10's mean and deviation, not with their own.",
            ),
            example="harness evaluate --dataset 'cifar5m[path=/data/cifar5m,part=0]' "
            "--private-size 100000",
        )
    ]
