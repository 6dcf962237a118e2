"""What one trained victim makes of the test images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.api import Samples, Splits, Stream
from harness.scoring.utility import ENCODED, PLAIN, RECOMPUTED, Right

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from harness.running.stack import Stack

RECOMPUTE_WITH = 4096
"""Public images that BatchNorm statistics are recomputed on, at most."""


def utility(
    model: nn.Sequential, splits: Splits, stack: Stack, stream: Stream, device: torch.device
) -> Right:
    """What `model`, on `device` and in evaluation mode, makes of the test images.

    `stream` feeds a defense that encodes before inference. The model is left as it is.
    """
    from harness.running.inference import correct, outputs
    from harness.running.release import standardised

    test = standardised(splits.test, splits.scale)
    encoded = _encoded_logits(model, test, splits, stack, stream, device)
    logits = {
        **({ENCODED: encoded} if encoded is not None else {}),
        PLAIN: outputs(model, test.images, device),
        **_recomputed_logits(model, test, splits, device),
    }
    return Right(
        inference=PLAIN if encoded is None else ENCODED,
        counts={way: correct(found, test.labels) for way, found in logits.items()},
        chance=test.labels.bincount().max().item() / len(test),
        n=len(test),
    )


def _encoded_logits(
    model: nn.Sequential,
    test: Samples,
    splits: Splits,
    stack: Stack,
    stream: Stream,
    device: torch.device,
) -> Tensor | None:
    """The defense's own inference, batch by batch; None where it asks plainly."""
    from harness.running.inference import outputs
    from harness.running.release import standardised

    if stack.encoding is None or not stack.encoding[1].infers:
        return None
    defense, rng = stack.encoding[1], stream.stream(what="inference")
    private, public = (
        standardised(part, splits.scale).map(lambda images: images.to(device))
        for part in (splits.private, splits.public)
    )
    return outputs(
        lambda images: defense.infer(model, images, private, public, rng), test.images, device
    )


def _recomputed_logits(
    model: nn.Sequential, test: Samples, splits: Splits, device: torch.device
) -> Mapping[str, Tensor]:
    """Plain inference with clean BatchNorm statistics; nothing without BatchNorm."""
    from harness.running.inference import outputs
    from harness.running.release import standardised

    if not _has_batchnorm(model) or len(splits.public) < 2:
        return {}
    public = standardised(splits.public[:RECOMPUTE_WITH], splits.scale)
    clean = with_statistics_of(model, public.images, device)
    return {RECOMPUTED: outputs(clean, test.images, device)}


def _has_batchnorm(model: nn.Module) -> bool:
    from torch.nn.modules.batchnorm import _BatchNorm

    return any(isinstance(module, _BatchNorm) for module in model.modules())


def with_statistics_of(model: nn.Sequential, images: Tensor, device: torch.device) -> nn.Sequential:
    """A copy of `model` whose running BatchNorm statistics are averages over `images`."""
    import copy

    from torch.optim.swa_utils import update_bn

    from harness.running.training import spans

    copied = copy.deepcopy(model)
    update_bn((images[span] for span in spans(len(images), 256)), copied, device)
    return copied.eval()
