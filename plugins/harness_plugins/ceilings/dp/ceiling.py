"""μ-GDP of one image: the normal mechanism over all its rows."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING

from harness.api import Bound, Ceiling, Quantity
from harness.api.gaussian import epsilon_of
from harness_plugins.ceilings.dp import DpConfig
from harness_plugins.privacy.gaussian import success
from harness_plugins.refusals import refusal

if TYPE_CHECKING:
    from harness.api import OwnersView, Progress, Scale

ADJACENCY = (
    "replace one: two sets of images that differ in one image of the same class (soft labels "
    "leave in clear). An epsilon of adding or removing one is another kind, never to be compared"
)
BOUNDED = (
    "images are in [0,1], standardised by constants that no image decided; the radius was fixed "
    "before the images were seen"
)
WORST = "told: all other images, every weight, every partner; worst over all that may be drawn"


class DifferentialPrivacy(Ceiling[DpConfig]):
    """The rows that hold an image tell its law from another's as N(0,1) is told from N(μ,1)."""

    def bound(self, view: OwnersView, progress: Progress) -> Bound | str:
        """Of normal noise, in any number of rounds."""
        law = view.law
        if reason := refusal(view) or _boundless(view):
            return reason
        assert law is not None
        assert law.exposure is not None
        once = sensitivity(view.scale, view.private.shape) * math.sqrt(law.exposure)
        mu = once * math.sqrt(view.rounds)
        delta, chance = self.config.delta, self.config.chance
        at = f"at delta = {delta:g}"
        quantities = {
            "mu": Quantity(mu),
            "epsilon": Quantity(epsilon_of(mu, delta), detail=at),
            "reconstruction": Quantity(
                success(mu, chance), detail=f"of a hit whose prior chance is {chance:g}"
            ),
        }
        accounted = accountant_epsilon(once, view.rounds, delta)
        if accounted is not None:
            quantities["epsilon_prv"] = Quantity(accounted, detail=f"{at}, Opacus's accountant")
        return Bound(quantities, (ADJACENCY, BOUNDED, WORST))


def sensitivity(scale: Scale, shape: tuple[int, ...]) -> float:
    """The largest distance of two standardised images [c, h, w] whose values are in [0,1]."""
    assert scale.low is not None
    assert scale.high is not None
    each = math.prod(shape[1:])
    spans = ((scale.high - scale.low) / std for std in scale.std)
    return math.sqrt(math.fsum(each * span**2 for span in spans))


def _boundless(view: OwnersView) -> str:
    """Why normal noise gives no certificate here; empty where it does."""
    law = view.law
    assert law is not None
    if view.scale.low is None or view.scale.high is None:
        return (
            "these values have no bounds, and without a clipping norm no noise hides the largest "
            "of them"
        )
    if law.noise == "laplace":
        spans = ((view.scale.high - view.scale.low) / std for std in view.scale.std)
        total = math.fsum(spans) * math.prod(view.private.shape[1:]) * view.rounds
        share = float(view.weights[..., 0].max()) * math.sqrt(2) / law.deviation
        return (
            "Laplace noise is no normal mechanism; its pure epsilon, the sum over all values, is "
            f"{total * share:.3g}"
        )
    if law.exposure is None:
        return (
            f"'{view.defense}' does not state the most that a round may tell of one image "
            "(Law.exposure), over all weights and orders that may be drawn"
        )
    return "" if math.isfinite(law.exposure) else "some rows may carry no noise at all"


def accountant_epsilon(once: float, rounds: int, delta: float) -> float | None:
    """ε by Opacus's PRV accountant of `rounds` releases of μ = `once` each.

    None where Opacus is not installed, or where its grid does not reach: budgets of thousands.
    """
    if find_spec("opacus") is None:
        return None
    from harness_plugins.ceilings.dp.accountant import composed

    return composed(once, rounds, delta)
