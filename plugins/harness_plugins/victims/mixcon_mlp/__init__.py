"""The fully connected network of MixCon's synthetic experiment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.api import (
    BatchSize,
    Cut,
    Decay,
    Epochs,
    Optimizer,
    Rate,
    Recipe,
    Schedule,
    VictimSpec,
    hookimpl,
)


class MixconMlpConfig(Recipe):
    """Layers 10-500-2-100-2 with sigmoids, cut at the two-dimensional layer."""

    epochs: Epochs = 20
    batch_size: BatchSize = 20
    optimizer: Optimizer = "sgd"
    # The engine's sgd has momentum .9: its steps add up to those of the paper's rate of .1.
    lr: Rate = 1e-2
    weight_decay: Decay = 0.0
    schedule: Schedule = "none"
    cut: Cut = "hidden2"
    server: Literal["default", "deeper", "wider"] = Field(
        "default",
        description="after the cut; deeper: two more layers of 100; wider: 2048 in place of 100",
    )
    spread: float = Field(
        0.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="the paper's α: variance of the mean u_k that the weights of a layer share",
    )


@hookimpl
def harness_victims() -> list[VictimSpec]:
    """Declare the victim."""
    return [
        VictimSpec(
            name="mixcon-mlp",
            version="1",
            summary="MixCon's network for synthetic data, with two hidden units at the cut",
            reference="Li et al., MixCon: Adjusting the Separability of Data Representations for "
            "Harder Data Recovery, arXiv:2010.11463, section 4.2",
            factory="harness_plugins.victims.mixcon_mlp.network:MixconMlp",
            config=MixconMlpConfig,
            formula="f(x) = W4·σ(W3·σ(W2·σ(W1·x + b1) + b2) + b3) + b4; entries of W_k and b_k "
            "from N(u_k, 1), u_k ~ N(0, α); σ the logistic function",
            weaknesses=(
                "The paper leaves σ, α and the batch size open. With ReLU the weights are so "
                "large that training at its rate dies; sigmoids, α = 0 and batches of 20 come "
                "near its undefended accuracy: 90.7 % over eight draws, to its 91.5 %.",
                "Draws differ: about one in eight ends ten points below the others, and from "
                "α = 0.1 on more than half saturate the sigmoids and learn nothing.",
            ),
            example="harness evaluate --dataset synthetic-mixcon "
            "--victim 'mixcon-mlp[server=wider]'",
        )
    ]
