"""How much was learned: the victim's accuracy on test images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from harness.api import Samples, Splits, Stream
from harness.scoring.intervals import Interval, proportion_interval, t_interval

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from harness.running.stack import Stack

RECOMPUTE_WITH = 4096
"""Public images that BatchNorm statistics are recomputed on, at most."""

PLAIN, ENCODED, RECOMPUTED = "plain", "encoded", "bn_recomputed"
"""Ways to ask a victim: as it is; through the defense's own inference, which encodes test images;
as it is, with BatchNorm statistics recomputed on clean public images."""


class Accuracy(BaseModel):
    """The share of test images named rightly, as a mean over trainings.

    The interval, at 95 %, is Wilson's of the test images for one training, and Student's t of the
    trainings for several.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: float
    interval: Interval | None
    trainings: tuple[float, ...]


class Utility(BaseModel):
    """Accuracies on `n` test images, by the way the victim is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    accuracy: float
    """With the defense's own inference."""
    interval: Interval | None
    inference: str = PLAIN
    """What the defense's own inference is."""
    accuracies: dict[str, Accuracy] = {}
    """By inference: `plain`, `encoded`, `bn_recomputed`, as far as they apply."""
    chance: float
    """Of always naming the class most frequent in the test set."""
    n: int
    reference_accuracy: float | None = None
    """Of the same victim trained as long on unprotected images, asked plainly."""
    reference_interval: Interval | None = None
    reference_accuracies: dict[str, Accuracy] = {}

    @property
    def own_first(self) -> list[tuple[str, Accuracy]]:
        """Accuracies by inference, the defense's own before the others, whatever JSON sorted."""
        order = {PLAIN: 0, ENCODED: 1, RECOMPUTED: 2} | {self.inference: -1}
        return sorted(self.accuracies.items(), key=lambda item: order.get(item[0], len(order)))


class Right(BaseModel):
    """What one trained victim got right: counts out of `n`, by the way it was asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inference: str
    counts: dict[str, int]
    chance: float
    n: int


def summed_up(own: Sequence[Right], reference: Sequence[Right]) -> Utility:
    """One utility of a victim's trainings, beside those on unprotected images."""
    first, accuracies, unprotected = own[0], _accuracies(own), _accuracies(reference)
    return Utility(
        accuracy=accuracies[first.inference].mean,
        interval=accuracies[first.inference].interval,
        inference=first.inference,
        accuracies=accuracies,
        chance=first.chance,
        n=first.n,
        reference_accuracy=unprotected[PLAIN].mean,
        reference_interval=unprotected[PLAIN].interval,
        reference_accuracies=unprotected,
    )


def _accuracies(trainings: Sequence[Right]) -> dict[str, Accuracy]:
    return {way: _accuracy(trainings, way) for way in trainings[0].counts}


def _accuracy(trainings: Sequence[Right], way: str) -> Accuracy:
    shares = tuple(right.counts[way] / right.n for right in trainings)
    first = trainings[0]
    alone = len(shares) == 1
    interval = proportion_interval(first.counts[way], first.n) if alone else t_interval(shares)
    return Accuracy(mean=sum(shares) / len(shares), interval=interval, trainings=shares)


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
