"""A module's outputs for many inputs, batch by batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from harness.running.training import spans

BATCH = 512


@torch.no_grad()
def outputs(module: Callable[[Tensor], Tensor], images: Tensor, device: torch.device) -> Tensor:
    """`module` of `images` [n,*shape], computed on `device`, returned on the CPU as float32."""
    batches = [module(images[span].to(device)) for span in spans(len(images), BATCH)]
    return torch.cat([batch.float().cpu() for batch in batches])


def correct(logits: Tensor, labels: Tensor) -> int:
    """How many rows of `logits` [n,classes] are largest at their label [n]."""
    return int((logits.argmax(dim=1) == labels).sum())
