"""Two normals in ten dimensions: the data of MixCon's first experiment."""

from __future__ import annotations

from pydantic import Field

from harness.api import Config, DatasetSpec, hookimpl


class SyntheticMixconConfig(Config):
    """How many points, and how many wrong labels. They follow from `seed`, not the request's."""

    n_train: int = Field(
        1000,
        ge=2,
        le=10**7,
        description="points for the private and public splits; the paper trains on 800",
    )
    n_test: int = Field(200, ge=1, le=10**7, description="points for the test split")
    flip: float = Field(
        0.05,
        ge=0,
        le=0.5,
        allow_inf_nan=False,
        description="share of the train labels that are turned round",
    )
    seed: int = Field(0, ge=0, lt=1 << 63, description="of all points, labels and flips")


@hookimpl
def harness_datasets() -> list[DatasetSpec]:
    """The dataset `synthetic-mixcon`."""
    return [
        DatasetSpec(
            name="synthetic-mixcon",
            version="1",
            summary="two normals in ten dimensions, 5 % of train labels wrong; no download",
            reference="Li et al., MixCon: Adjusting the Separability of Data Representations for "
            "Harder Data Recovery, arXiv:2010.11463, section 4.2",
            factory="harness_plugins.datasets.synthetic_mixcon.dataset:SyntheticMixcon",
            config=SyntheticMixconConfig,
            formula="positive (label 1): x ~ N(0, I_10); negative (label 0): x ~ N(-1, I_10); as "
            "many of each; no classifier is right on more than Φ(√10/2) = 94.3 % of true labels",
            weaknesses=(
                "The paper does not say whether its test labels are flipped too. Here they are "
                "true, so that accuracy says what was learned; flipped ones would hold the best "
                "classifier to 89.9 %, below the 91.5 % that the paper reports.",
                "Its points follow from `seed`; they stand for private data and are none.",
                "Values have no bounds: metrics of images do not apply.",
            ),
            example="harness evaluate --dataset synthetic-mixcon --victim mixcon-mlp "
            "--private-size 800 --public-size 200 --test-size 200",
        )
    ]
