"""`none`: the images are released as they are."""

from __future__ import annotations

from harness.api import (
    Config,
    DefenseSpec,
    Encoded,
    EncodingDefense,
    Samples,
    Secrets,
    Stage,
    Stream,
    hookimpl,
)


class NoDefense(EncodingDefense[Config]):
    """Every image is its own encoding."""

    def encode(self, private: Samples, public: Samples, rng: Stream) -> Encoded:
        """Images as they are; weights [n, 1] of one, sources [n, 1] the rows themselves."""
        import torch

        from harness_plugins.soft_labels import one_hot_labels

        rows = torch.arange(len(private)).view(-1, 1)
        secrets = Secrets(weights=torch.ones(len(private), 1), sources=rows)
        return Encoded(private.images, one_hot_labels(private, public), secrets)


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
