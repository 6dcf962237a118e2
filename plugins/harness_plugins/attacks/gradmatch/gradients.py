"""The gradients of many independent batches at once, as one differentiable graph."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.func import functional_call, grad, replace_all_batch_norm_modules_, vmap
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


Moments = dict[str, tuple["Tensor", "Tensor"]]
"""Mean and variance by layer."""


@dataclass(frozen=True)
class Taken:
    """What P batches give.

    `gradients` by parameter [P, *shape]; `moments` by BatchNorm layer: mean and biased variance
    [P, channels] of what enters it.
    """

    gradients: Mapping[str, Tensor]
    moments: Moments


class BatchedGradients:
    """Gradients of the soft-label cross entropy of one model at many batches (`torch.func`).

    In `train` mode every batch is normalised by its own statistics, else by the running ones.
    The model that is handed in stays as it is. Moments are taken where they are `watched`.
    """

    def __init__(self, model: nn.Module, *, train: bool, watched: bool = True) -> None:
        model = deepcopy(model).train(train).requires_grad_(False)
        if train:
            replace_all_batch_norm_modules_(model)
        self.model = model
        self.parameters = dict(model.named_parameters())
        norms = {n: m for n, m in model.named_modules() if isinstance(m, _BatchNorm)}
        self._layers = norms if watched else {}
        self._single = grad(self._loss, has_aux=True)
        self._vectorised = vmap(self._single, in_dims=(None, 0, 0), randomness="different")

    def __call__(self, inputs: Tensor, labels: Tensor) -> Taken:
        """Of inputs [P, b, *shape] and soft labels [P, b, classes]; differentiable in both."""
        if len(inputs) > 1:
            return Taken(*self._vectorised(self.parameters, inputs, labels))
        gradients, moments = self._single(self.parameters, inputs[0], labels[0])
        alone = {name: gradient.unsqueeze(0) for name, gradient in gradients.items()}
        return Taken(alone, {n: (m.unsqueeze(0), v.unsqueeze(0)) for n, (m, v) in moments.items()})

    def _loss(
        self, parameters: Mapping[str, Tensor], inputs: Tensor, labels: Tensor
    ) -> tuple[Tensor, Moments]:
        moments: Moments = {}
        handles = [
            layer.register_forward_pre_hook(_watch(name, moments))
            for name, layer in self._layers.items()
        ]
        try:
            logits = functional_call(self.model, dict(parameters), (inputs,))
        finally:
            for handle in handles:
                handle.remove()
        return cross_entropy(logits, labels), moments


def _watch(name: str, moments: Moments) -> Any:
    def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        entering = inputs[0]
        dims = [d for d in range(entering.ndim) if d != 1]
        var, mean = torch.var_mean(entering, dim=dims, correction=0)
        moments[name] = mean, var

    return hook


def running_moments(model: nn.Module) -> Moments:
    """By layer, the mean and variance that BatchNorm kept from training."""
    return {
        name: (layer.running_mean.clone(), layer.running_var.clone())
        for name, layer in model.named_modules()
        if isinstance(layer, _BatchNorm)
        and layer.running_mean is not None
        and layer.running_var is not None
    }
