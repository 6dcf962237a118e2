"""Fusion and denoising of clusters of encodings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import one_hot

from harness.api import Attack, Budget, Progress, Reconstruction, View
from harness_plugins.attacks.luo import LuoConfig
from harness_plugins.attacks.luo.fusion import Heap
from harness_plugins.attacks.luo.lessons import Law
from harness_plugins.attacks.luo.likeness import Likeness, likeness_of
from harness_plugins.attacks.luo.medoids import clustered
from harness_plugins.attacks.luo.members import Members, leading_sources
from harness_plugins.attacks.luo.restorer import Restorer
from harness_plugins.attacks.luo.school import learn
from harness_plugins.clusters.labels import images_of_classes
from harness_plugins.clusters.published import Published
from harness_plugins.sign_masks import flip_signs

if TYPE_CHECKING:
    from torch import Tensor

_CLAIMED = 256  # numbers of a place that is claimed


@dataclass(frozen=True)
class Grouped:
    """Clusters of encodings: `numbers` [m], -1 for none; `kinds` [k] are their classes."""

    numbers: Tensor
    kinds: Tensor


class Luo(Attack[LuoConfig]):
    """One image for every cluster."""

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """Fusion and denoiser, trained on clusters of public images."""
        law = Law.of(view, bare=self.config.knows("signs"))
        return learn(view, law, self.config, self._likeness(view, law.hidden), progress)

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """As many images as clusters; NotApplicable where one round is all there is."""
        published = Published.of(view)
        restorer = Restorer.of(view, prepared)
        members = Members.of(self._seen(view, published), published.labels, float(restorer.largest))
        places = self._likeness(view, published.hidden)(members)
        claims = {"places": fewer(places)}
        if self.config.knows("clusters"):
            grouped, members = self._told(view, members)
        else:
            grouped = group(places, members, published, told=self.config.count == "told")
        progress(1, 2, f"{len(grouped.kinds)} clusters")
        images = restorer.images(heaps(members, places, grouped, self.config.members, view.classes))
        return Reconstruction(
            images=view.scale.clamp(images),
            claims=claims
            | {
                "clusters": grouped.numbers.view(-1, 1),
                "shares": members.share.view(-1, 1),
            },
            diagnostics=_diagnostics(grouped, published, prepared),
        )

    def _seen(self, view: View, published: Published) -> Tensor:
        """[m, *shape]; without masks where the masks are handed over."""
        if not self.config.knows("signs") or not published.hidden:
            return published.seen
        rows = view.encodings.flatten(0, 1).clone(memory_format=torch.contiguous_format)
        flip_signs(rows, view.masks.flatten(0, 1))
        return rows

    def _likeness(self, view: View, hidden: bool) -> Likeness:
        """Learned from absolute values where signs are hidden, even if they are then told."""
        unmasked = hidden and self.config.knows("signs")
        return likeness_of(view, self.config.similarity, folded=unmasked)

    def _told(self, view: View, members: Members) -> tuple[Grouped, Members]:
        """True clusters: by the private image of the leading class that weighs most."""
        weights, sources = view.weights.flatten(0, 1), view.sources.flatten(0, 1)
        owner = true_leaders(weights, sources, members.leading, view)
        if self.config.knows("weights"):
            own = (sources == owner.view(-1, 1)) * weights
            members = members.with_shares(own.sum(1))
        present, numbers = owner[owner >= 0].unique(return_inverse=True)
        kinds = members.leading.new_zeros(len(present))
        kinds[numbers] = members.leading[owner >= 0]
        placed = torch.full_like(owner, -1)
        placed[owner >= 0] = numbers
        return Grouped(placed, kinds), members


def _diagnostics(
    grouped: Grouped, published: Published, prepared: Mapping[str, Tensor]
) -> Mapping[str, float]:
    """What was found, and how much of an SSIM is the class's alone: that is no leak."""
    sizes = grouped.numbers[grouped.numbers >= 0].bincount().float()
    return {
        "clusters_found": float(len(grouped.kinds)),
        "clusters_wanted": float(published.n),
        "members_mean": float(sizes.mean()),
        "public_ssim": float(prepared["exam"]),
        "public_ssim_of_class": float(prepared["blind"]),
    }


def true_leaders(weights: Tensor, sources: Tensor, leading: Tensor, view: View) -> Tensor:
    """[m] the heaviest private image of each row whose class is the row's leading one.

    Classes of images follow from the classes that lead where they weigh most.
    """
    n = view.n_private
    own = torch.where(sources < n, weights, weights.new_zeros(()))
    top = own.argmax(1, keepdim=True)
    heaviest = sources.gather(1, top).squeeze(1)
    votes = weights.new_zeros(n, view.classes)
    votes.index_put_((heaviest, leading), own.gather(1, top).squeeze(1), accumulate=True)
    return leading_sources(weights, sources, votes.argmax(1), leading)


def group(places: Tensor, members: Members, published: Published, *, told: bool) -> Grouped:
    """k-medoids among the encodings of each leading class, as many as the class has images.

    Where that is not `told`, as many as there seem to be, and no more in all than a round has
    rows: an image leads in about one encoding of a round.
    """
    counts = images_of_classes(published.labels, published.n, published.privates)
    numbers = torch.full_like(members.leading, -1)
    kinds: list[Tensor] = []
    for kind in members.leading.unique():
        rows = (members.leading == kind).nonzero().squeeze(1)
        count = int(counts[kind])
        if told and not count:
            continue
        size = len(rows) // count if told else published.rounds
        found = clustered(places[rows], max(2, size), count if told else None)
        numbers[rows] = found.numbers + sum(map(len, kinds))
        kinds.append(kind.expand(len(found)))
    return largest(Grouped(numbers, torch.cat(kinds)), published.n)


def largest(grouped: Grouped, most: int) -> Grouped:
    """The `most` clusters that have most members; the encodings of others are in none."""
    count = len(grouped.kinds)
    sizes = grouped.numbers[grouped.numbers >= 0].bincount(minlength=count)
    kept = sizes.argsort(descending=True, stable=True)[:most].sort().values
    renamed = grouped.numbers.new_full((count + 1,), -1)  # the last one is of -1, which is none
    renamed[kept] = torch.arange(len(kept), device=kept.device)
    return Grouped(renamed[grouped.numbers], grouped.kinds[kept])


def heaps(members: Members, places: Tensor, grouped: Grouped, most: int, classes: int) -> Heap:
    """Of each cluster the `most` members in which the image weighs most."""
    chosen = [best(members, grouped, number, most) for number in range(len(grouped.kinds))]
    widest = max(map(len, chosen))
    rows = torch.stack([torch.cat([c, c.new_full((widest - len(c),), -1)]) for c in chosen])
    there, kept = rows >= 0, rows.clamp(min=0)
    some = members[kept.flatten()]
    seen = some.scaled.unflatten(0, rows.shape) * there.view(*rows.shape, 1, 1, 1)
    kind = one_hot(grouped.kinds, classes).to(seen)
    return Heap(seen, places[kept], members.share[kept] * there, kind)


def best(members: Members, grouped: Grouped, number: int, most: int) -> Tensor:
    """Rows of one cluster, the least disturbed first."""
    rows = (grouped.numbers == number).nonzero().squeeze(1)
    return rows[members.variance[rows].argsort(stable=True)][:most]


def fewer(places: Tensor) -> Tensor:
    """[m, at most 256] places whose inner products are those of places [m, e], nearly."""
    if places.shape[1] <= _CLAIMED:
        return places
    q = min(_CLAIMED, len(places))
    _, _, basis = torch.svd_lowrank(places, q=q, niter=2)
    return places @ basis
