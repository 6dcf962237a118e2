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
from harness_plugins.local_training import as_gradients, together

_ALIKE = 1e-3
"""Two units' answers are one image where they differ by less than this share of their norm."""
_FAINT, _FAINT_STEP = 1e-6, 1e-4
"""Units whose bias got less than this share of the greatest are left out, and so are steps from one
unit to the next, which are rounded where both got much."""


class FirstLayer(Attack[Config]):
    """Every unit's gradient is a multiple of the input; its bias's gradient says which."""

    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """The images of each batch or update. NotApplicable where no dense layer comes first.

        What an update of one image adds to a unit is a multiple of it, after any number of steps.
        """
        view = as_gradients(view)
        name = _first_layer(view)
        weight, bias = (view.gradients[f"{name}.{part}"] for part in ("weight", "bias"))
        order = _planted_order(view.model.get_submodule(name))
        size = together(view)
        told = [n for n in range(len(bias)) if bool(bias[n].any())]
        if not told:
            raise CellFailed("the first layer's bias has no gradient in any batch")
        found = [_inputs(weight[n], bias[n], size, order) for n in told]
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


def _planted_order(layer: nn.Module) -> Tensor | None:
    """Units from the one that answers to most images on, where all have the same weights."""
    weight, bias = dict(layer.named_parameters())["weight"], dict(layer.named_parameters())["bias"]
    if not bool((weight == weight[0]).all()):
        return None
    return bias.argsort(descending=True, stable=True)


def _inputs(weight: Tensor, bias: Tensor, size: int, order: Tensor | None) -> Tensor:
    """[at most size, d] of gradients [units, d] and [units]."""
    if size == 1:
        return one_input(weight, bias)[None]
    if order is None:
        return several(weight, bias, size)
    return several(steps(weight[order]), steps(bias[order]), size, faint=_FAINT_STEP)


def steps(gradients: Tensor) -> Tensor:
    """[units, ...]: what each unit got beyond the next one.

    Where units answer to ever fewer images, and pass on the same, that is what the images gave that
    the next one does not answer to (Fowl et al. 2022, Robbing the Fed, equation 6).
    """
    return torch.cat([gradients[:-1] - gradients[1:], gradients[-1:]])


def one_input(weight: Tensor, bias: Tensor) -> Tensor:
    """[d] of gradients [units, d] and [units] of one image: least squares over all units.

    An entry that is zero where others of its column are not was pruned, and says nothing.
    """
    weight, bias = weight.double(), bias.double()
    there = (weight != 0).double()
    energy = (bias.square()[:, None] * there).sum(0)
    return ((bias @ weight) / energy.clamp(min=torch.finfo(energy.dtype).tiny)).to(torch.float32)


def several(weight: Tensor, bias: Tensor, size: int, faint: float = _FAINT) -> Tensor:
    """[at most size, d]: what most units agree on, of gradients of a batch.

    Units that answered to one image alone all tell that image; those that answered to several
    tell mixtures, no two of them the same.
    """
    alive = bias.abs() > faint * bias.abs().max()
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
