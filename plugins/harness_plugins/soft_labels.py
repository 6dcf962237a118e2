"""Hard labels to the soft ones that encodings carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.functional import one_hot

if TYPE_CHECKING:
    from torch import Tensor

    from harness.api import Samples, SamplesOnDemand


def one_hot_labels(samples: SamplesOnDemand, public: Samples) -> Tensor:
    """[n, classes] float32; there are as many classes as either pool's labels need."""
    highest = max(int(labels.max()) for labels in (samples.labels, public.labels) if len(labels))
    return one_hot(samples.labels, highest + 1).float()
