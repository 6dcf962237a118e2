"""Standard normal vectors: the data for which InstaHide's best attack is proved."""

from __future__ import annotations

from pydantic import Field, model_validator

from harness.api import Config, DatasetSpec, hookimpl

LARGEST = 1 << 28
"""Most values in all: one gigabyte of float32."""


class SyntheticGaussianConfig(Config):
    """How many vectors of what dimension. The vectors follow from `seed`, not the request's."""

    d: int = Field(1024, ge=2, le=1 << 20, description="dimension of a vector")
    n: int = Field(2000, ge=2, le=10**7, description="vectors for the private and public splits")
    n_test: int = Field(500, ge=1, le=10**7, description="vectors for the test split")
    classes: int = Field(10, ge=2, le=1000, description="labels are uniform over so many")
    apart: float = Field(
        0.0,
        ge=0,
        le=1000,
        allow_inf_nan=False,
        description="norm of the means of classes, which are orthogonal; 0: labels mean nothing",
    )
    seed: int = Field(0, ge=0, lt=1 << 63, description="of all vectors and labels")

    @model_validator(mode="after")
    def _fits(self) -> SyntheticGaussianConfig:
        if (self.n + self.n_test) * self.d > LARGEST:
            raise ValueError(f"(n + n_test)·d must be at most {LARGEST} (1 GB of float32)")
        if self.apart and self.classes > self.d:
            raise ValueError(f"{self.classes} orthogonal means do not fit in {self.d} dimensions")
        return self


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `synthetic-gaussian`."""
    return [
        DatasetSpec(
            name="synthetic-gaussian",
            version="1",
            summary="normal vectors, with labels that mean nothing or orthogonal class means",
            reference="Chen, Li, Song & Zhuo, On InstaHide, Phase Retrieval, and Sparse Matrix "
            "Factorization, arXiv:2011.11181, for Gaussian images",
            factory="harness_plugins.datasets.synthetic_gaussian.dataset:SyntheticGaussian",
            config=SyntheticGaussianConfig,
            formula="x ~ N(apart u_y, I_d), y uniform over the classes, u_c orthonormal; the best "
            "accuracy is the integral of φ(t - apart) Φ(t)^(classes - 1); held as "
            "[1, h, w] with h·w = d and h the largest divisor of d up to √d (32 x 32 for 1024)",
            weaknesses=(
                "With apart=0 nothing can be learned from it: accuracy is 1/classes, by chance.",
                "Its vectors follow from `seed`; they stand for private data and are none.",
                "Values have no bounds: metrics of images do not apply.",
            ),
            example="harness evaluate --dataset 'synthetic-gaussian[d=3072,n=500]' --attack linear",
        )
    ]
