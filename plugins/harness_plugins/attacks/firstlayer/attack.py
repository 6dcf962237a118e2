"""From the gradient of a dense layer to what it was given."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from harness.api import (
    Attack,
    Budget,
    CellFailed,
    Config,
    NotApplicable,
    Progress,
    Reconstruction,
    View,
)

_ALIKE = 1e-3
"""Two units' answers are one image where they differ by less than this share of their norm."""


class FirstLayer(Attack[Config]):
    """Every unit's gradient is a multiple of the input; its bias's gradient says which."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """`batch_size` images of each batch. NotApplicable where no dense layer comes first."""
        name = _first_layer(view)
        weight, bias = (view.gradients[f"{name}.{part}"] for part in ("weight", "bias"))
        size = int(view.protocol.get("batch_size", 1))
        told = [n for n in range(len(bias)) if bool(bias[n].any())]
        if not told:
            raise CellFailed("the first layer's bias has no gradient in any batch")
        found = [
            one_input(weight[n], bias[n])[None] if size == 1 else several(weight[n], bias[n], size)
            for n in told
        ]
        images = torch.cat(found).view(-1, *view.shape)
        batches = [n for n, each in zip(told, found, strict=True) for _ in each]
        return Reconstruction(
            view.scale.clamp(images), batches=torch.tensor(batches, device=images.device)
        )


def _first_layer(view: View) -> str:
    """The name of the dense layer that takes the input as it is."""
    layers = [
        (name, layer)
        for name, layer in view.model.named_modules()
        if not list(layer.children()) and not isinstance(layer, nn.Flatten | nn.Identity)
    ]
    name, layer = layers[0]
    if not isinstance(layer, nn.Linear) or layer.bias is None:
        raise NotApplicable(
            "'firstlayer' reads the gradient of a dense first layer with a bias, and this model "
            f"begins with {type(layer).__name__}"
        )
    if layer.in_features != math.prod(view.shape):
        raise NotApplicable(
            f"the model takes {layer.in_features} values, and targets have {math.prod(view.shape)}"
        )
    return name


def one_input(weight: Tensor, bias: Tensor) -> Tensor:
    """[d] of gradients [units, d] and [units] of one image: least squares over all units.

    An entry that is zero where others of its column are not was pruned, and says nothing.
    """
    weight, bias = weight.double(), bias.double()
    there = (weight != 0).double()
    energy = (bias.square()[:, None] * there).sum(0)
    return ((bias @ weight) / energy.clamp(min=torch.finfo(energy.dtype).tiny)).to(torch.float32)


def several(weight: Tensor, bias: Tensor, size: int) -> Tensor:
    """[at most size, d]: what most units agree on, of gradients of a batch.

    Units that answered to one image alone all tell that image; those that answered to several
    tell mixtures, no two of them the same.
    """
    alive = bias.abs() > 1e-6 * bias.abs().max()
    answers = weight[alive].double() / bias[alive].double()[:, None]
    norms: Tensor = torch.linalg.vector_norm(answers, dim=1)
    near = torch.cdist(answers, answers) <= _ALIKE * torch.maximum(norms[:, None], norms)
    left = torch.ones(len(answers), dtype=torch.bool, device=answers.device)
    chosen: list[Tensor] = []
    while len(chosen) < size and bool(left.any()):
        votes = torch.where(left, (near & left).sum(1), 0)
        # among answers that nobody repeats, the one of the strongest unit
        strength = bias[alive].double().abs() / bias.abs().max().double()
        best = int((votes + 0.5 * strength * left).argmax())
        chosen.append(answers[near[best] & left].mean(0))
        left &= ~near[best]
    return torch.stack(chosen).float()
