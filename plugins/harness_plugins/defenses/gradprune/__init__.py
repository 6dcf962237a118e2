"""`gradprune`: only the largest entries of a gradient leave."""

from __future__ import annotations

from pydantic import Field

from harness.api import Config, DefenseSpec, Stage, hookimpl


class GradpruneConfig(Config):
    """How much of each gradient is set to zero."""

    p: float = Field(
        0.9,
        ge=0,
        lt=1,
        allow_inf_nan=False,
        description="share of each tensor's entries set to zero, the smallest ones; 0 prunes none",
    )


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """Gradient pruning."""
    return [
        DefenseSpec(
            name="gradprune",
            version="1",
            summary="gradient pruning: all but the largest entries of each tensor are zeroed",
            reference="Huang et al. 2021, Evaluating Gradient Inversion Attacks and Defenses in "
            "Federated Learning, arXiv:2112.00059; rate by its appendix A.1",
            factory="harness_plugins.defenses.gradprune.prune:Gradprune",
            config=GradpruneConfig,
            stage=Stage.GRADIENT,
            no_ceiling=("what is left of a gradient leaves as it is, and no noise covers it"),
            formula=(
                "g~ = g where |g| is among the k largest of its tensor, else 0;  "
                "k = max(1, round((1 - p) n)),  n entries; of equal ones the first stay\n"
                "p >= 0.99: a victim trained by sgd with lr=0.1 starts at lr=0.02 instead"
            ),
            weaknesses=(
                "what survives is exact: its signs and places are still matched, and at p=0.9 "
                "images come back nearly as well as without",
                "the gradient of the last layer's bias still tells the labels of a small batch",
                "every step prunes anew: over several steps most entries leave at some time",
            ),
            example="harness evaluate --defense 'gradprune[p=0.99]'",
        )
    ]
