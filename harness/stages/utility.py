"""How much was learned: the victim's accuracy on test images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from harness.api import EncodingDefense, Samples, Splits, Stream
from harness.scoring.intervals import proportion_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor, nn

    from harness.stages.stack import Stack

RECOMPUTE_WITH = 4096
"""Public images that BatchNorm statistics are recomputed on, at most."""


class Utility(BaseModel):
    """Accuracies are shares of `n` test images; intervals are Wilson's, at 95 %."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accuracy: float
    """With the defense's own inference, where it has one."""
    interval: tuple[float, float] | None
    accuracy_bn_recomputed: float | None = None
    """Plain inference, BatchNorm statistics recomputed on clean public images."""
    chance: float
    """Of always naming the class most frequent in the test set."""
    n: int
    reference_accuracy: float | None = None
    """Of the same victim trained on the unprotected release."""
    reference_interval: tuple[float, float] | None = None

    def beside(self, reference: Utility) -> Utility:
        """The same, with the accuracy of the victim trained on the unprotected release."""
        return self.model_copy(
            update={
                "reference_accuracy": reference.accuracy,
                "reference_interval": reference.interval,
            }
        )


def utility(
    model: nn.Sequential,
    splits: Splits,
    stack: Stack,
    stream: Stream,
    device: torch.device,
    *,
    embed: Callable[[Tensor], Tensor] | None = None,
) -> Utility:
    """What `model`, on `device` and in evaluation mode, makes of the test images.

    `stream` feeds a defense that encodes before inference; `embed` is the release's space.
    The model is left as it is.
    """
    from harness.stages.inference import correct
    from harness.stages.release import embedded

    test = embedded(splits.test, splits.scale, embed)
    logits = _logits(model, test, splits, stack, stream=stream, device=device, embed=embed)
    right = correct(logits, test.labels)
    return Utility(
        accuracy=right / len(test),
        interval=proportion_interval(right, len(test)),
        accuracy_bn_recomputed=_recomputed_accuracy(model, test, splits, device, embed),
        chance=test.labels.bincount().max().item() / len(test),
        n=len(test),
    )


def _logits(
    model: nn.Sequential,
    test: Samples,
    splits: Splits,
    stack: Stack,
    *,
    stream: Stream,
    device: torch.device,
    embed: Callable[[Tensor], Tensor] | None,
) -> Tensor:
    from harness.stages.inference import outputs
    from harness.stages.release import embedded

    if stack.encoding is None or _infers_plainly(stack.encoding[1]):
        return outputs(model, test.images, device)
    defense, rng = stack.encoding[1], stream.stream(what="inference")
    private, public = (
        embedded(part, splits.scale, embed).map(lambda images: images.to(device))
        for part in (splits.private, splits.public)
    )
    return outputs(
        lambda images: defense.infer(model, images, private, public, rng), test.images, device
    )


def _infers_plainly(defense: EncodingDefense[Any]) -> bool:
    return type(defense).infer is EncodingDefense.infer


def _recomputed_accuracy(
    model: nn.Sequential,
    test: Samples,
    splits: Splits,
    device: torch.device,
    embed: Callable[[Tensor], Tensor] | None,
) -> float | None:
    """Plain accuracy with clean BatchNorm statistics; None without BatchNorm or public images."""
    from harness.stages.inference import correct, outputs
    from harness.stages.release import embedded

    if not _has_batchnorm(model) or len(splits.public) < 2:
        return None
    public = embedded(splits.public[:RECOMPUTE_WITH], splits.scale, embed)
    clean = with_statistics_of(model, public.images, device)
    return correct(outputs(clean, test.images, device), test.labels) / len(test)


def _has_batchnorm(model: nn.Module) -> bool:
    from torch.nn.modules.batchnorm import _BatchNorm

    return any(isinstance(module, _BatchNorm) for module in model.modules())


def with_statistics_of(model: nn.Sequential, images: Tensor, device: torch.device) -> nn.Sequential:
    """A copy of `model` whose running BatchNorm statistics are averages over `images`."""
    import copy

    from torch.optim.swa_utils import update_bn

    from harness.stages.training import spans

    copied = copy.deepcopy(model)
    update_bn((images[span] for span in spans(len(images), 256)), copied, device)
    return copied.eval()
