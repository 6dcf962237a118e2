"""How well encodings were told apart: pairs, clusters, and the weights read off them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from harness.api import CellFailed, Stream
from harness.scoring.findings import Finding, mean_finding

if TYPE_CHECKING:
    from torch import Tensor

NAMES = frozenset({"places", "clusters", "shares", "publics"})
_AT_ONCE = 100
_LOOKED_AT = 1000
"""Rows that are compared with all others, drawn where there are more: AUC to .001 and better."""
_DEALS = 5
_NAMED = 1e-5
"""A share of a label below this is rounding."""


@dataclass(frozen=True)
class ClusterFacts:
    """The truth of all rows: `sources` and `weights` [rows, k] of each; private ones are < `n`.

    The others are those of `publics` public images. `labels` [rows, classes] were published, and
    `classes` [n] are the private images' own: what labels tell, no attack needs to find out, so
    chance is what a guess with labels reaches.
    """

    sources: Tensor
    weights: Tensor
    labels: Tensor
    classes: Tensor
    n: int
    publics: int
    stream: Stream

    @cached_property
    def kinds(self) -> Tensor:
        """[rows] int64: rows whose labels name the same classes are of one kind."""
        import torch

        kinds: Tensor = torch.unique(self.labels > _NAMED, dim=0, return_inverse=True)[1]
        return kinds

    def private_weights(self) -> Tensor:
        """W [rows, n] of private images, with its zeros."""
        private = self.sources < self.n
        weights = self.weights.where(private, 0.0)
        dense = weights.new_zeros(len(weights), self.n)
        return dense.scatter_add_(1, self.sources.where(private, 0), weights)


def cluster_findings(claims: Mapping[str, Tensor], facts: ClusterFacts) -> dict[str, Finding]:
    """What claims of these `NAMES` are worth; CellFailed where one is malformed."""
    found: dict[str, Finding] = {}
    if "places" in claims:
        places = _checked_places(claims["places"], facts)
        found |= _pair_aucs(places, facts) | _gram_correlation(places, facts)
    if "shares" in claims and "clusters" not in claims:
        raise CellFailed("the attack claims shares without the clusters that they are of")
    if "clusters" in claims:
        clusters = _checked_numbers("clusters", claims["clusters"], len(facts.sources), facts)
        found |= _memberships(clusters, claims.get("shares"), facts)
    if "publics" in claims:
        publics = _checked_numbers("publics", claims["publics"], facts.publics, facts)
        found |= _publics_found(publics, facts)
    return found


def _checked_places(places: Tensor, facts: ClusterFacts) -> Tensor:
    rows = len(facts.sources)
    if places.ndim != 2 or len(places) != rows:
        raise CellFailed(
            f"the attack claims places of shape {tuple(places.shape)}; wanted {rows} vectors"
        )
    if not bool(places.isfinite().all()):
        raise CellFailed("the attack claims places that are not all finite")
    return places.detach().cpu().float()


def _checked_numbers(name: str, numbers: Tensor, below: int, facts: ClusterFacts) -> Tensor:
    rows = len(facts.sources)
    if numbers.ndim != 2 or len(numbers) != rows or numbers.is_floating_point():
        raise CellFailed(
            f"the attack claims {name} of shape {tuple(numbers.shape)} and type "
            f"{numbers.dtype}; wanted whole numbers, {rows} rows of them"
        )
    if bool((numbers < -1).any()) or bool((numbers >= below).any()):
        raise CellFailed(f"the attack claims {name} that are not between -1 and {below - 1}")
    return numbers.detach().cpu().long()


def _pair_aucs(places: Tensor, facts: ClusterFacts) -> dict[str, Finding]:
    """How often another encoding of the same image looks nearer than one of other images.

    The mean over rows of each row's AUC, among all rows and among those of its kind; rows
    without another of the same image there, or with no others, are left out. By chance: that of
    labels alone, and a half.
    """
    import torch
    from torch.nn.functional import normalize

    looked = facts.stream.stream(use="pairs").permutation(len(places))[:_LOOKED_AT]
    told = normalize(facts.labels.float())
    blocks = torch.split(looked, _AT_ONCE)
    among_all, by_labels, within = (
        _there(torch.cat([_auc_of(block, seen, facts, of_kind=of_kind) for block in blocks]))
        for seen, of_kind in ((places, False), (told, False), (places, True))
    )
    found: dict[str, Finding] = {}
    if len(among_all):
        chance = float(by_labels.mean())
        found |= mean_finding("pair_auc", among_all, chance, facts.stream, "pair_auc")
    if len(within):
        found |= mean_finding("pair_auc_within", within, 0.5, facts.stream, "pair_auc_within")
    return found


def _gram_correlation(places: Tensor, facts: ClusterFacts) -> dict[str, Finding]:
    """How far products of places follow what weight encodings share: W W' of private images.

    The mean over rows of each one's correlation with the true row of W W', itself left out; rows
    in which nothing varies are left out. By chance: that of labels alone.
    """
    import torch

    looked = facts.stream.stream(use="pairs").permutation(len(places))[:_LOOKED_AT]
    own, true = facts.labels.float(), facts.private_weights()
    blocks = torch.split(looked, _AT_ONCE)
    told, by_labels = (
        torch.cat([_correlations(block, seen, true) for block in blocks]) for seen in (places, own)
    )
    there = ~(told.isnan() | by_labels.isnan())
    if not bool(there.any()):
        return {}
    chance = float(by_labels[there].mean())
    return mean_finding("gram_correlation", told[there], chance, facts.stream, "gram")


def _correlations(rows: Tensor, places: Tensor, true: Tensor) -> Tensor:
    """[b] of products with the others' `places` [m, e] and `true` weights [m, n]; NaN if none."""
    import torch

    others = torch.ones(len(rows), len(places), dtype=torch.bool)
    others[torch.arange(len(rows)), rows] = False
    pair = [(part[rows] @ part.T)[others].view(len(rows), -1).double() for part in (places, true)]
    one, other = (part - part.mean(1, keepdim=True) for part in pair)
    size = (one.square().sum(1) * other.square().sum(1)).sqrt()
    return (one * other).sum(1) / size.where(size > 0, torch.nan)


def _there(values: Tensor) -> Tensor:
    return values[~values.isnan()]


def _auc_of(rows: Tensor, places: Tensor, facts: ClusterFacts, *, of_kind: bool) -> Tensor:
    """[b] AUC of each of these rows among all others, or those `of_kind`; NaN if there is none."""
    import torch
    from scipy.stats import rankdata

    scores = places[rows] @ places.T
    own = torch.arange(len(rows))
    there = (facts.kinds[rows].view(-1, 1) == facts.kinds) | (not of_kind)
    there[own, rows] = False
    same = _common(facts.sources[rows], facts.sources, facts.n) & there
    left_out = (~there).sum(1).double()
    below = scores.masked_fill(~there, -torch.inf)  # those left out are below all others
    ranks = torch.from_numpy(rankdata(below.numpy(), axis=1))  # from 1, ties at their mean
    true = same.sum(1).double()
    false = there.sum(1).double() - true
    above = (ranks * same).sum(1) - true * (true + 1) / 2 - true * left_out
    auc: Tensor = above / (true * false)
    return auc


def _common(some: Tensor, all_rows: Tensor, n: int) -> Tensor:
    """[a, m] whether two rows hold the same private image."""
    same = some.new_zeros(len(some), len(all_rows)).bool()
    for one in some.T:
        for other in all_rows.T:
            same |= (one.view(-1, 1) == other) & (one < n).view(-1, 1)
    return same


def _memberships(
    clusters: Tensor, shares: Tensor | None, facts: ClusterFacts
) -> dict[str, Finding]:
    """Clusters are taken for the images that they overlap with most, one to one.

    By chance: the same clusters dealt out at random among rows whose labels name the same
    classes, the mean of a few deals.
    """
    images, values = _read(clusters, facts)
    dealt = [_read(clusters[_dealt(facts, turn)], facts)[1] for turn in range(_DEALS)]
    found: dict[str, Finding] = {}
    for name, column in values.items():
        each = _there(column)
        if len(each):
            chance = sum(float(_there(deal[name]).mean()) for deal in dealt) / _DEALS
            found |= mean_finding(name, each, chance, facts.stream, name)
    if shares is not None:
        found |= _share_error(images, shares, facts)
    return found


def _dealt(facts: ClusterFacts, turn: int) -> Tensor:
    """[rows] a permutation that leaves the kind of every place as it is."""
    import torch

    drawn = facts.stream.stream(use="dealt", turn=turn).permutation(len(facts.kinds))
    places = facts.kinds.argsort(stable=True)
    taken = drawn[facts.kinds[drawn].argsort(stable=True)]
    order = torch.empty_like(taken)
    order[places] = taken
    return order


def _read(clusters: Tensor, facts: ClusterFacts) -> tuple[Tensor, dict[str, Tensor]]:
    """Clusters as images [rows, q], -1 where one is no image's or there is none; values by row.

    Those are the share of a row's clusters that are right (NaN where it has none), the share of
    its private images that were found, of as many as it could name, and whether all of these were.
    """
    images = _as_images(clusters, facts)
    private = facts.sources < facts.n
    right = (images.unsqueeze(2) == facts.sources.unsqueeze(1)) & private.unsqueeze(1)
    hits, claimed = right.any(2).sum(1).double(), (clusters >= 0).sum(1).double()
    there = private.sum(1).clamp(max=clusters.shape[1]).double()
    found = right.any(1).sum(1).double() / there
    return images, {
        "cluster_purity": hits / claimed,
        "memberships_found": found,
        "encodings_assigned": (found >= 1).double(),
    }


def _as_images(clusters: Tensor, facts: ClusterFacts) -> Tensor:
    """[rows, q] the private image that each cluster is matched with."""
    import torch
    from scipy.optimize import linear_sum_assignment

    numbers, dense = torch.unique(clusters, return_inverse=True)
    overlap = torch.zeros(len(numbers), facts.n, dtype=torch.float64)
    for one in dense.T:
        for image in facts.sources.T:
            held = image < facts.n
            overlap.index_put_((one[held], image[held]), overlap.new_ones(()), accumulate=True)
    overlap[numbers < 0] = -1.0
    rows, images = linear_sum_assignment(overlap.numpy(), maximize=True)
    named = torch.full((len(numbers),), -1)
    kept = torch.from_numpy(overlap.numpy()[rows, images] > 0)
    named[torch.from_numpy(rows)[kept]] = torch.from_numpy(images)[kept]
    return named[dense]


def _share_error(images: Tensor, shares: Tensor, facts: ClusterFacts) -> dict[str, Finding]:
    """Mean absolute error of the weights of `images` [rows, q] rightly found.

    By chance: that of what labels tell, a class's share divided evenly among its images.
    """
    if shares.shape != images.shape or not bool(shares.isfinite().all()):
        raise CellFailed(
            f"the attack claims shares of shape {tuple(shares.shape)}; wanted finite ones, "
            f"{tuple(images.shape)} as its clusters"
        )
    shown = images.unsqueeze(2)
    row, slot, place = ((shown == facts.sources.unsqueeze(1)) & (shown >= 0)).nonzero().T
    if not len(row):
        return {}
    true = facts.weights[row, place].double()
    error = (shares.cpu().double()[row, slot] - true).abs()
    chance = float((_told_by_labels(facts)[row, place] - true).abs().mean())
    return mean_finding("share_error", error, chance, facts.stream, "shares")


def _told_by_labels(facts: ClusterFacts) -> Tensor:
    """[rows, k] float64: each private image's part of its class's share of the label."""
    private = facts.sources < facts.n
    named = facts.classes[facts.sources.where(private, 0)].masked_fill(~private, -1)
    times = (named.unsqueeze(2) == named.unsqueeze(1)).sum(2)
    shares: Tensor = facts.labels.gather(1, named.clamp(min=0)).double() / times
    return shares


def _publics_found(publics: Tensor, facts: ClusterFacts) -> dict[str, Finding]:
    """Share of the public images in each encoding that are named; by chance, drawn at random."""
    own = facts.sources >= facts.n
    named = ((facts.sources - facts.n).unsqueeze(2) == publics.unsqueeze(1)).any(2) & own
    found = _there(named.sum(1).double() / own.sum(1))
    if not len(found):
        return {}
    chance = min(1.0, publics.shape[1] / facts.publics)
    return mean_finding("publics_found", found, chance, facts.stream, "publics")
