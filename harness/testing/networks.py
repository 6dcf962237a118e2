"""Checks of victims and of spaces: networks that classify, and networks that extract features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.api import HarnessError, Recipe, UsageError
from harness.rng import KeyedStream
from harness.running.training import fresh, state
from harness.sandbox.rebuilding import cut_at
from harness.testing.datasets import CASES, CLASSES
from harness.testing.subject import Subject, Unanswered, Violation, refusal
from harness.testing.watch import (
    META,
    different,
    disciplined,
    forgetful,
    on_meta,
    same,
    unmoved,
    untouched,
)
from harness.testing.workbench import KEY

INPUT = (3, 32, 32)
BATCH = 4
CPU = torch.device("cpu")


def _built(subject: Subject, shape: tuple[int, ...] = INPUT) -> nn.Sequential:
    """The network with weights drawn as the engine draws them."""
    return fresh(subject.build(), shape, len(CLASSES), KeyedStream(KEY), device=CPU)


def builds(subject: Subject) -> str:
    """A recipe, named blocks, and logits of each image."""
    if not isinstance(subject.plugin.config, Recipe):
        raise Violation("its config does not extend Recipe", "derive it from harness.api.Recipe")
    model = _built(subject)
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
    model = _built(subject)
    try:
        h, g = cut_at(model, cut)
    except UsageError as error:
        raise Violation(str(error)) from error
    if not len(g):
        raise Violation(f"nothing comes after the cut '{cut}'")
    return f"after {cut}: {len(h)} blocks before, {len(g)} behind"


def builds_the_same(subject: Subject) -> str:
    """The same seed gives the same weights."""
    wrong = different(state(_built(subject)), state(_built(subject)))
    if wrong:
        raise Violation(f"two networks under one seed differ in {', '.join(wrong)}")
    return "one seed gives the same weights"


def classifies_odd_images(subject: Subject, case: str) -> str:
    """Images of any size are classified, or refused in a sentence of the victim's own."""
    shape = CASES[case].shape
    try:
        _require_logits(_built(subject, shape), shape)
    except HarnessError as error:
        return refusal(error)
    return f"classifies {list(shape)}"


def learns(subject: Subject) -> str:
    """Every weight that can be trained has a gradient."""
    model = _built(subject)
    model.train()
    images = torch.randn(BATCH, *INPUT, generator=torch.Generator().manual_seed(3))
    cross_entropy(model(images), torch.arange(BATCH) % len(CLASSES)).backward()  # type: ignore[no-untyped-call]
    idle = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    if idle:
        raise Violation(f"no gradient reaches {', '.join(idle)}")
    return f"{sum(p.requires_grad for p in model.parameters())} tensors have gradients"


def builds_and_forgets(subject: Subject) -> str:
    """Networks that are gone leave nothing behind."""
    return forgetful(lambda _: _built(subject))


def classifies_on_any_device(subject: Subject) -> str:
    """It works on the device of its weights and images."""
    images = torch.zeros(2, *INPUT, device=META)
    return disciplined(subject, lambda: on_meta(_built(subject))(images))


def _images(shape: tuple[int, ...] = INPUT) -> Tensor:
    """Images [b, c, h, w] in [0,1]."""
    return torch.rand(BATCH, *shape, generator=torch.Generator().manual_seed(11))


def _embedded(subject: Subject, images: Tensor) -> Tensor:
    if not subject.spec.extracts:
        raise Unanswered("encodings live in the images themselves")
    features: Tensor = subject.build().embed(images, subject.assets)
    floats = features.dtype in (torch.float32, torch.float16)
    if not floats or features.ndim != 4 or len(features) != len(images):
        raise Violation(
            f"embed returned {list(features.shape)} {features.dtype}; "
            f"wanted [{len(images)}, c, h, w] float32 or float16"
        )
    if not bool(features.isfinite().all()):
        raise Violation("embed returned features that are not all finite")
    return features


def embeds(subject: Subject) -> str:
    """Feature maps of images, which stay as they were."""
    images = _images()
    with untouched(images=images):
        features = _embedded(subject, images)
    return f"{list(images.shape)} to {list(features.shape)}"


def embeds_the_same(subject: Subject) -> str:
    """The same images have the same features."""
    if not same(_embedded(subject, _images()), _embedded(subject, _images())):
        raise Violation("the same images have other features the second time")
    return "the same images have the same features"


def leaves_the_world_alone(subject: Subject) -> str:
    """No global state is moved."""
    return unmoved(lambda: _embedded(subject, _images()))


def embeds_odd_images(subject: Subject, case: str) -> str:
    """Images of any size have features."""
    shape = CASES[case].shape
    images = torch.full((BATCH, *shape), 0.5) if case == "constant" else _images(shape)
    features = _embedded(subject, images)
    return f"{list(shape)} to {list(features.shape[1:])}"


def embeds_and_forgets(subject: Subject) -> str:
    """Batches leave nothing behind, but for the network."""
    _embedded(subject, _images())
    space, assets = subject.build(), subject.assets
    return forgetful(lambda _: space.embed(_images(), assets))


def embeds_on_any_device(subject: Subject) -> str:
    """It works on the device of its images."""
    images = torch.zeros(2, *INPUT, device=META)
    return disciplined(subject, lambda: subject.build().embed(images, subject.assets))
