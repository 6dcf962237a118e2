"""Checks of victims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from harness.api import HarnessError, Recipe, UsageError
from harness.rng import KeyedStream
from harness.running.train import state
from harness.running.training import fresh
from harness.sandbox.rebuilding import cut_at
from harness.testing.encoding import KEY
from harness.testing.kit import CASES, CLASSES
from harness.testing.refusal import refusal
from harness.testing.result import Violation
from harness.testing.watch import different, forgetful

if TYPE_CHECKING:
    from harness.testing.subject import Subject

INPUT = (3, 32, 32)
BATCH = 4
CPU = torch.device("cpu")


def build(subject: Subject, shape: tuple[int, ...] = INPUT) -> nn.Sequential:
    """The network with weights drawn as the engine draws them."""
    return fresh(subject.build(), shape, len(CLASSES), KeyedStream(KEY), device=CPU)


def builds(subject: Subject) -> str:
    """A recipe, named blocks, and logits of each image."""
    if not isinstance(subject.plugin.config, Recipe):
        raise Violation("its config does not extend Recipe", "derive it from harness.api.Recipe")
    model = build(subject)
    if not isinstance(model, nn.Sequential):
        raise Violation(f"build returned {type(model).__name__}, not an nn.Sequential")
    _require_logits(model, INPUT)
    weights = sum(parameter.numel() for parameter in model.parameters())
    return f"{weights} weights in {', '.join(dict(model.named_children()))}"


def _require_logits(model: nn.Sequential, shape: tuple[int, ...]) -> None:
    """In evaluation mode, whatever the number of images."""
    model.eval()
    for count in (1, BATCH):
        logits = model(torch.zeros(count, *shape))
        if logits.shape != (count, len(CLASSES)) or logits.dtype != torch.float32:
            raise Violation(
                f"{count} images give {list(logits.shape)} {logits.dtype}; "
                f"wanted [{count}, {len(CLASSES)}] float32"
            )


def can_be_cut(subject: Subject) -> str:
    """The recipe's cut is a block, and something comes after it."""
    cut = subject.plugin.config.cut  # type: ignore[attr-defined]
    if not cut:
        return "has no cut: training defenses cannot use it"
    model = build(subject)
    try:
        h, g = cut_at(model, cut)
    except UsageError as error:
        raise Violation(str(error)) from error
    if not len(g):
        raise Violation(f"nothing comes after the cut '{cut}'")
    return f"after {cut}: {len(h)} blocks before, {len(g)} behind"


def deterministic(subject: Subject) -> str:
    """The same seed gives the same weights."""
    wrong = different(state(build(subject)), state(build(subject)))
    if wrong:
        raise Violation(f"two networks under one seed differ in {', '.join(wrong)}")
    return "one seed gives the same weights"


def copes_with(subject: Subject, case: str) -> str:
    """Images of any size are classified, or refused in a sentence of the victim's own."""
    shape = CASES[case].shape
    try:
        _require_logits(build(subject, shape), shape)
    except HarnessError as error:
        return refusal(error)
    return f"classifies {list(shape)}"


def learns(subject: Subject) -> str:
    """Every weight that can be trained has a gradient."""
    model = build(subject)
    model.train()
    images = torch.randn(BATCH, *INPUT, generator=torch.Generator().manual_seed(3))
    cross_entropy(model(images), torch.arange(BATCH) % len(CLASSES)).backward()  # type: ignore[no-untyped-call]
    idle = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    if idle:
        raise Violation(f"no gradient reaches {', '.join(idle)}")
    return f"{sum(p.requires_grad for p in model.parameters())} tensors have gradients"


def forgets(subject: Subject) -> str:
    """Networks that are gone leave nothing behind."""
    return forgetful(lambda _: build(subject))
