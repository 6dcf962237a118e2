"""What was released, rebuilt by whoever holds no truth: a victim from its weights, an encoder."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from harness.api import CellFailed, Encoded, Samples, Secrets, UsageError, Victim
from harness.api.errors import nearest
from harness.rng import KeyedStream, seeded


def cut_at(model: nn.Sequential, cut: str) -> tuple[nn.Sequential, nn.Sequential]:
    """(h, g) of g(h(x)), sharing the model's weights; h ends with the block named `cut`."""
    blocks = dict(model.named_children())
    names = list(blocks)
    if cut not in names:
        raise UsageError(
            f"the victim has no block '{cut}' to cut after.{nearest(cut, names)} "
            f"Its blocks, in order: {', '.join(names)}."
        )
    end = names.index(cut) + 1
    parts = names[:end], names[end:]
    h, g = (nn.Sequential(OrderedDict((name, blocks[name]) for name in part)) for part in parts)
    return h, g


def restore(
    victim: Victim[Any],
    shape: tuple[int, ...],
    classes: int,
    state: Mapping[str, Tensor],
    *,
    cut: bool = False,
) -> nn.Sequential:
    """The victim with this very state, on the CPU in evaluation mode.

    With `cut` only h, its blocks up to its recipe's cut, which the state is then of.
    """
    with seeded(KeyedStream(b""), torch.device("cpu")):
        model = victim.build(shape, classes)
    if cut:
        model, _ = cut_at(model, victim.config.cut)
    try:
        model.load_state_dict(dict(state), strict=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise CellFailed(f"the stored weights are not this victim's: {reason}") from error
    return model.eval()


def plain(private: Samples, classes: int) -> Encoded:
    """What a stack without an encoding defense makes of images: the images."""
    n = len(private)
    own = Secrets(weights=torch.ones(n, 1), sources=torch.arange(n).view(n, 1))
    return Encoded(private.images, one_hot(private.labels, classes).float(), own)
