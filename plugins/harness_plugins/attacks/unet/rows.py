"""What the attacker sees of one round: of the owner's release, or of its own exercise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from harness.api import Channel

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Encoded, Samples, Stream, View
    from harness_plugins.mixtures.subspace import Subspace


@dataclass(frozen=True)
class Rows:
    """Encodings `values` [n, d] in the coordinates of the targets, with what was granted of them.

    `weights` and `sources` [n, k], `labels` [n, classes]. Where sources are known, row i is the
    encoding of private image i.
    """

    values: Tensor
    weights: Tensor | None
    sources: Tensor | None
    labels: Tensor | None


def names_targets(view: View) -> bool:
    """Whether the release says which private image each encoding is of, one each."""
    if not (view.has(Channel.SOURCES) and view.has(Channel.N_PRIVATE)):
        return False
    own = view.sources[:, :, 0].sort(1).values
    each = torch.arange(view.n_private, device=own.device)
    return own.shape[1] == view.n_private and bool((own == each).all())


def released_rows(view: View, subspace: Subspace, turn: int) -> Rows:
    """Round `turn` of the owner's release, in the order of the targets where that is known."""
    named = names_targets(view)
    count = view.encodings.shape[1]
    order = view.sources[turn, :, 0].argsort() if named else torch.arange(count)
    return Rows(
        values=subspace.project(view.encodings[turn][order]),
        weights=view.weights[turn][order] if view.has(Channel.WEIGHTS) else None,
        sources=view.sources[turn][order] if named else None,
        labels=view.labels[turn][order] if view.has(Channel.LABELS) else None,
    )


def encode(view: View, samples: Samples, rng: Stream) -> Encoded:
    """The attacker's own images under the owner's law."""
    return view.encoder.encode(samples, view.public, rng)


def exercise_rows(view: View, subspace: Subspace, encoded: Encoded, named: bool) -> Rows:
    """An exercise that shows no more than the release will; `named` as the release is."""
    secrets, device = encoded.secrets, view.device
    order = secrets.sources[:, 0].argsort()
    missing = view.classes - encoded.labels.shape[1]
    labels = pad(encoded.labels, (0, missing))[order.to(encoded.labels.device)]
    return Rows(
        values=subspace.project(encoded.images.to(device)[order.to(device)]),
        weights=secrets.weights[order].to(device) if view.has(Channel.WEIGHTS) else None,
        sources=secrets.sources[order].to(device) if named else None,
        labels=labels.to(device) if view.has(Channel.LABELS) else None,
    )
