"""The defenses of one cell, built and in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.api import EncodingDefense, GradientDefense, Recipe, TrainingDefense


@dataclass(frozen=True)
class Stack:
    """At most one encoding defense and any number of the others, by name."""

    encoding: tuple[str, EncodingDefense[Any]] | None = None
    training: tuple[tuple[str, TrainingDefense[Any]], ...] = ()
    gradient: tuple[tuple[str, GradientDefense[Any]], ...] = ()

    @property
    def penalties(self) -> list[TrainingDefense[Any]]:
        """The training defenses that add to the loss."""
        plain = TrainingDefense.penalty
        return [guard for _, guard in self.training if type(guard).penalty is not plain]

    @property
    def gradient_maker(self) -> TrainingDefense[Any] | None:
        """The training defense that makes the gradients that leave, if one does."""
        return next((guard for _, guard in self.training if guard.releases_gradients), None)

    def adapt(self, recipe: Recipe) -> Recipe:
        """A victim's recipe as these defenses want it, checked like one that was asked for."""
        for _, guard in self.training:
            recipe = guard.adapt(recipe)
        for _, defense in self.gradient:
            recipe = defense.adapt(recipe)
        return type(recipe).model_validate(recipe.model_dump())

    def measures(self) -> dict[str, float]:
        """What the training defenses measured, as `defense.name`."""
        return {
            f"{name}.{key}": float(value)
            for name, guard in self.training
            for key, value in guard.measures().items()
        }
