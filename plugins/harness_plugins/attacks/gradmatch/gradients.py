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

    from harness_plugins.local_training import LocalTraining


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

    steps = 1
    """Gradients that stand behind one."""

    def __init__(self, model: nn.Module, *, train: bool, watched: bool = True) -> None:
        model = deepcopy(model).train(train).requires_grad_(False)
        if train:
            replace_all_batch_norm_modules_(model)
        self.model = model
        self.parameters = dict(model.named_parameters())
        norms = {n: m for n, m in model.named_modules() if isinstance(m, _BatchNorm)}
        self._layers = norms if watched else {}
        self.single = grad(self._loss, has_aux=True)
        """Of parameters, inputs [b, *shape] and labels [b, classes]: gradients, and moments."""
        self._vectorised = vmap(self.single, in_dims=(None, 0, 0), randomness="different")

    def __call__(self, inputs: Tensor, labels: Tensor) -> Taken:
        """Of inputs [P, b, *shape] and soft labels [P, b, classes]; differentiable in both."""
        if len(inputs) > 1:
            return Taken(*self._vectorised(self.parameters, inputs, labels))
        gradients, moments = self.single(self.parameters, inputs[0], labels[0])
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


class SimulatedUpdates:
    """What P parties' local training makes of a model, as the mean gradients that it followed.

    Every step is differentiated through (Geiping et al. 2020, Inverting Gradients, section 6, and
    Dimitrov et al. 2022, Data Leakage in Federated Averaging, section 4). Images are taken in their
    order, batch after batch and again from the first, because how a party shuffles is its secret.
    """

    def __init__(
        self, model: nn.Module, local: LocalTraining, *, train: bool, watched: bool = True
    ) -> None:
        self._once = BatchedGradients(model, train=train, watched=watched)
        self._local = local
        self.steps = local.steps
        self._vectorised = vmap(self._train, randomness="different")

    def __call__(self, inputs: Tensor, labels: Tensor) -> Taken:
        """As of `BatchedGradients`; moments are means over steps."""
        if len(inputs) > 1:
            return Taken(*self._vectorised(inputs, labels))
        gradients, moments = self._train(inputs[0], labels[0])
        alone = {name: gradient.unsqueeze(0) for name, gradient in gradients.items()}
        return Taken(alone, {n: (m.unsqueeze(0), v.unsqueeze(0)) for n, (m, v) in moments.items()})

    def _train(self, inputs: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Moments]:
        weights = dict(self._once.parameters)
        followed = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        seen: list[Moments] = []
        for rows in self._local.batches():
            taken, moments = self._once.single(weights, inputs[rows], labels[rows])
            weights = {n: weight - self._local.lr * taken[n] for n, weight in weights.items()}
            followed = {n: sums + taken[n] / self.steps for n, sums in followed.items()}
            seen.append(moments)
        return followed, _mean(seen)


def _mean(seen: list[Moments]) -> Moments:
    return {
        name: (
            torch.stack([moments[name][0] for moments in seen]).mean(0),
            torch.stack([moments[name][1] for moments in seen]).mean(0),
        )
        for name in seen[0]
    }
