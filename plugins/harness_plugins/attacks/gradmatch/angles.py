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

from harness_plugins.attacks.gradmatch.distances import TINY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from harness_plugins.attacks.gradmatch.distances import FormedDistance, Observed
    from harness_plugins.attacks.gradmatch.gradients import Moments

    Layer = "Weighted | Norm"
    Released = Mapping[str, Tensor]
    Products = tuple[Tensor, Tensor]
    Passed = dict[str, list[tuple[Any, Tensor]]]

_TOLERANCE = 0.02
"""Of derivatives, relative to their norm: rounding leaves a thousandth."""
_PATTERN = 0.7
"""Radians from one value to the next of the inputs on which both ways are compared."""


@dataclass(frozen=True)
class Weighted:
    """A convolution or a linear layer; its gradient is `formed` where that is cheaper."""

    name: str
    module: nn.Conv2d | nn.Linear
    formed: bool

    @classmethod
    def of(cls, name: str, module: nn.Conv2d | nn.Linear, leaving: Tensor) -> Weighted:
        """`leaving` [b, out, ...] is its output for one problem."""
        out, positions = leaving.shape[1], leaving.numel() // leaving.shape[1]
        taken = module.weight.numel() // out
        return cls(name, module, formed=positions * (taken + out) >= taken * out)

    @property
    def held(self) -> int:
        """Numbers of its gradient that are in memory."""
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
    held = 0

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
    `norm` [P] is that of what was observed.
    """

    model: nn.Module
    layers: tuple[Layer, ...]
    observed: Observed
    norm: Tensor

    @classmethod
    def of(cls, reference: FormedDistance, like: Tensor) -> AngleByLayer | None:
        """The same as `reference`; None where a model is of a kind for which it would not be.

        `like`: inputs of one problem [b, *shape].
        """
        observed = reference.observed
        if observed.kept is not None:
            return None
        squares = [g.flatten(1).square().sum(1) for g in observed.gradients.values()]
        norm = torch.stack(squares).sum(0).clamp(min=TINY).sqrt()
        model = _without_in_place(reference.gradients.model)
        try:
            layers = _layers(model, like, set(observed.gradients))
            angle = None if layers is None else cls(model, layers, observed, norm)
            return angle if angle is not None and _agree(angle, reference, like) else None
        except RuntimeError:  # autograd's: a layer that the loss does not touch, inputs changed
            return None

    @property
    def held(self) -> int:
        """Numbers of one problem's gradient that are in memory."""
        return sum(layer.held for layer in self.layers)

    def __getitem__(self, rows: Tensor) -> AngleByLayer:
        """That of some problems."""
        return replace(self, observed=self.observed[rows], norm=self.norm[rows])

    def __call__(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Moments]:
        """[P] at inputs [P, b, *shape] and soft labels [P, b, classes], and all moments."""
        wanted, problems = torch.is_grad_enabled(), len(inputs)
        with torch.enable_grad():
            inputs = inputs if inputs.requires_grad else inputs.detach().requires_grad_()
            passed, logits = _passed(self.model, inputs.flatten(0, 1))
            loss = cross_entropy(logits, labels.flatten(0, 1), reduction="sum") / inputs.shape[1]
            each = [passed[layer.name][0] for layer in self.layers]
            pulls = torch.autograd.grad(loss, [leaving for _, leaving in each], create_graph=wanted)
        with torch.set_grad_enabled(wanted):
            dot, square = self._summed_products([entering for entering, _ in each], pulls)
            moments = {
                layer.name: _moments(entering, problems)
                for layer, (entering, _) in zip(self.layers, each, strict=True)
                if isinstance(layer, Norm)
            }
            return 1 - dot * square.clamp(min=TINY).rsqrt() / self.norm, moments

    def _summed_products(self, entering: list[Tensor], pulls: tuple[Tensor, ...]) -> Products:
        each, observed = zip(self.layers, entering, pulls, strict=True), self.observed.gradients
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


def _moments(entering: Tensor, problems: int) -> tuple[Tensor, Tensor]:
    """Mean and biased variance [P, channels] of what enters a layer."""
    var, mean = torch.var_mean(_columns(entering, problems), dim=2, correction=0)
    return mean, var


def _without_in_place(model: nn.Module) -> nn.Module:
    """A copy whose modules leave alone what other layers gave them."""
    model = deepcopy(model)
    for module in model.modules():
        if getattr(module, "inplace", False):
            module.inplace = False  # type: ignore[assignment]
    return model


def _agree(angle: AngleByLayer, reference: FormedDistance, like: Tensor) -> bool:
    """Whether both say the same of two problems: models may do what their layers do not tell.

    Weights used by a function, values changed in place, batches normalised as a whole, dropout.
    """
    usable = angle.norm.isfinite().nonzero().flatten()
    if not len(usable):
        return False
    rows = usable[torch.arange(2, device=like.device).clamp(max=len(usable) - 1)]
    inputs = like.new_empty(len(rows), *like.shape)
    places = torch.arange(inputs.numel(), device=like.device, dtype=like.dtype)
    inputs = places.view_as(inputs).mul(_PATTERN).sin().requires_grad_()
    classes = angle.model(like).shape[1]
    labels = like.new_full((len(rows), len(like), classes), 1 / classes)
    found, expected = (d[rows](inputs, labels)[0] for d in (angle, reference))
    pulls, wanted = (torch.autograd.grad(d.sum(), inputs)[0] for d in (found, expected))
    near = (pulls - wanted).norm() <= _TOLERANCE * wanted.norm()
    return bool(near) and bool(((found - expected).abs() <= _TOLERANCE).all())


def _layers(model: nn.Module, like: Tensor, names: set[str]) -> tuple[Layer, ...] | None:
    """All that have parameters; None unless each is of a known kind and applied just once."""
    passed, _ = _passed(model, like.clone().requires_grad_())
    layers: list[Layer] = []
    for name, each in passed.items():
        layer = _layer(name, model.get_submodule(name), each, len(like))
        if layer is None:
            return None
        layers.append(layer)
    owned = {f"{layer.name}.{kind}" for layer in layers for kind in _own(layer.module)}
    return tuple(layers) if owned == names and not _norms_of_batches(model) else None


def _own(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_parameters(recurse=False)]


def _norms_of_batches(model: nn.Module) -> bool:
    """Whether some BatchNorm is no `Norm`: it goes by its batch, or has no parameters."""
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    return any(n.training or n.running_mean is None or not n.affine for n in norms)


def _layer(
    name: str, module: nn.Module, passed: list[tuple[Any, Tensor]], count: int
) -> Layer | None:
    if len(passed) != 1 or not all(isinstance(each, torch.Tensor) for each in passed[0]):
        return None
    entering, leaving = passed[0]
    if not (leaving.requires_grad and len(entering) == len(leaving) == count):
        return None
    if type(module) is nn.BatchNorm2d:
        return Norm(name, module)
    known = (type(module) is nn.Linear and leaving.ndim == 2) or _plain(module)
    return Weighted.of(name, module, leaving) if known else None  # type: ignore[arg-type]


def _plain(module: nn.Module) -> bool:
    """Whether it is a convolution whose input is unfolded as torch does it."""
    if type(module) is not nn.Conv2d or isinstance(module.padding, str):
        return False
    return module.groups == 1 and module.padding_mode == "zeros"


def _passed(model: nn.Module, inputs: Tensor) -> tuple[Passed, Tensor]:
    """What entered and left each layer that has parameters of its own, and the logits."""
    passed: Passed = {name: [] for name, module in model.named_modules() if _own(module)}

    def keep(name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            passed[name].append((inputs[0] if inputs else None, output))

        return hook

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in passed]
    try:
        logits = model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return passed, logits
