"""The angle between gradients that are too large to be formed.

The gradient of a layer's weight is G = Σ δₗ aₗᵀ over the positions l that it is applied to, from
what enters there (a) and how the loss pulls at what leaves (δ). Where positions are few,
⟨G, O⟩ = Σ δₗᵀ O aₗ and ‖G‖² = Σ (aₗ·aₘ)(δₗ·δₘ) take less than G does, and so do derivatives.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, unfold
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from harness_plugins.attacks.gradmatch.distances import TINY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from harness_plugins.attacks.gradmatch.distances import Observed
    from harness_plugins.attacks.gradmatch.gradients import Moments

    Layer = "Weighted | Norm"
    Released = Mapping[str, Tensor]
    Products = tuple[Tensor, Tensor]
    Passed = dict[str, list[tuple[Tensor, Tensor]]]


@dataclass(frozen=True)
class Weighted:
    """A convolution or a line; its gradient is `formed` where that is the cheaper way."""

    name: str
    module: nn.Conv2d | nn.Linear
    formed: bool

    @classmethod
    def of(cls, name: str, module: nn.Conv2d | nn.Linear, leaving: Tensor) -> Weighted:
        """`leaving` it [b, out, ...] are the inputs of one problem."""
        out, positions = leaving.shape[1], leaving.numel() // leaving.shape[1]
        taken = module.weight.numel() // out
        return cls(name, module, formed=positions * (taken + out) >= taken * out)

    @property
    def values(self) -> int:
        """Numbers of its gradient that are formed."""
        return self.module.weight.numel() if self.formed else 0

    def products(self, entering: Tensor, pull: Tensor, observed: Released) -> Products:
        """With what was observed [P], and with themselves [P], of the gradients of P problems.

        What enters and how the loss pulls at what leaves are [P·b, ...].
        """
        weight = observed[f"{self.name}.weight"]
        a, delta = _columns(self._patches(entering), len(weight)), _columns(pull, len(weight))
        weight = weight.flatten(2)
        if self.formed:
            found = _products(torch.bmm(delta, a.mT), weight)
        else:
            dot = (torch.bmm(weight, a) * delta).sum((1, 2))
            found = dot, (torch.bmm(a.mT, a) * torch.bmm(delta.mT, delta)).sum((1, 2))
        if self.module.bias is None:
            return found
        return _summed([found, _products(delta.sum(2), observed[f"{self.name}.bias"])])

    def _patches(self, entering: Tensor) -> Tensor:
        """[P·b, columns of the weight, positions]."""
        layer = self.module
        if isinstance(layer, nn.Linear):
            return entering
        padding: Any = layer.padding
        return unfold(entering, layer.kernel_size, layer.dilation, padding, layer.stride)


@dataclass(frozen=True)
class Norm:
    """BatchNorm by running statistics: one factor and one summand a channel."""

    name: str
    module: nn.BatchNorm2d
    values = 0

    def products(self, entering: Tensor, pull: Tensor, observed: Released) -> Products:
        """As those of `Weighted`."""
        mean, var = self.module.running_mean, self.module.running_var
        assert mean is not None
        assert var is not None
        scale = (var + self.module.eps).rsqrt()
        normal = (entering - mean.view(-1, 1, 1)) * scale.view(-1, 1, 1)
        gradients = {"weight": pull * normal, "bias": pull}
        wanted = {kind: observed[f"{self.name}.{kind}"] for kind in gradients}
        return _summed(
            [
                _products(_columns(each, len(wanted[kind])).sum(2), wanted[kind])
                for kind, each in gradients.items()
            ]
        )


@dataclass(frozen=True)
class AngleByLayer:
    """1 − cos of the angle between gradients and those observed, over all layers together.

    Problems do not touch each other in evaluation mode, and go through the model as one batch.
    """

    model: nn.Module
    layers: tuple[Layer, ...]
    observed: Observed

    @classmethod
    def of(
        cls, model: nn.Module, observed: Observed, like: Tensor, *, train: bool
    ) -> AngleByLayer | None:
        """None where a model has layers whose gradients take another form.

        `like`: inputs of one problem [b, *shape].
        """
        if observed.kept is not None or (train and _differs_in_training(model)):
            return None
        model = _frozen(model)
        layers = _layers(model, like)
        return None if layers is None else cls(model, layers, observed)

    @property
    def formed(self) -> int:
        """Numbers of one problem's gradient that are formed."""
        return sum(layer.values for layer in self.layers)

    def __getitem__(self, rows: Tensor) -> AngleByLayer:
        """That of some problems."""
        return replace(self, observed=self.observed[rows])

    def __call__(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Moments]:
        """[P] for inputs [P, b, *shape] and soft labels [P, b, classes]; no moments."""
        wanted = torch.is_grad_enabled()
        with torch.enable_grad():
            inputs = inputs if inputs.requires_grad else inputs.detach().requires_grad_()
            dot, square = self._products(inputs, labels)
        norms = square.clamp(min=TINY).rsqrt() * self.observed.squared_norm.rsqrt()
        angle = 1 - dot * norms
        return angle if wanted else angle.detach(), {}

    def _products(self, inputs: Tensor, labels: Tensor) -> Products:
        passed, logits = _passed(self.model, inputs.flatten(0, 1))
        loss = cross_entropy(logits, labels.flatten(0, 1), reduction="sum") / inputs.shape[1]
        entering, leaving = zip(*(passed[layer.name][0] for layer in self.layers), strict=True)
        pulls = torch.autograd.grad(loss, leaving, create_graph=True)
        each = zip(self.layers, entering, pulls, strict=True)
        observed = self.observed.gradients
        return _summed([layer.products(a, pull, observed) for layer, a, pull in each])


def _summed(each: list[Products]) -> Products:
    dots, squares = zip(*each, strict=True)
    return torch.stack(dots).sum(0), torch.stack(squares).sum(0)


def _products(gradients: Tensor, observed: Tensor) -> Products:
    own = gradients.flatten(1)
    return (own * observed.flatten(1)).sum(1), own.square().sum(1)


def _columns(rows: Tensor, problems: int) -> Tensor:
    """[P·b, k, ...] to [P, k, b·positions]; what has no positions, has one."""
    split = rows.reshape(problems, len(rows) // problems, rows.shape[1], -1)
    return split.transpose(1, 2).flatten(2)


def _frozen(model: nn.Module) -> nn.Module:
    """A copy in evaluation mode that keeps what enters its layers."""
    model = deepcopy(model).eval().requires_grad_(False)
    for module in model.modules():
        if getattr(module, "inplace", False):
            module.inplace = False  # type: ignore[assignment]
    return model


def _differs_in_training(model: nn.Module) -> bool:
    return any(isinstance(module, _BatchNorm | _DropoutNd) for module in model.modules())


def _layers(model: nn.Module, like: Tensor) -> tuple[Layer, ...] | None:
    """All that have parameters; None unless each is of a known kind and applied just once."""
    with torch.no_grad():
        passed, _ = _passed(model, like)
    layers: list[Layer] = []
    for name, each in passed.items():
        layer = _layer(name, model.get_submodule(name), [leaving for _, leaving in each])
        if layer is None:
            return None
        layers.append(layer)
    return tuple(layers)


def _layer(name: str, module: nn.Module, leaving: list[Tensor]) -> Layer | None:
    if len(leaving) != 1:
        return None
    if isinstance(module, nn.BatchNorm2d):
        known = module.affine and module.running_mean is not None
        return Norm(name, module) if known else None
    if isinstance(module, nn.Linear):
        return Weighted.of(name, module, leaving[0]) if leaving[0].ndim == 2 else None
    if isinstance(module, nn.Conv2d):
        plain = module.groups == 1 and module.padding_mode == "zeros"
        plain = plain and not isinstance(module.padding, str)
        return Weighted.of(name, module, leaving[0]) if plain else None
    return None


def _passed(model: nn.Module, inputs: Tensor) -> tuple[Passed, Tensor]:
    """What entered and left each layer that has parameters of its own, and the logits."""
    passed: Passed = {
        name: []
        for name, module in model.named_modules()
        if any(True for _ in module.parameters(recurse=False))
    }

    def keep(name: str) -> Any:
        return lambda _, inputs, output: passed[name].append((inputs[0], output))

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in passed]
    try:
        logits = model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return passed, logits
