"""The owner's rounds of encoding: run, checked, shuffled, stacked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.api import CellFailed, Encoded, Samples, Secrets, Stream
from harness.running.release import Stack
from harness.sandbox.rebuilding import plain

LABEL_SLACK = 1e-4
"""How far rounding may lift the sum of an encoding's soft label above one."""

Encode = Callable[[Samples, Samples, Stream], Encoded]
Order = Callable[[int], Tensor]
Parameters = Mapping[str, float | int | str]
Law = tuple[Mapping[str, tuple[torch.Size, torch.dtype]], Parameters]


@dataclass(frozen=True)
class Rounds:
    """T rounds, row-aligned: every tensor [T,n,...]. `secrets` holds weights, sources, extra.*."""

    images: Tensor
    labels: Tensor
    secrets: Mapping[str, Tensor]
    resolved: Mapping[str, Parameters]


def encode_rounds(
    private: Samples, public: Samples, stack: Stack, owner: Stream, *, classes: int, rounds: int
) -> Rounds:
    """All rounds of the stack's encoding defense over standardised images.

    Each round's rows are put in a secret order, everything alike, so that the place of a row
    tells nothing of its image. Without an encoding defense the images themselves are the
    encodings. Raises `CellFailed` where the defense breaks its contract.
    """
    name, encode = _encoder(stack, classes)

    def order(t: int) -> Tensor:
        return owner.stream(what="order", round=t).permutation(len(private))

    def encoded(t: int) -> Encoded:
        made = encode(private, public, owner.stream(what="encoding", round=t))
        made = _with_all_classes(made, classes)
        _require_contract(name, made, len(private), len(public), classes)
        return made

    tensors, resolved = _stacked(name, rounds, encoded, order)
    images, labels = tensors.pop("encodings"), tensors.pop("labels")
    return Rounds(images, labels, tensors, {name: resolved} if stack.encoding else {})


def _with_all_classes(made: Encoded, classes: int) -> Encoded:
    """Classes that no image of either pool has may be missing at the end of the labels."""
    labels = made.labels
    if not isinstance(labels, Tensor) or labels.ndim != 2 or labels.shape[1] >= classes:
        return made
    return replace(made, labels=pad(labels, (0, classes - labels.shape[1])))


def plain_round(private: Samples, classes: int) -> Rounds:
    """The images as they are and in their order, as one round without a copy."""
    made = plain(private, classes)
    secrets = {"weights": made.secrets.weights[None], "sources": made.secrets.sources[None]}
    return Rounds(made.images[None], made.labels[None], secrets, {})


def _encoder(stack: Stack, classes: int) -> tuple[str, Encode]:
    if stack.encoding:
        name, defense = stack.encoding
        return name, defense.encode
    return "none", lambda private, _public, _rng: plain(private, classes)


def _stacked(
    name: str, rounds: int, encoded: Callable[[int], Encoded], order: Order
) -> tuple[dict[str, Tensor], Parameters]:
    """Each tensor of every round, reordered straight into its place in [T,n,...]."""
    stacked: dict[str, Tensor] = {}

    def fill(t: int, first: Law | None = None) -> Law:
        """One function call a round, so that no round is in memory while the next is made."""
        made = encoded(t)
        law, rows = _law(made), _rows(made)
        if first is None:
            stacked.update((key, row.new_empty((rounds, *row.shape))) for key, row in rows.items())
        else:
            _require_same(f"defense '{name}' in round {t}", law, first)
        _place(rows, stacked, t, order(t))
        return law

    first = fill(0)
    for t in range(1, rounds):
        fill(t, first)
    return stacked, first[1]


def _rows(made: Encoded) -> dict[str, Tensor]:
    extra = {f"extra.{key}": value.cpu() for key, value in made.secrets.extra.items()}
    return {
        "encodings": made.images.cpu(),
        "labels": made.labels.cpu(),
        "weights": made.secrets.weights.cpu(),
        "sources": made.secrets.sources.cpu(),
        **extra,
    }


def _place(rows: dict[str, Tensor], stacked: dict[str, Tensor], t: int, order: Tensor) -> None:
    for key, value in rows.items():
        torch.index_select(value, 0, order, out=stacked[key][t])


def _law(made: Encoded) -> Law:
    """What must not change from round to round: shapes and types, and resolved parameters."""
    return {key: (row.shape, row.dtype) for key, row in _rows(made).items()}, dict(made.resolved)


def _require_same(who: str, now: Law, then: Law) -> None:
    if now[0] != then[0]:
        raise CellFailed(f"{who} returned other shapes or types than in round 0")
    if now[1] != then[1]:
        raise CellFailed(
            f"{who} resolved {now[1]}, but {then[1]} in round 0; "
            "calibrate on the data alone, not on a round's randomness"
        )


def _require_contract(name: str, made: Encoded, n: int, n_public: int, classes: int) -> None:
    """Raise `CellFailed` with the first way in which an encoding breaks the contract."""
    problem = (
        _image_problem(made.images, n)
        or _label_problem(made.labels, n, classes)
        or _secret_problem(made.secrets, n, n + n_public)
    )
    if problem:
        raise CellFailed(f"defense '{name}' returned {problem}")


def _image_problem(images: Tensor, n: int) -> str | None:
    if images.dtype != torch.float32 or images.ndim < 2 or len(images) != n:
        return f"images {_what(images)}; wanted [{n},...] float32"
    return None if _finite(images) else "images that are not all finite"


def _label_problem(labels: Tensor, n: int, classes: int) -> str | None:
    if labels.dtype != torch.float32 or labels.shape != (n, classes):
        return f"labels {_what(labels)}; wanted [{n},{classes}] float32"
    if not _finite(labels) or labels.min() < -LABEL_SLACK:
        return "labels that are negative or not finite"
    most = labels.sum(dim=1).max().item()
    return f"labels that sum to {most:.6g}, above 1" if most > 1 + LABEL_SLACK else None


def _secret_problem(secrets: Secrets, n: int, images: int) -> str | None:
    weights, sources = secrets.weights, secrets.sources
    if weights.dtype != torch.float32 or weights.ndim != 2 or len(weights) != n:
        return f"weights {_what(weights)}; wanted [{n},k] float32"
    if sources.dtype != torch.int64 or sources.shape != weights.shape:
        return f"sources {_what(sources)}; wanted {list(weights.shape)} int64, as the weights"
    if not _finite(weights):
        return "weights that are not all finite"
    if sources.numel() and (sources.min() < 0 or sources.max() >= images):
        return f"sources outside 0..{images - 1}, the private and public images"
    wrong = [key for key, value in secrets.extra.items() if value.ndim < 1 or len(value) != n]
    return f"extra secrets without one row for each encoding: {', '.join(wrong)}" if wrong else None


def _finite(values: Tensor) -> bool:
    """One pass and no mask in memory: a float64 sum of float32 cannot overflow."""
    return bool(torch.isfinite(values.sum(dtype=torch.float64)))


def _what(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
