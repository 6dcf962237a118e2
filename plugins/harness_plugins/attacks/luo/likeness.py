"""Which likeness the attack uses: encodings to places whose inner products compare them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from harness_plugins.attacks.luo.classwise import Classwise
from harness_plugins.attacks.luo.comparative import Comparer
from harness_plugins.attacks.luo.members import Members
from harness_plugins.clusters.embedding import Embedder

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View

Likeness = Callable[[Members], "Tensor"]
"""Places [m, e] of m encodings."""


def likeness_of(view: View, similarity: str, *, folded: bool) -> Likeness:
    """What the preparations made; `folded`: of absolute values, whatever members show."""
    own = _named(view, similarity)
    return _folding(own) if folded else own


def _named(view: View, similarity: str) -> Likeness:
    if similarity == "classwise":
        return Classwise.of(view).places
    if similarity == "comparative":
        return Comparer.of(view).places
    embedder = Embedder.of(view)

    def places(members: Members) -> Tensor:
        return embedder.places(members.seen)

    return places


def _folding(own: Likeness) -> Likeness:
    def places(members: Members) -> Tensor:
        return own(members.folded())

    return places
