"""What a server makes of a release: the base classes of learners, and all that they are given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from harness.api.data import Samples, Scale
from harness.api.plugins import C, Plugin, Progress, Victim
from harness.api.precision import Precision
from harness.api.randomness import Stream
from harness.api.release import Encoder, Statistics
from harness.api.view import Budget

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Encodings(Protocol):
    """Released encodings as a server receives them: round by round, each of them in pieces.

    Nothing holds them all: a learner keeps sums, or reads them again, which gives the same bytes
    in the same order.
    """

    @property
    def rounds(self) -> int:
        """How often each image was encoded."""
        ...

    @property
    def rows(self) -> int:
        """Encodings of one round."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one encoding; a defense may change the size of images."""
        ...

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        """A round's encodings [b, *shape] float32 with their soft labels [b, classes]."""
        ...


@dataclass(frozen=True)
class Lesson:
    """All that a server has. It never had a private image, nor any label but the soft ones.

    Tensors are float32 on `device`, images standardised with `scale`.
    """

    release: Encodings
    public: Samples
    """Public images as they are, not encoded. Nobody says what they show: all labels are 0, so
    that whatever is known of classes was learned from the release."""
    law: Encoder
    """The encoding defense with its resolved parameters; it encodes public images likewise."""
    scale: Scale
    shape: tuple[int, ...]
    """Of one image that the classifier will be asked about."""
    classes: int
    device: torch.device
    rng: Stream
    victim: Victim[Any]
    """The network that the evaluation names, with its recipe."""
    precision: Precision = "float32"
    """What networks are trained in."""
    statistics: Statistics | None = None
    """What left instead of encodings, for a learner that reads statistics: `release` and `law` are
    of encodings, and raise NotApplicable then."""


class Classifier(ABC):
    """What was learned."""

    @abstractmethod
    def logits(self, images: Tensor) -> Tensor:
        """[b, classes] floats for plain standardised images [b, *shape]; higher is likelier."""


class Learner(Plugin[C]):
    """Learns from a release. Runs in a process of its own, which never held the truth.

    The engine seeds torch's global generator from the lesson's own stream before it calls.
    """

    @abstractmethod
    def learn(self, lesson: Lesson, budget: Budget, progress: Progress) -> Classifier:
        """Learn from one release. NotApplicable where this learner has no use for it."""
