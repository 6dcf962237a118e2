"""`none`: the images are released as they are."""

from __future__ import annotations

from harness.api import DefenseSpec, Stage, hookimpl


@hookimpl
def harness_defenses() -> list[DefenseSpec]:
    """The undefended baseline."""
    return [
        DefenseSpec(
            name="none",
            version="1",
            summary="no defense: the standardised images and their labels are released",
            reference="the undefended baseline of every paper compared here",
            factory="harness_plugins.defenses.none.encode:NoDefense",
            stage=Stage.ENCODING,
            protects=False,
            formula="x~_i = x_i,  y~_i = y_i",
            weaknesses=("the release is the private data",),
            example="harness evaluate --defense 'none'",
        )
    ]
