"""What was published, all rounds in one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.api import NotApplicable
from harness_plugins.clusters.assignment import Rules
from harness_plugins.clusters.labels import PRESENT
from harness_plugins.mixing import mix
from harness_plugins.resizing import fit_images
from harness_plugins.signs.exercise import encode, hides_signs

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import View
    from harness_plugins.signs.exercise import Exercise

_NEAR = 0.2  # of the slope of mixtures on images: 1 where they stay in place
_LOOK = 500  # public images that are encoded to see how the defense works


@dataclass(frozen=True)
class Published:
    """Encodings and labels of `rounds` rounds, round by round, of `n` private images.

    `rows` [m, *shape] as they are, `labels` [m, classes]; each row holds `images` images, of
    them `privates` private ones, and its signs are `hidden` or not. Each private image is in
    `uses` rows of a round, 0 where that varies; it is `still` where it is mixed as it is, not
    moved about. The public images of a row are `whole` where they are mixed as they are.
    """

    rows: Tensor
    labels: Tensor
    n: int
    rounds: int
    images: int
    privates: int
    uses: int
    hidden: bool
    still: bool
    whole: bool

    @classmethod
    def of(cls, view: View) -> Published:
        """What a view shows. NotApplicable where there is nothing to cluster."""
        rounds = len(view.encodings)
        if rounds == 1:
            raise NotApplicable(
                "one round holds every private image once under each weight: there are no "
                "encodings of one image to be found and compared; publish more with --rounds."
            )
        look = view.public[:_LOOK]
        work = encode(view, look, view.rng.stream(use="look"))
        hidden = hides_signs(work)
        if work.sources.shape[1] == 1 and not hidden:
            raise NotApplicable(
                "nothing is mixed: every encoding is of one image, and shows it as far as any "
                "can; average or nearest look at them one by one."
            )
        privates = int((work.sources < len(look)).all(0).sum())
        return cls(
            rows=fit_images(view.encodings.flatten(0, 1), view.shape),
            labels=view.labels.flatten(0, 1),
            n=view.n_private,
            rounds=rounds,
            images=work.sources.shape[1],
            privates=privates,
            uses=_uses(work.sources[:, :privates], len(look)),
            hidden=hidden,
            still=_still(work, privates),
            whole=_whole(work, privates, view.public.images),
        )

    def __len__(self) -> int:
        """All encodings."""
        return len(self.rows)

    @cached_property
    def seen(self) -> Tensor:
        """[m, *shape] what masks leave: absolute values where signs are hidden, else the rows."""
        return self.rows.abs() if self.hidden else self.rows

    def rules(self, classes: Tensor) -> Rules:
        """Which clusters, of these classes [n], may be in which encodings."""
        return Rules(self.labels > PRESENT, classes, self.privates, self.uses)

    @property
    def rounds_of(self) -> Tensor:
        """[m] the round of each row."""
        each = torch.arange(self.rounds, device=self.rows.device)
        return each.repeat_interleave(self.n)


def _uses(sources: Tensor, n: int) -> int:
    """How many rows hold each of `n` images, if all are held by as many; else 0."""
    counts = sources.flatten().bincount(minlength=n)
    return int(counts[0]) if bool((counts == counts[0]).all()) else 0


def _still(work: Exercise, privates: int) -> bool:
    """Whether images as they are explain mixtures: more of them than moved ones could."""
    return _explains(_private(work, privates), work.mixtures)


def _whole(work: Exercise, privates: int, public: Tensor) -> bool:
    """Whether there are public images in the mixtures, and as they are explain the rest."""
    weights, sources = work.weights[:, privates:], work.sources[:, privates:]
    if not sources.shape[1]:
        return False
    added = mix(public, sources - len(work.samples), weights)
    return _explains(added, work.mixtures - _private(work, privates))


def _private(work: Exercise, privates: int) -> Tensor:
    return mix(work.samples.images, work.sources[:, :privates], work.weights[:, :privates])


def _explains(mixed: Tensor, mixtures: Tensor) -> bool:
    """Whether mixtures are of what is `mixed`, but for what is independent of it."""
    own, other = (each.flatten(1) - each.flatten(1).mean(0) for each in (mixtures, mixed))
    fit = (own * other).sum() / other.square().sum().clamp(min=1e-12)
    return abs(float(fit) - 1) < _NEAR


def unmasked(view: View, published: Published) -> Published:
    """The same without its masks, which the view tells."""
    packed = view.masks.flatten(0, 1).cpu().numpy()
    rows = published.rows
    flipped = torch.from_numpy(np.unpackbits(packed, axis=1, count=rows[0].numel())).bool()
    signs = flipped.to(rows.device).view(rows.shape)
    return replace(published, rows=torch.where(signs, -rows, rows), hidden=False)
