"""What the numbers mean, in a few sentences. No wording here calls a defense safe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.scoring.findings import Finding
from harness.scoring.identification import Identification
from harness.scoring.summary import MetricScore

MAIN_METRIC = "snr_db"
ABSOLUTE = "_abs"
"""How the names end of metrics on absolute values."""
CHAIN = ("pair_auc_within", "cluster_purity", "memberships_found", "encodings_assigned")
"""Steps of an attack that clusters, in its order: if one fails, what follows is worth nothing."""
BESIDE = ("pair_auc", "gram_correlation", "share_error")
"""What such an attack finds out on the way."""
GUESSWORK_DB = 0.25
"""A gain below this may come from guessing more cleverly than the nulls do."""
ALIVE = 0.1
"""Share of the way from chance to certainty that a step must come for the next to build on it."""


def main_metric(privacy: Mapping[str, MetricScore]) -> str | None:
    """SNR where it was scored, else the first metric that was, else None."""
    scored = [name for name, score in privacy.items() if score.unavailable is None]
    return MAIN_METRIC if MAIN_METRIC in scored else next(iter(scored), None)


def telling_metric(privacy: Mapping[str, MetricScore]) -> str | None:
    """The main metric, or the same on absolute values where those alone are shown to leak.

    Where masks hide signs, an attack may find everything but them.
    """
    name = main_metric(privacy)
    absolute = privacy.get(f"{name}{ABSOLUTE}")
    if name is None or absolute is None or direction(privacy[name]) > 0:
        return name
    return f"{name}{ABSOLUTE}" if direction(absolute) > 0 else name


@dataclass(frozen=True)
class FoundOut:
    """What one attack found out besides images."""

    identification: Identification | None
    findings: Mapping[str, Finding]

    @property
    def identifies(self) -> bool:
        """Whether true candidates come first, or before false ones, more often than by chance."""
        found = self.identification
        if found is None:
            return False
        first = found.top1_ci is not None and found.top1_ci[0] > found.top1_chance
        before = found.auc_ci is not None and found.auc_ci[0] > found.auc_chance
        return first or before


def verdict(privacy: Mapping[str, MetricScore], told: Mapping[str, FoundOut] | None = None) -> str:
    """A few sentences for people on what attacks gained over what was known before.

    `told` is what each attack, by name, found out besides images.
    """
    name, attacks = telling_metric(privacy), told or {}
    claims = [*_identifying(attacks), *_finding_out(attacks)]
    if name is not None:
        shown = _sentence(name, privacy[name])
        return " ".join([*claims, shown] if direction(privacy[name]) <= 0 else [shown, *claims])
    return " ".join(claims) or _nothing(privacy, attacks)


def _nothing(privacy: Mapping[str, MetricScore], attacks: Mapping[str, FoundOut]) -> str:
    """Where nothing was gained that was looked for, or nothing was looked for."""
    for each in attacks.values():
        if each.identification:
            return (
                f"No identification shown: the attack {_identified(each.identification)}, which is "
                "no more than chance; a stronger attack may do better."
            )
        if each.findings:
            return (
                "No gain shown over guessing: what the attack claims is no nearer to the truth "
                "than a guess; a stronger attack may do better."
            )
    reasons = sorted({score.unavailable or "" for score in privacy.values()})
    return f"Nothing was scored ({'; '.join(reasons) or 'no metrics'}), so nothing is known."


def _identifying(attacks: Mapping[str, FoundOut]) -> list[str]:
    """The attack that identifies best, and who else does."""
    sure = {
        name: told.identification
        for name, told in attacks.items()
        if told.identification and told.identifies
    }
    if not sure:
        return []
    best = max(sure, key=lambda name: sure[name].top1)
    others = ", ".join(f"'{name}'" for name in sure if name != best)
    also = f"; so do {others}" if others else ""
    return [f"The attack '{best}' {_identified(sure[best])}{also}."]


def _finding_out(attacks: Mapping[str, FoundOut]) -> list[str]:
    """What else was found that no guess finds; of who identifies, that said enough.

    Of who puts encodings into clusters, also at which step that fails.
    """
    sentences = []
    for name, told in attacks.items():
        ignored: set[str] = set()
        if step := _failing(told.findings):
            found, ignored = told.findings[step], {*CHAIN, *BESIDE}
            sentences.append(
                f"The attack '{name}' fails first at {_plain(step)}: {found.value:.3g}, where a "
                f"guess without the release reaches {found.chance or 0:.3g}."
            )
        leaks = {n: f for n, f in told.findings.items() if f.leaks and n not in ignored}
        if leaks and not told.identifies:
            sentences.append(f"The attack '{name}' finds {_findings(leaks)}.")
    return sentences


def _failing(found: Mapping[str, Finding]) -> str | None:
    """The first step on the way to clusters that is not surely of more use than a guess, if any.

    A step at which a guess is always right is none.
    """
    for step, each in ((step, found[step]) for step in CHAIN if step in found):
        chance = each.chance or 0
        alive = each.leaks and each.value - chance >= ALIVE * (1 - chance)
        if chance < 1 and not alive:
            return step
    return None


def _identified(found: Identification) -> str:
    right = "its image" if found.asked == "images" else f"one of its {found.true} images"
    return (
        f"identifies: of {found.n} {found.asked} it ranks {right} first in {found.top1:.1%} among "
        f"{found.candidates} candidates (chance {found.top1_chance:.1%}; AUC {found.auc:.3f})"
    )


def _findings(leaks: Mapping[str, Finding]) -> str:
    """`weight error 1e-5, where a guess without the release reaches .1`, and so on."""
    (first, one), *others = leaks.items()
    more = [f"{_plain(name)} {each.value:.3g} ({each.chance:.3g})" for name, each in others]
    told = (
        f"{_plain(first)} {one.value:.3g}, where a guess without the release reaches "
        f"{one.chance:.3g}"
    )
    return "; ".join([told, *more])


def _sentence(name: str, score: MetricScore) -> str:
    null = f"the best null ({_plain(score.null_name)}, {_number(score, score.null)})"
    if score.gain_ci is None:
        return (
            f"Too few targets ({score.n}) for an interval: the gain of "
            f"{_gain(name, score, signed=True)} over {null} may be chance."
        )
    low, high = (_number(score, bound, signed=True) for bound in score.gain_ci)
    interval = f"95% interval {low} to {high}"
    if guesswork(score):
        return (
            f"No more than guesswork: {_gain(name, score)} over {null}, {interval}, is what a "
            "better guess without the release may reach; a stronger attack may do better."
        )
    if direction(score) > 0:
        return f"{_leaking(name, score)} than {null}, {interval}; {_worst(score)}."
    if direction(score) < 0:
        return (
            f"This attack does worse than guessing, {_gain(name, score)} behind {null}, "
            f"{interval}, so it says nothing about the defense."
        )
    return (
        f"No gain shown over {null}: {_gain(name, score, signed=True)}, {interval}; a stronger "
        f"attack may do better, and {_worst(score)}."
    )


def _leaking(name: str, score: MetricScore) -> str:
    if name.endswith(ABSOLUTE):
        return (
            "The release leaks absolute values: those of reconstructions are "
            f"{_gain(name, score)} closer to the targets'"
        )
    return f"The release leaks: reconstructions are {_gain(name, score)} closer to the targets"


def direction(score: MetricScore) -> int:
    """1 where a gain is shown and is more than guesswork, -1 where a loss is shown, else 0."""
    if score.gain_ci is None or guesswork(score):
        return 0
    return int(score.gain_ci[0] > 0) - int(score.gain_ci[1] < 0)


def guesswork(score: MetricScore) -> bool:
    """Whether a gain is shown, but one that cleverer guessing might reach."""
    if score.gain_ci is None or score.unit != "dB":
        return False
    return score.gain_ci[0] > 0 and score.gain_ci[1] < GUESSWORK_DB


def _plain(name: str | None) -> str:
    return (name or "none").replace("_", " ")


def _gain(name: str, score: MetricScore, signed: bool = False) -> str:
    """The gain with its unit, or with its metric's name where that has none."""
    gain = score.gain if signed or score.gain is None else abs(score.gain)
    size = _number(score, gain, signed)
    return size if score.unit == "dB" else f"{size} ({name})"


def _number(score: MetricScore, value: float | None, signed: bool = False) -> str:
    """`3.21 dB`, `+0.031`: two decimals for decibels, three for the rest."""
    if value is None:
        return "unknown"
    digits = 2 if score.unit == "dB" else 3
    text = f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"
    return f"{text} dB" if score.unit == "dB" else text


def _worst(score: MetricScore) -> str:
    return f"the image that leaks most (target {score.worst_index}) scores " + _number(
        score, score.worst
    )
