"""The ceiling of a release: what the posterior over exchangeable candidates comes to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from harness.api import Bound, Ceiling, Quantity, Table
from harness_plugins.ceilings.exchangeable import FEWEST, ExchangeableConfig
from harness_plugins.ceilings.exchangeable.intervals import Resamples
from harness_plugins.ceilings.exchangeable.population import Population
from harness_plugins.ceilings.exchangeable.posterior import (
    COVERED,
    Best,
    Candidates,
    Draw,
    gaussian,
    laplace,
)
from harness_plugins.ceilings.exchangeable.visibility import information
from harness_plugins.refusals import refusal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from harness.api import OwnersView, Progress

    Posterior = Callable[[Tensor, Candidates], Best]

WITHIN = (6.0, 10.0)
"""Decibels within which an image counts as had."""
VACUOUS = 0.5
"""Where the likeliest candidate has more than this on average, there are too few candidates."""
BLIND = "blind_snr_db"
"""What the candidates' mean has, which is no ceiling."""
LABELS = "_labels"
"""Ends the names of quantities that hold against whoever reads labels."""
POPULATION = (
    "the attacker's prior is the population that targets and candidates are drawn from at random: "
    "it knows nothing else of the target"
)
SCOPE = (
    "bounds a single attack that names its targets, one that reads labels by the quantities with "
    "labels; not bounded: the best of several attacks image by image, answers matched to the "
    "truth, the mean of decibels"
)


class Exchangeable(Ceiling[ExchangeableConfig]):
    """Bayes among exchangeable candidates, with and without labels."""

    def bound(self, view: OwnersView, progress: Progress) -> Bound | str:
        """Of normal noise in any number of rounds, and of Laplace noise of single rows."""
        if reason := refusal(view) or _formless(view):
            return reason
        people = Population.of(view, self.config.targets, self.config.candidates)
        if len(people.others) < FEWEST:
            return _too_few(view, people)
        posterior = _posterior(view, people, self.config.draws)
        if posterior is None:
            return "some rows carry no noise at all, and show their image as it is"
        progress(0, 2, "without labels")
        found = {"": posterior(torch.arange(len(people.rows)), people.whole)}
        progress(1, 2, "with labels")
        classes = list(people.classes())
        fewest = min(len(among.others) for _, among in classes)
        if fewest >= FEWEST:
            found[LABELS] = _joined([(rows, posterior(rows, each)) for rows, each in classes])
        progress(2, 2)
        return _bound(view, people, found, fewest)


def _formless(view: OwnersView) -> str:
    """Why the posterior has no form here; empty where it has one."""
    assert view.law is not None
    if tuple(view.shape) != view.private.shape:
        return "encodings have another shape than the images, and what is proven is of these"
    if view.law.noise != "laplace":
        return ""
    if view.rounds > 1:
        return (
            f"Laplace noise of {view.rounds} rounds has no sufficient statistic: a ceiling is "
            "stated for one round"
        )
    if view.weights.shape[2] > 1 or view.law.covers != "row":
        return "under Laplace noise a ceiling is stated for rows of one image"
    return ""


def _too_few(view: OwnersView, people: Population) -> str:
    """Why there is nobody to look among."""
    note = "" if view.public_alike else " (public images of another dataset are no candidates)"
    return (
        f"{len(people.others)} images are drawn like the targets and not judged{note}, and at "
        f"least {FEWEST} are needed: take more public images of the same dataset"
    )


def _posterior(view: OwnersView, people: Population, draws: int) -> Posterior | None:
    """Sees some targets through the noise of their rows; None where some row has none."""
    law = view.law
    assert law is not None
    weights, sources = view.weights.flatten(0, 1), view.sources.flatten(0, 1)
    images = len(view.private) + len(view.public)
    told = information(weights, sources, law.deviations(weights), images)[people.rows]
    if not bool(told.isfinite().all()):
        return None
    size, values = len(people.rows), people.targets.shape[1]

    def drawn(rows: Tensor) -> Draw:
        def draw(number: int) -> Tensor:
            stream = view.rng.stream(use="noise", draw=number)
            noise = stream.normal(size, values)
            if law.noise == "laplace":
                # by inversion, as a Laplace variable is √(2 Exp) times a normal one
                noise = noise * (-2 * torch.log1p(-stream.uniform(size, values))).sqrt().float()
            return noise[rows].to(view.device)

        return draw

    def posterior(rows: Tensor, among: Candidates) -> Best:
        here = among.to(view.device)
        if law.noise == "laplace":
            scale, share = law.deviation / math.sqrt(2), float(weights[0, 0])
            return laplace(here, share, scale, drawn(rows), draws, WITHIN)
        variances = told[rows].reciprocal().view(1, -1).to(view.device)
        return gaussian(here, variances, drawn(rows), draws, WITHIN)

    return posterior


def _joined(parts: list[tuple[Tensor, Best]]) -> Best:
    """The targets of all classes, in their order."""
    order = torch.cat([rows for rows, _ in parts]).argsort()
    names = ("errors", "largest", "covered")
    joined = {n: torch.cat([getattr(best, n) for _, best in parts], -1)[..., order] for n in names}
    return Best(**joined, trend=parts[0][1].trend)


def _bound(view: OwnersView, people: Population, found: dict[str, Best], fewest: int) -> Bound:
    over = Resamples(len(people.rows), view.rng.stream(use="intervals"))
    energies = people.targets.double().square().sum(1).numpy()
    blind = {"": _to_mean(people.whole)}
    if LABELS in found:
        blind[LABELS] = _by_class(people, _to_mean)
    count = len(people.others)
    quantities: dict[str, Quantity] = {}
    for suffix, best in found.items():
        many = f"N = {count + 1}" if not suffix else f"N = {fewest + 1} or more of each class"
        few = f"N = {min(fewest if suffix else count, COVERED) + 1}"
        pooled = over.pooled_db(energies, best.errors[0].numpy())
        quantities[f"pooled_snr_db{suffix}"] = Quantity(*pooled, many)
        nothing = over.pooled_db(energies, blind[suffix].numpy())
        quantities[f"{BLIND}{suffix}"] = Quantity(*nothing, "the candidates' mean")
        named = over.mean(best.largest[0].numpy())
        quantities[f"identification{suffix}"] = Quantity(*named, many)
        for place, decibels in enumerate(WITHIN):
            had = over.mean(best.covered[0, place].numpy())
            quantities[f"within_{decibels:g}db{suffix}"] = Quantity(*had, few)
    return Bound(
        quantities,
        assumptions=(POPULATION, SCOPE),
        notes=tuple(_notes(view, found, fewest)),
        vacuous=tuple(
            name
            for name in quantities
            if _is_vacuous(found[LABELS if name.endswith(LABELS) else ""])
            and not name.startswith(BLIND)
        ),
        tables=_trend(people, found[""], energies, over),
        errors={
            f"pooled_snr_db{suffix}": _of_all(view, people, best) for suffix, best in found.items()
        },
    )


def _to_mean(among: Candidates) -> Tensor:
    """[t] |x - mean of the others|²."""
    return (among.targets - among.others.mean(0)).double().square().sum(1)


def _by_class(people: Population, of: Callable[[Candidates], Tensor]) -> Tensor:
    values = torch.empty(len(people.rows), dtype=torch.float64)
    for rows, among in people.classes():
        values[rows] = of(among)
    return values


def _of_all(view: OwnersView, people: Population, best: Best) -> Tensor:
    """[targets], NaN where a target was left out."""
    errors = torch.full((view.targets,), torch.nan, dtype=torch.float64)
    errors[people.rows] = best.errors[0]
    return errors


def _is_vacuous(best: Best) -> bool:
    """Whether the posterior is so sure that more candidates would bring the ceiling down."""
    return float(best.largest.mean()) > VACUOUS


def _notes(view: OwnersView, found: dict[str, Best], fewest: int) -> Iterator[str]:
    for suffix, best in found.items():
        if _is_vacuous(best):
            who, share = " with labels" if suffix else "", float(best.largest.mean())
            yield (
                f"vacuous here{who}: the likeliest candidate has {share:.0%} on average, so that "
                "the ceiling says how few candidates there are, not how little leaks"
            )
    if LABELS not in found:
        yield (
            f"no ceiling with labels: some class has {fewest} candidates, and at least {FEWEST} "
            "are needed; an attack that reads labels is not bounded"
        )
    if view.subjects is not None:
        yield "one image of each subject was taken, as target or as candidate"


def _trend(
    people: Population, best: Best, energies: NDArray[np.float64], over: Resamples
) -> tuple[Table, ...]:
    """Pooled SNR among disjoint sets of growing size, and among all."""
    rows: list[tuple[str | float, ...]] = []
    for place, each in enumerate(people.whole.sets):
        value, (low, high) = over.pooled_db(energies, best.trend[0, place].numpy())
        rows.append((float(each.stop - each.start + 1), value, low, high))
    value, (low, high) = over.pooled_db(energies, best.errors[0].numpy())
    rows.append((float(len(people.others) + 1), value, low, high))
    title = "Pooled SNR by the number of candidates: disjoint sets, then all"
    return (Table(title, ("candidates", "dB at most", "from", "to"), tuple(rows)),)
