"""Which defenses keep an accuracy, and what an attacker got from each. Pure.

It never calls a defense safe: it reports the strongest attack that ran, and refuses where the
records do not bear even that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel

from harness.api.errors import UsageError, nearest
from harness.asking.request import Request, make_request, parse_one
from harness.boards.protocol import Board, Track
from harness.results.build import scored_by, shown
from harness.results.identified import identified, in_words
from harness.results.material import Line, Material, lines
from harness.results.ranks import ranked
from harness.results.trust import Controls
from harness.results.view import Identified, Leak, Notice, Number, RowView
from harness.scoring.verdict import ABSOLUTE

AT_CHANCE = Notice(
    name="at_chance",
    message="what is learned is no better than always naming the same class, by the strongest "
    "learner that was tried",
)


@dataclass(frozen=True)
class Wish:
    """What somebody wants to know. `grants` are the channels that the attacker holds.

    `named`: somebody said who the attacker is, so that it holds no more than that. Of one that is
    merely supposed, nobody said that it has no list of candidates.
    """

    dataset: str
    min_accuracy: float
    attacker: str
    grants: Collection[str]
    metric: str | None = None
    named: bool = True


class Offer(BaseModel, frozen=True, extra="forbid"):
    """A defense that keeps the accuracy, on the front of those that do.

    `released` says what would leave the owner: only offers of the same can be held against each
    other. `chance` is the accuracy of always naming the same class.
    `leak` is what the strongest of `attacks` got, out of `of` that met it: the others know more
    than this attacker. `identified` is how well any attack tells its images among candidates.
    `doubts` are why it is not recommended; it is where there are none. `warnings` stand beside it.
    """

    board: str
    track: str
    title: str
    defense: str
    released: str
    accuracy: Number
    chance: float | None
    retained: Number | None
    leak: Leak | None
    attacks: int
    of: int
    identified: Identified | None = None
    doubts: tuple[Notice, ...] = ()
    warnings: tuple[Notice, ...] = ()


class Advice(BaseModel, frozen=True, extra="forbid"):
    """What can be said. Without a recommendation, `refusal` says why."""

    dataset: str
    min_accuracy: float
    attacker: str
    recommended: tuple[Offer, ...] = ()
    doubtful: tuple[Offer, ...] = ()
    refusal: str = ""


def advise(materials: Sequence[Material], wish: Wish) -> Advice:
    """Advice from boards; UsageError where none is of that dataset or has that metric."""
    tracks = _tracks(materials, wish.dataset)
    found = [offer for material, track in tracks for offer in _offers(material, track, wish)]
    ordered = sorted(found, key=_place)
    recommended = tuple(offer for offer in ordered if not offer.doubts)
    return Advice(
        dataset=wish.dataset,
        min_accuracy=wish.min_accuracy,
        attacker=wish.attacker,
        recommended=recommended,
        doubtful=tuple(offer for offer in ordered if offer.doubts),
        refusal="" if recommended else _refusal(found, wish, learned=any(map(_learned, tracks))),
    )


def _tracks(materials: Iterable[Material], dataset: str) -> list[tuple[Material, Track]]:
    every = [(m, track) for m in materials for track in m.board.tracks]
    found = [(m, track) for m, track in every if _is_of(_dataset(m.board, track), dataset)]
    if not found:
        known = {_dataset(m.board, track) for m, track in every}
        raise UsageError(f"No board is of the dataset '{dataset}'.{nearest(dataset, known)}")
    return found


def _dataset(board: Board, track: Track) -> str:
    return str({**board.options, **track.options}.get("dataset", Request().dataset))


def _is_of(text: str, dataset: str) -> bool:
    """Whether a track is of this dataset, as it is written or by name alone."""
    return dataset in (text, parse_one(text).name)


def _offers(material: Material, track: Track, wish: Wish) -> list[Offer]:
    """The front of what this attacker gets, of those defenses that keep the accuracy.

    By the metric that is asked for, else the first that the board ranks by and these rows have.
    Also those that nothing is known of, or too little to give them a rank: their doubts say so.
    """
    every = lines(material)
    met = {line.defense: line for line in every if line.track == track.name}
    able = {name: _within_reach(line, wish.grants) for name, line in met.items()}
    reached = [_within_reach(line, wish.grants) for line in every]
    _check_scored(met.values(), wish.metric)
    metrics = (wish.metric,) if wish.metric else material.board.ranking
    seen = shown(able.values(), Controls(material.controls), metrics, reached)
    metric = next(iter(scored_by(metrics, seen)), "")
    rows = [each.view for each in seen if each.view.protected]
    keeping = [row for row in rows if row.accuracy and row.accuracy.low >= wish.min_accuracy]
    lost = [row for row in keeping if row.at_chance]  # which leak least, and take nobody's place
    front = ranked([row for row in keeping if not row.at_chance], [metric] if metric else [])
    return [
        _offer(
            *(material.board, track, row, metric, (able[row.defense], met[row.defense]), wish),
            identified(met[row.defense], every),
        )
        for row in (*front, *lost)
        if row.rank.get(metric, 1) == 1
    ]


def _within_reach(line: Line, grants: Collection[str]) -> Line:
    """The line with those attacks alone that need no more than the attacker holds.

    What an attack without any record would use is not known: it stays, as a gap.
    """
    able = [all({*r.channels_used} <= {*grants} for r in g.records) for g in line.groups]
    pairs = list(zip(line.groups, able, strict=True))
    return replace(
        line,
        groups=tuple(group for group, within in pairs if within),
        beside=tuple(group for group, within in pairs if not within),
    )


def _check_scored(found: Iterable[Line], metric: str | None) -> None:
    """UsageError where rows were scored, and not by the metric that is asked for."""
    counted = [r for line in found for group in line.groups for r in group.counted]
    known = {name.removesuffix(ABSOLUTE) for record in counted for name in record.by_image}
    if metric and known and metric not in known:
        raise UsageError(f"Rows are not ranked by '{metric}'.{nearest(metric, known)}")


def _offer(
    board: Board,
    track: Track,
    row: RowView,
    metric: str,
    lines: tuple[Line, Line],
    wish: Wish,
    named: Identified | None,
) -> Offer:
    told = (_names(named),) if named and named.sure else ()
    refused = row.names_images or not wish.named
    able, met = (sum(any(r.by_image for r in g.counted) for g in line.groups) for line in lines)
    leak = row.leak(metric)
    assert row.accuracy is not None
    return Offer(
        board=board.name,
        track=track.name,
        title=track.title,
        defense=row.defense,
        released=_released(board, track, lines[1]),
        accuracy=row.accuracy,
        chance=row.chance,
        retained=row.retained,
        leak=leak,
        attacks=able,
        of=met,
        identified=named,
        doubts=(
            *(told if refused else ()),
            *((AT_CHANCE,) if row.at_chance else ()),
            *row.flags,
            *(() if leak else (_unknown(able, met, metric),)),
        ),
        warnings=() if refused else told,
    )


def _released(board: Board, track: Track, line: Line) -> str:
    """What leaves the owner in a track: of what kind, in which space, of how many images."""
    asked = {**Request().model_dump(), **board.options, **track.options}
    kinds = sorted({record.release_kind for group in line.groups for record in group.records})
    space = "" if asked["space"] == Request().space else f" of {asked['space']} features"
    images = f"{make_request(**{**board.options, **track.options}).sizes.private} images"
    times = "each once" if asked["rounds"] == 1 else f"each {asked['rounds']} times"
    if kinds == ["gradients"]:
        times = f"in batches of {asked['batch_size']}"
    if kinds == ["updates"]:
        times = f"{asked['local_images'] or asked['batch_size']} in each"
    return f"{' and '.join(kinds)}{space}, {images}{f', {times}' if kinds != ['features'] else ''}"


def _names(found: Identified) -> Notice:
    """That images are named: whoever has a list of candidates needs no reconstruction."""
    return Notice(
        name="images_named",
        message=f"whoever holds what '{found.threat_model}' grants can name its images: "
        f"{found.attack} puts {in_words(found)}",
    )


def _unknown(able: int, met: int, metric: str) -> Notice:
    """Why there is no number on what leaks."""
    if able:
        by = metric or "what the board ranks by"
        return Notice(name="not_scored", message=f"nothing was scored by {by} here")
    message = (
        f"none of the {met} attacks that met it can be run with what this attacker knows: "
        "what it could get is not known"
    )
    return Notice(name="no_attack", message=message)


def _place(offer: Offer) -> tuple[float, str, str, str]:
    gain = offer.leak.gain.value if offer.leak else float("inf")
    return gain, offer.board, offer.track, offer.defense


def _learned(place: tuple[Material, Track]) -> bool:
    """Whether any accuracy counts in a track: one of a quick look does not."""
    material, track = place
    met = (line for line in lines(material) if line.track == track.name)
    groups = (group for line in met for group in (*line.groups, *line.alone))
    return any(record.utility for group in groups for record in group.counted)


def _refusal(found: Sequence[Offer], wish: Wish, *, learned: bool) -> str:
    if not learned:
        return (
            f"No accuracy on '{wish.dataset}' counts here: its cells have not been run, or only "
            "with the preset 'quick', which ranks nothing."
        )
    if not found:
        return (
            f"No defense surely keeps an accuracy of {wish.min_accuracy:g} on "
            f"'{wish.dataset}' here."
        )
    if all(any(doubt.name == "images_named" for doubt in offer.doubts) for offer in found):
        return (
            "Of every defense that would do, images can be named among candidates: the reasons "
            "stand beside each."
        )
    return (
        "Of every defense that would do, something makes the numbers unsafe to rely on: the "
        "reasons stand beside each."
    )
