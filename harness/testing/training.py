"""Checks of training defenses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.api import Recipe
from harness.asking.selector import parse_one, resolve
from harness.testing.defense import everything, release_of
from harness.testing.kit import known
from harness.testing.result import Violation
from harness.testing.watch import ENGINE, different, forgetful
from harness.testing.workbench import VICTIM

if TYPE_CHECKING:
    from harness.testing.subject import Subject

ANOTHER = b"another owner's key"


def releases(subject: Subject) -> str:
    """The recipe stays one, and a model is trained to the end under the defense."""
    recipe = subject.build().adapt(a_recipe())
    if not isinstance(recipe, Recipe):
        raise Violation(f"adapt returned {type(recipe).__name__}; wanted the recipe it was given")
    features = release_of(subject).tensors["features"]
    if not bool(features.isfinite().all()):
        raise Violation("features that are not all finite")
    return f"features {list(features.shape)}"


def a_recipe() -> Recipe:
    """How the kit's victim is trained."""
    chosen = parse_one(VICTIM)
    recipe = resolve(known().victim(chosen.name), chosen, "quick").config
    assert isinstance(recipe, Recipe)
    return recipe


def keeps_secrets(subject: Subject) -> str:
    """Another owner's key trains another model."""
    one, other = release_of(subject), release_of(subject, secret=ANOTHER)
    changed = different(everything(one), everything(other))
    if not changed:
        raise Violation("another key gives the very same model")
    return "another key trains another model"


def forgets(subject: Subject) -> str:
    """Trainings leave nothing behind."""
    return forgetful(lambda _: release_of(subject), ENGINE)
