"""Whether values of encodings depend on each other, which the attack's theory says they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_plugins.attacks.chen.gram import correlations
from harness_plugins.clusters.whitening import seen_of

if TYPE_CHECKING:
    from harness.api import View

_LOOK = 500
_DEPENDENT = 1.2
_HALF = 0.6745  # of a normal deviation: half of all are smaller


def values_depend(view: View) -> bool:
    """Whether correlations of public encodings are larger than those of independent values.

    The latter deviate by 1/sqrt(d) from 0: half of them by less than .67 of that.
    """
    rows = seen_of(view, view.public[:_LOOK], view.rng.stream(use="dependence"))
    typical = float(correlations(rows).abs().median())
    independent: float = _HALF / rows.shape[1] ** 0.5
    return typical > _DEPENDENT * independent
