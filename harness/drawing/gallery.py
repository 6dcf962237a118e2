"""Galleries of stored results: what was private, what was released, what came back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from harness.api.errors import UsageError
from harness.drawing.plane import differing, written
from harness.drawing.png import FAINT, FRAME, INK, as_png
from harness.rng import KeyedStream, board_key
from harness.scoring.verdict import main_metric
from harness.store.paths import write_atomically
from harness.store.record import Records, RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from torch import Tensor

    from harness.api.data import Splits
    from harness.boards.folder import BoardFolder
    from harness.scoring.matching import Nulls
    from harness.store import Artifact, Store

    Image = NDArray[np.floating[Any]]

CELL, GAP = 1.35, 0.1  # inches: one picture, and the space between two
LEFT, RIGHT, BOTTOM = 1.45, 0.2, 0.42
LINE, AIR = 0.17, 0.16  # inches: one line of text, and the space around a block of lines
LETTER = 0.1
CONTRAST = (1, 99)
"""Percentiles of a released image that become black and white."""
ROWS = (
    ("original", "original"),
    ("released\n(rescaled)", "released"),
    ("guessed without\nthe release", "guess"),
    ("recovered", "recovered"),
)
"""Labels and fields of the rows; one that no column can show is left out."""
RANDOM_COLUMNS = 3
COLOURS = 3
SHOWN = ("snr_db", "ssim")
"""Scores written under each recovered image."""


@dataclass(frozen=True)
class Column:
    """One target: `original` and `recovered` [c, h, w] in [0,1], `released` of any range.

    Images have 1 or 3 channels. What cannot be shown as an image (`released` features, say) is
    None. `guess` is the best null's image. `title` stands above, `score` below.
    """

    title: str
    original: Image
    released: Image | None
    recovered: Image | None
    score: str = ""
    guess: Image | None = None


@dataclass(frozen=True)
class Stored:
    """What the pictures of one record are made of.

    `original` [n, c, h, w] in [0,1] are the images that were judged, and with them those of the
    private split that were not; `released` [n, *shape] is round 0 by primary private image, None
    where it cannot be shown. `recovered` and `guess` [targets, c, h, w] are in [0,1], `guess` is
    what the best null says of each.
    """

    record: RunRecord
    original: Tensor
    released: Tensor | None
    recovered: Tensor
    guess: Tensor
    scores: Mapping[str, Tensor]

    def column(self, target: int, title: str) -> Column:
        """One target of this record."""
        return Column(
            title=title,
            original=self.original[target].numpy(),
            released=None if self.released is None else self.released[target].numpy(),
            recovered=self.recovered[target].numpy(),
            score=self._caption(target),
            guess=self.guess[target].numpy(),
        )

    def _caption(self, target: int) -> str:
        units = {name: self.record.privacy[name].unit for name in self.scores}
        shown = [n for n in SHOWN if n in self.scores] or list(self.scores)[:1]
        values = {name: float(self.scores[name][target]) for name in shown}
        return "\n".join(
            f"{value:.1f} dB" if units[name] == "dB" else f"{name.upper()} {value:.2f}"
            for name, value in values.items()
        )


def draw_gallery(root: Path, record: RunRecord) -> Path | None:
    """Draw a record's gallery: the worst, the median and three random targets.

    None where nothing was judged, or what was judged are no images.
    """
    if "judge" not in record.artifacts or main_metric(record.privacy) is None:
        return None
    stored = read_stored(root, record)
    if stored is None:
        return None
    path = Records(root).gallery(record.id)
    columns = [stored.column(index, f"{title}\n#{index}") for title, index in _chosen(stored)]
    on = "held-out images of " if record.request.targets_from == "heldout" else ""
    request = record.request
    panel(path, columns, f"{request.defense} × {request.attack} on {on}{record.dataset.name}")
    return path


def keep_gallery(root: Path, folder: BoardFolder | None, record: RunRecord) -> None:
    """Draw a record's gallery, and keep it with its board where it has one."""
    path = draw_gallery(root, record)
    if path and folder:
        folder.keep_gallery(record.id, path.read_bytes())


def draw_panel(root: Path, records: Sequence[RunRecord], path: Path, target: int | None) -> Path:
    """Draw one target across records, by default the one the first record recovers best."""
    import torch

    stored = [_read_images(root, record) for record in records]
    if not all(torch.equal(each.original, stored[0].original) for each in stored[1:]):
        raise UsageError(
            "These records protect different images (another dataset, seed or size), "
            "so they make no panel."
        )
    if target is None:
        target = _chosen(stored[0])[0][1]
    if target >= min(len(each.recovered) for each in stored):
        raise UsageError(f"There is no target {target} in every one of these records.")
    options = [_options(record) for record in records]
    titles = ["\n".join(written(each, differing(options))) for each in options]
    columns = [
        each.column(target, title or each.record.id[:8])
        for each, title in zip(stored, titles, strict=True)
    ]
    panel(path, columns, f"{records[0].attack.name} on {records[0].dataset.name}, target {target}")
    return path


def _read_images(root: Path, record: RunRecord) -> Stored:
    stored = read_stored(root, record)
    if stored is None:
        raise UsageError(f"Record {record.id[:12]} protects no images, so it makes no panel.")
    return stored


def read_stored(root: Path, record: RunRecord) -> Stored | None:
    """Read what a record's pictures need; UsageError if the cache no longer has it.

    None where what was judged are no images: features of them, or vectors.
    """
    from harness.running.judge import SCORE, NullsStage
    from harness.running.load import LoadStage
    from harness.running.samples import held_out
    from harness.store import Store
    from harness.store.artifacts import below

    store = Store(root)
    keys = {stage: each.key for stage, each in record.artifacts.items()}
    parts = ("load", "release", "judge")
    found = {stage: _kept(store, record, stage, keys.get(stage)) for stage in parts}
    judged = found["judge"].tensors
    recovered = judged["images"]
    splits = LoadStage.read(found["load"])
    if record.request.targets_from == "heldout":
        splits = held_out(splits, len(recovered))
    nulls = _kept(store, record, "judge", found["judge"].facts.get("nulls"))
    original = _as_judged(record, splits, recovered)
    if original is None:
        return None
    return Stored(
        record=record,
        original=original,
        released=_by_primary(found["release"], len(original)),
        recovered=recovered,
        guess=_guess(record, NullsStage.read(nulls)),
        scores=below(SCORE, judged),
    )


def _as_judged(record: RunRecord, splits: Splits, recovered: Tensor) -> Tensor | None:
    """[n, c, h, w] in [0,1]: private images as `recovered` [targets, c, h, w] was compared with.

    They may be larger, where the release is, or in three channels. None where those are no images.
    """
    from harness.running.load import adapted

    images, shape = splits.private.images, recovered.shape[1:]
    if not splits.scale.of_images:
        return None
    if shape == images.shape[1:]:
        return splits.private.unit().images
    sized = shape[1:] == images.shape[2:] or record.request.judge_at == "release"
    if not sized or shape[0] not in (images.shape[1], COLOURS):
        return None
    return adapted(splits.private, recovered).images


def _kept(store: Store, record: RunRecord, stage: str, key: str | None) -> Artifact:
    if not key or not store.has(stage, key):
        raise UsageError(
            f"Record {record.id[:12]} has no stored {stage} any more, so nothing can be drawn; "
            "run its evaluation again."
        )
    return store.read(stage, key)


def _by_primary(artifact: Artifact, count: int) -> Tensor | None:
    """Round 0 of the encodings in the order of the private images they belong to.

    None where there are none, or nobody knows whose they are.
    """
    import torch

    from harness.api import ReleaseKind
    from harness.running.release import ReleaseStage

    release = ReleaseStage.read(artifact)
    known = "sources" in release.secrets
    images = release.kind is ReleaseKind.ENCODINGS and release.tensors["encodings"].ndim == 5
    if not known or not images:
        return None
    encodings = release.tensors["encodings"][0]
    ordered = torch.empty(count, *encodings.shape[1:])
    ordered[release.secrets["sources"][0, :, 0]] = encodings
    return ordered


def _guess(record: RunRecord, nulls: Nulls) -> Tensor:
    """[targets, c, h, w]: what the best null says of each.

    The class mean where that is made for one attack: a codebook, or its own answers.
    """
    from harness.scoring.matching import CLASS_MEAN

    name = main_metric(record.privacy)
    assert name is not None
    null = record.privacy[name].null_name
    assert null is not None
    return nulls.images.get(null, nulls.images[CLASS_MEAN])


def _chosen(stored: Stored) -> list[tuple[str, int]]:
    """The columns of a gallery; the random ones are drawn by the seed."""
    name = main_metric(stored.record.privacy)
    assert name is not None
    stream = KeyedStream(board_key(stored.record.request.seed)).stream(what="gallery")
    random = stream.permutation(len(stored.recovered))[:RANDOM_COLUMNS].tolist()
    score = stored.record.privacy[name]
    return choose_targets(stored.scores[name].tolist(), score.leaks_more, random)


def _options(record: RunRecord) -> dict[str, Any]:
    options: dict[str, Any] = {"attack": record.request.attack}
    for used in record.defense:
        options |= {"defense": used.name} | used.config
    return options


def panel(path: Path, columns: Sequence[Column], heading: str = "") -> None:
    """A PNG with the given columns: several targets, or one target across several records.

    Written whole or not at all; the same input gives the same bytes.
    """
    write_atomically(path, as_png(lambda: _draw(columns, heading)))


def choose_targets(
    scores: Sequence[float], leaks_more: Literal["higher", "lower"], random: Sequence[int]
) -> list[tuple[str, int]]:
    """Titles and indices: the image that leaks most, the median one, and those at `random`.

    `scores` has one value per target; those that are NaN are never chosen by rank.
    """
    sign = -1 if leaks_more == "higher" else 1
    ranked = sorted((sign * s, i) for i, s in enumerate(scores) if s == s)  # noqa: PLR0124
    places = {"leaks most": 0, "median": len(ranked) // 2} if ranked else {}
    by_rank = [(title, ranked[place][1]) for title, place in places.items()]
    return by_rank + [("random", index) for index in random]


def _draw(columns: Sequence[Column], heading: str) -> Figure:
    from matplotlib.figure import Figure

    rows = [row for row in ROWS if any(getattr(each, row[1]) is not None for each in columns)]
    width = LEFT + len(columns) * (CELL + GAP) - GAP + RIGHT
    heading = fill(heading, width=int((width - LEFT) / LETTER))
    top = _height(heading) + max(_height(column.title) for column in columns) + AIR / 2
    height = top + len(rows) * (CELL + GAP) - GAP + BOTTOM
    figure = Figure(figsize=(width, height), facecolor="white")
    for r, (label, name) in enumerate(rows):
        y = height - top - CELL - r * (CELL + GAP)
        _write(figure, LEFT - 0.14, y + CELL / 2, label, ha="right", va="center", color=FAINT)
        for c, column in enumerate(columns):
            box = (LEFT + c * (CELL + GAP), y, CELL, CELL)
            _show(figure, box, getattr(column, name), stretch=name == "released")
    for c, column in enumerate(columns):
        middle = LEFT + c * (CELL + GAP) + CELL / 2
        _write(figure, middle, height - top + 0.09, column.title, ha="center", va="bottom")
        _write(figure, middle, BOTTOM - 0.09, column.score, ha="center", va="top")
    _write(figure, LEFT, height - AIR, heading, ha="left", va="top", weight="bold", size=11)
    return figure


def _height(text: str) -> float:
    """Inches that lines of text take, with the space around them."""
    return (text.count("\n") + 1) * LINE + AIR if text else 0.0


def _write(figure: Figure, x: float, y: float, text: str, **style: Any) -> None:
    """Text at a place in inches."""
    across, up = figure.get_size_inches()
    style = {"size": 9.5, "color": INK, "linespacing": 1.25, **style}
    figure.text(x / across, y / up, text, **style)


def _show(
    figure: Figure, box: tuple[float, float, float, float], image: Image | None, stretch: bool
) -> None:
    """An image in its frame at a box of (left, bottom, width, height) in inches."""
    across, up = figure.get_size_inches()
    left, bottom, width, height = box
    axes = figure.add_axes((left / across, bottom / up, width / across, height / up))
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=FRAME, linewidth=0.8)
    if image is None:
        axes.text(0.5, 0.5, "—", ha="center", va="center", color=FAINT, transform=axes.transAxes)
        return
    axes.imshow(_pixels(image, stretch), cmap="gray", vmin=0, vmax=1, interpolation="nearest")


def _pixels(image: Image, stretch: bool) -> Image:
    """[c, h, w] as matplotlib wants it: [h, w] or [h, w, 3] in [0,1].

    A released image is stretched between its percentiles, or its noise would show as white.
    """
    pixels: Image = np.asarray(image, dtype=np.float64)
    if stretch:
        low, high = np.percentile(pixels, CONTRAST)
        pixels = (pixels - low) / max(high - low, 1e-12)
    pixels = pixels.clip(0, 1)
    return pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1)
