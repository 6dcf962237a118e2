"""The defenses of one cell, built and in order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.api.errors import PluginError
from harness.api.plugins import EncodingDefense, GradientDefense, Recipe, TrainingDefense
from harness.running.stage import plugin_boundary

if TYPE_CHECKING:
    from harness.asking.selector import Resolved
    from harness.running.run import Run


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


def build_stack(run: Run, defenses: tuple[Resolved, ...]) -> Stack:
    """The defenses at work."""
    built = [(d.spec.stage, d.name, run.build("defenses", d.spec, d.config)) for d in defenses]
    named = {
        stage: tuple((n, d) for s, n, d in built if s == stage)
        for stage in ("encoding", "training", "gradient")
    }
    encoding = named["encoding"][0] if named["encoding"] else None
    return Stack(encoding, named["training"], named["gradient"])


def victim_under(run: Run, defenses: tuple[Resolved, ...]) -> Resolved:
    """The cell's victim with its recipe as a stack wants it."""
    victim = run.cell.victim
    stack = build_stack(run, defenses)
    with plugin_boundary("+".join(d.name for d in defenses) or "no defense"):
        return replace(victim, config=stack.adapt(recipe_of(victim)))


def recipe_of(victim: Resolved) -> Recipe:
    """A victim's config; PluginError where it is no recipe."""
    if not isinstance(victim.config, Recipe):
        raise PluginError(f"the config of victim '{victim.name}' does not extend Recipe")
    return victim.config
