"""From sums over a class to the image that is the best guess for each of its members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from harness.api import (
    Attack,
    Budget,
    Channel,
    Config,
    NotApplicable,
    Progress,
    Reconstruction,
    View,
)

if TYPE_CHECKING:
    from torch import Tensor


_RIDGE = 1e-3
"""Of the mean variance of what is summed: keeps the regression back from fitting rounding."""
_IMAGES = 5000
_BATCH = 512


class ClassSums(Attack[Config]):
    """One answer for each class, given to all of its images."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """Named where the images' classes are known; else as many of each as the counts say."""
        if len(view.public) < 2:
            raise NotApplicable("'classsums' learns from public images what sums say of images.")
        means, gain = class_images(view)
        answers = view.scale.clamp(means)
        told = {"gain": gain}
        claims = {"class_means": answers}
        if view.has(Channel.BATCH_LABELS):
            of = view.batch_labels[0].argmax(1)
            named = torch.arange(len(of))
            return Reconstruction(answers[of], targets=named, claims=claims, diagnostics=told)
        of = shared_out(view.statistics.counts.cpu(), view.n_private).to(answers.device)
        return Reconstruction(answers[of], claims=claims, diagnostics=told)


def class_images(view: View) -> tuple[Tensor, float]:
    """[classes, *shape] posterior mean of an image of each class; the mean share that is believed.

    Without noise, and for a class of one image, that is what the regression makes of its own row.
    """
    sums, public = view.statistics, view.public[:_IMAGES]
    rows = torch.cat([sums.embed(part) for part in torch.split(public.images, _BATCH)])
    flat = public.images.flatten(1)
    labels, classes = public.labels, view.classes
    known = labels.bincount(minlength=classes).to(flat).view(-1, 1)
    images, inner = (_means(part, labels, known) for part in (flat, rows))
    left = rows - inner[labels]
    spread = left.square().mean(0).clamp(min=torch.finfo(left.dtype).tiny)
    sizes = sums.counts.clamp(min=max(1.0, sums.count_noise)).view(-1, 1)
    sampled = spread / sizes
    error = spread / known.clamp(min=1) + sums.noise**2 / sizes.square()
    gain = sampled / (sampled + error)
    moved = gain * (sums.sums / sizes - inner)
    back = _regression(left, flat - images[labels])
    found = images + moved @ back
    return found.view(classes, *view.shape), float(gain.mean())


def _means(rows: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """[classes, d] means of rows [n, d]; where there is none of a class, the mean of all."""
    sums = rows.new_zeros(len(known), rows.shape[1]).index_add_(0, labels, rows)
    return torch.where(known > 0, sums / known.clamp(min=1), rows.mean(0))


def _regression(rows: Tensor, images: Tensor) -> Tensor:
    """[q, d] by ridge, from rows [n, q] to images [n, d]."""
    gram = rows.T @ rows
    ridge = _RIDGE * gram.diagonal().mean().clamp(min=torch.finfo(gram.dtype).tiny)
    system = gram + ridge * torch.eye(len(gram), device=gram.device)
    return torch.linalg.solve(system, rows.T @ images)


def shared_out(counts: Tensor, n: int) -> Tensor:
    """[n] classes in proportion to counts [classes], those of the largest remainders first."""
    shares = counts.double().clamp(min=0)
    shares = (
        shares * n / shares.sum() if shares.sum() > 0 else torch.full_like(shares, n / len(shares))
    )
    whole = shares.floor()
    more = (shares - whole).argsort(descending=True, stable=True)[: n - int(whole.sum())]
    whole[more] += 1
    return torch.repeat_interleave(torch.arange(len(whole)), whole.long())
