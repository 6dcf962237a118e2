"""Pictures of stored results: the gallery of one record, a panel across several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.api import ReleaseKind, Splits, UsageError
from harness.boards.folder import BoardFolder
from harness.drawing.gallery import Column, choose_targets, gallery, panel
from harness.results.apart import differing, written
from harness.rng import KeyedStream, board_key
from harness.running.judge import SCORE, read_nulls
from harness.running.load import read_splits
from harness.running.release import read_release
from harness.running.truth import held_out
from harness.scoring.nulls import CLASS_MEAN, Nulls
from harness.scoring.verdict import main_metric
from harness.scoring.worst import BEST_OF_NULLS
from harness.store import Artifact, Store
from harness.store.record import RunRecord
from harness.store.records import Records

RANDOM_COLUMNS = 3
SHOWN = ("snr_db", "ssim")
"""Scores written under each recovered image."""


@dataclass(frozen=True)
class Stored:
    """What the pictures of one record are made of."""

    record: RunRecord
    splits: Splits
    """As the judge has them: of held-out targets, those are the private images."""
    released: Tensor | None
    """[n, *shape]: round 0, by primary private image; None where it cannot be shown."""
    recovered: Tensor
    """[targets, c, h, w] in [0,1]."""
    scores: Mapping[str, Tensor]
    nulls: Nulls

    def column(self, target: int, title: str) -> Column:
        """One target of this record."""
        return Column(
            title=title,
            original=self.original[target].numpy(),
            released=None if self.released is None else self.released[target].numpy(),
            recovered=self.recovered[target].numpy(),
            score=self.caption(target),
            guess=self.guesses(torch.tensor([target]))[0].numpy(),
        )

    def guesses(self, targets: Tensor) -> Tensor:
        """[len(targets), c, h, w]: what the best null says of these targets.

        Of a worst case, whose null is another one for each image: their class means.
        """
        name = main_metric(self.record.privacy)
        assert name is not None
        null = self.record.privacy[name].null_name
        assert null is not None
        return self.nulls.images[CLASS_MEAN if null == BEST_OF_NULLS else null][targets]

    @property
    def drawable(self) -> bool:
        """Whether what was judged are images, not features of them or vectors."""
        images = self.splits.private.images
        return self.splits.scale.of_images and self.recovered.shape[1:] == images.shape[1:]

    @property
    def original(self) -> Tensor:
        """[n, c, h, w] in [0,1]."""
        return self.splits.private.unit().images

    def caption(self, target: int) -> str:
        """A target's scores."""
        units = {name: self.record.privacy[name].unit for name in self.scores}
        shown = [n for n in SHOWN if n in self.scores] or list(self.scores)[:1]
        return "\n".join(_written(n, float(self.scores[n][target]), units[n]) for n in shown)


def _written(name: str, value: float, unit: str) -> str:
    return f"{value:.1f} dB" if unit == "dB" else f"{name.upper()} {value:.2f}"


def read_stored(root: Path, record: RunRecord) -> Stored:
    """Read what a record's pictures need; UsageError if the cache no longer has it."""
    store = Store(root)
    found = {stage: _artifact(store, record, stage) for stage in ("load", "release", "judge")}
    recovered = found["judge"].tensors["images"]
    splits = read_splits(found["load"])
    if record.request.targets_from == "heldout":
        splits = held_out(splits, len(recovered))
    scores = {
        name.removeprefix(SCORE): values
        for name, values in found["judge"].tensors.items()
        if name.startswith(SCORE)
    }
    nulls = read_nulls(_kept(store, record, "judge", found["judge"].facts["nulls"]))
    released = _by_primary(found["release"], len(splits.private))
    return Stored(record, splits, released, recovered, scores, nulls)


def _artifact(store: Store, record: RunRecord, stage: str) -> Artifact:
    kept = record.artifacts.get(stage)
    return _kept(store, record, stage, kept.key if kept else "")


def _kept(store: Store, record: RunRecord, stage: str, key: str) -> Artifact:
    if not key or not store.has(stage, key):
        raise UsageError(
            f"Record {record.id[:12]} has no stored {stage} any more, so nothing can be drawn; "
            "run its evaluation again."
        )
    return store.read(stage, key)


def _by_primary(artifact: Artifact, count: int) -> Tensor | None:
    """Round 0 of the encodings in the order of the private images they belong to."""
    release = read_release(artifact)
    if release.kind is not ReleaseKind.ENCODINGS or release.tensors["encodings"].ndim != 5:
        return None
    encodings = release.tensors["encodings"][0]
    ordered = torch.empty(count, *encodings.shape[1:])
    ordered[release.secrets["sources"][0, :, 0]] = encodings
    return ordered


def draw_gallery(root: Path, record: RunRecord) -> Path | None:
    """Draw a record's gallery: the worst, the median and three random targets.

    None where nothing was judged, or what was judged are no images.
    """
    if "judge" not in record.artifacts or main_metric(record.privacy) is None:
        return None
    stored = read_stored(root, record)
    if not stored.drawable:
        return None
    chosen = choose(stored)
    indices = torch.tensor([index for _, index in chosen])
    path = Records(root).gallery(record.id)
    gallery(
        path,
        stored.original[indices].numpy(),
        None if stored.released is None else stored.released[indices].numpy(),
        stored.recovered[indices].numpy(),
        scores=[stored.caption(index) for _, index in chosen],
        titles=[f"{title}\n#{index}" for title, index in chosen],
        guess=stored.guesses(indices).numpy(),
        heading=_heading(record),
    )
    return path


def keep_gallery(root: Path, folder: BoardFolder | None, record: RunRecord) -> None:
    """Draw a record's gallery, and keep it with its board where it has one."""
    path = draw_gallery(root, record)
    if path and folder:
        folder.keep_gallery(record.id, path.read_bytes())


def _heading(record: RunRecord) -> str:
    on = "held-out images of " if record.request.targets_from == "heldout" else ""
    return f"{record.request.defense} × {record.request.attack} on {on}{record.dataset.name}"


def choose(stored: Stored) -> list[tuple[str, int]]:
    """The columns of a gallery; the random ones are drawn by the seed."""
    name = main_metric(stored.record.privacy)
    assert name is not None
    count = len(stored.recovered)
    stream = KeyedStream(board_key(stored.record.request.seed)).stream(what="gallery")
    random = stream.permutation(count)[:RANDOM_COLUMNS].tolist()
    score = stored.record.privacy[name]
    return choose_targets(stored.scores[name].tolist(), score.leaks_more, random)


def draw_panel(root: Path, records: Sequence[RunRecord], path: Path, target: int | None) -> Path:
    """Draw one target across records, by default the one the first record recovers best."""
    stored = [read_stored(root, record) for record in records]
    _check_comparable(stored)
    if target is None:
        target = choose(stored[0])[0][1]
    if target >= min(len(each.recovered) for each in stored):
        raise UsageError(f"There is no target {target} in every one of these records.")
    columns = [each.column(target, _difference(each.record, records)) for each in stored]
    panel(path, columns, f"{records[0].attack.name} on {records[0].dataset.name}, target {target}")
    return path


def _check_comparable(stored: Sequence[Stored]) -> None:
    first = stored[0].splits.private.images
    for each in stored:
        if not each.drawable:
            raise UsageError(
                f"Record {each.record.id[:12]} protects no images, so it makes no panel."
            )
    for each in stored[1:]:
        if not torch.equal(each.splits.private.images, first):
            raise UsageError(
                "These records protect different images (another dataset, seed or size), "
                "so they make no panel."
            )


def _difference(record: RunRecord, records: Sequence[RunRecord]) -> str:
    """What sets a record apart: the options that differ among the records."""
    names = differing([_options(each) for each in records])
    return "\n".join(written(_options(record), names)) or record.id[:8]


def _options(record: RunRecord) -> dict[str, Any]:
    options: dict[str, Any] = {"attack": record.request.attack}
    for used in record.defense:
        options |= {"defense": used.name} | used.config
    return options
