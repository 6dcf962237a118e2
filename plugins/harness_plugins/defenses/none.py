"""`none`: the images are released as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.api import (
    Config,
    DefenseSpec,
    Encoded,
    Law,
    PiecewiseDefense,
    Round,
    Samples,
    SamplesOnDemand,
    Secrets,
    Stage,
    Stream,
    hookimpl,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class NoDefense(PiecewiseDefense[Config]):
    """Every image is its own encoding."""

    def begin(self, private: SamplesOnDemand, public: Samples, rng: Stream) -> Round:
        """Images as they are; weights [b, 1] of one, sources [b, 1] the rows themselves."""
        import torch

        from harness_plugins.soft_labels import one_hot_labels

        labels = one_hot_labels(private, public)

        def rows(index: Tensor) -> Encoded:
            secrets = Secrets(weights=torch.ones(len(index), 1), sources=index.view(-1, 1))
            return Encoded(private[index].images, labels[index], secrets)

        return Round(private.shape, rows)

    def law(self, values: int, resolved: Mapping[str, float | int | str]) -> Law:
        """Nothing is added."""
        return Law("none")


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """The undefended baseline."""
    return [
        DefenseSpec(
            name="none",
            version="1",
            summary="no defense: the standardised images and their labels are released",
            reference="the undefended baseline of every paper compared here",
            factory="harness_plugins.defenses.none:NoDefense",
            stage=Stage.ENCODING,
            protects=False,
            formula="x~_i = x_i,  y~_i = y_i",
            weaknesses=("the release is the private data",),
            example="harness evaluate --defense 'none'",
        )
    ]
