"""The base classes that plugins build on. Each instance holds one validated config."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from harness.api.assets import AssetFolder
from harness.api.data import Collection, Samples, SamplesOnDemand, Scale
from harness.api.knowledge import Channel
from harness.api.law import Law
from harness.api.randomness import Stream
from harness.api.release import Encoded, Guarantee, Measured, Round
from harness.api.view import Budget, View

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class Config(BaseModel):
    """The base of every plugin's config: frozen, finite, and no option it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def forgoes(self) -> frozenset[Channel]:
        """Optional channels that an attack with these options has no use for: it gets none."""
        return frozenset()

    def demands(self) -> frozenset[Channel]:
        """Channels that an attack with these options needs beside its spec's."""
        return frozenset()

    def unprepared(self) -> frozenset[str]:
        """Names of the spec's preparations that an attack with these options does without."""
        return frozenset()

    def unranked(self) -> str:
        """Why what an attack with these options scores ranks nowhere; empty where it does."""
        return ""

    def busiest(self) -> str:
        """The option that buys more work, where it is not the spec's `effort` for these options."""
        return ""


C = TypeVar("C", bound=BaseModel)


class Progress(Protocol):
    """Tell the user how far a piece of work has come."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """`done` of `total` steps, with a few words on the score so far."""
        ...


def silent(done: int, total: int, note: str = "") -> None:
    """Progress that nobody watches."""


class Plugin(ABC, Generic[C]):
    """A plugin at work, with the config it was asked to run with."""

    def __init__(self, config: C) -> None:
        self.config = config


@dataclass(frozen=True)
class Table:
    """A small table for people: `describe` prints it, `--json` gives it as it is."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]


class Loader(Protocol):
    """What a victim is trained on: iterating gives one epoch of (images, labels) batches.

    Each epoch reads the next round of the release.
    """

    batch_size: int

    @property
    def examples(self) -> int:
        """Rows of one round."""
        ...

    def __len__(self) -> int:
        """Batches of one epoch."""
        ...

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch, reshuffled."""
        ...

    def epoch_of(self, batches: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch in the given batches of row numbers [b] int64, instead of shuffled ones."""
        ...


class EncodingDefense(Plugin[C]):
    """Turns private images into encodings, once per round."""

    @abstractmethod
    def encode(self, private: Samples, public: Samples, rng: Stream) -> Encoded:
        """One round over all private images (standardised). `rng` is secret."""

    def infer(
        self, model: nn.Module, images: Tensor, private: Samples, public: Samples, rng: Stream
    ) -> Tensor:
        """Logits of test images; a defense that encodes before inference says so here."""
        logits: Tensor = model(images)
        return logits

    @property
    def infers(self) -> bool:
        """Whether `infer` does more than ask the model."""
        return type(self).infer is not EncodingDefense.infer

    def law(self, values: int, resolved: Mapping[str, float | int | str]) -> Law | None:
        """The law of encodings of so many values each; None where there is none to state.

        `resolved` are the options as they turned out on the data: they count where the config
        leaves one open, and `Law.calibrated` names those of them that private images decided.
        """
        return None

    def guarantee(
        self, images: int, rounds: int, resolved: Mapping[str, float | int | str]
    ) -> Guarantee:
        """What is proven of so many rounds of so many private images; empty where nothing is."""
        return {}

    def analyse(self, private: Samples, rng: Stream) -> tuple[Table, ...]:
        """What this defense's own theory says of these images; printed by `describe`."""
        return ()


class PiecewiseDefense(EncodingDefense[C]):
    """An encoding defense whose rounds are made in pieces, where they would not fit in memory."""

    @abstractmethod
    def begin(self, private: SamplesOnDemand, public: Samples, rng: Stream) -> Round:
        """Draw what the rows of one round have in common. `rng` is secret."""

    def encode(self, private: Samples, public: Samples, rng: Stream) -> Encoded:
        """The round in one piece, in the order of the images."""
        import torch

        begun = self.begin(private, public, rng)
        return replace(begun.rows(torch.arange(len(private))), resolved=begun.resolved)


class StatisticsDefense(Plugin[C]):
    """Releases sums over many private images, once, and nothing of any one of them."""

    @abstractmethod
    def measure(
        self, private: SamplesOnDemand, public: Samples, classes: int, rng: Stream
    ) -> Measured:
        """What leaves of all private images (standardised). `rng` is secret."""

    @abstractmethod
    def embed(self, images: Tensor, basis: Mapping[str, Tensor]) -> Tensor:
        """[b, q] float32: what is summed of images [b, *shape]; `basis` as `measure` made it."""


class TrainingDefense(Plugin[C]):
    """Changes how the owner trains a split model h∘g."""

    def adapt(self, recipe: Recipe) -> Recipe:
        """The victim's recipe as this defense wants it: another cut, say."""
        return recipe

    def penalty(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Added to the loss; `hidden` [b, ...] is h(x), `labels` [b, classes]."""
        return hidden.new_zeros(())

    def prepare(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loader: Loader,
        *,
        epochs: int,
        rng: Stream,
    ) -> tuple[nn.Module, torch.optim.Optimizer, Loader]:
        """Wrap the training's parts before its first step; `rng` is secret.

        UsageError where the model cannot be trained so.
        """
        return model, optimizer, loader

    def measures(self) -> Mapping[str, float]:
        """Numbers for the record, once a training is over: a privacy budget spent, say."""
        return {}

    @property
    def releases_gradients(self) -> bool:
        """Whether `gradient` makes the gradients that leave."""
        return type(self).gradient is not TrainingDefense.gradient

    def gradient(self, per_image: Mapping[str, Tensor], rng: Stream) -> Mapping[str, Tensor]:
        """The gradient of one batch that would leave, from those of its images [b, …] each."""
        return {name: gradients.mean(0) for name, gradients in per_image.items()}


class GradientDefense(Plugin[C]):
    """Changes each gradient before it leaves, and before the owner's own step."""

    def adapt(self, recipe: Recipe) -> Recipe:
        """The victim's recipe as this defense wants it: another rate, say."""
        return recipe

    @abstractmethod
    def protect(self, gradients: Mapping[str, Tensor], rng: Stream) -> Mapping[str, Tensor]:
        """The gradients of one batch by parameter name, protected. `rng` is secret."""


@dataclass(frozen=True)
class Reconstruction:
    """What an attack brings back.

    `images` [m, *view.shape], standardised, floats of any width. `targets` [m] int64 says which
    private image each one is meant to be, where `sources` told; `rows` [m] int64 says instead which
    encoding each one decodes (round·n + row), judged against that encoding's primary image.
    `batches` [m] int64 says of which released gradient each one is: within a batch the judge
    matches them one to one with its primary images. With none of these, the judge matches all of
    them one to one. `diagnostics` are numbers for the record; `predicted_error` is the squared
    error a standardised value that the attack expects of its images, pooled, and is held against
    the one that they have.

    `claims` are findings that are no images. The judge scores these names, of the m things that
    `targets` or `rows` name (of all targets, or of the first m rows, where neither is given):

    - `candidate_scores` [m, candidates]: higher where the candidate is the target, or one of the
      private images mixed in the row
    - `pair_scores` [m, candidates, candidates]: of rows; primary image, then its partner
    - `weights` [m]: of rows; the weight of the primary image
    - `signs` [m, *shape] of ±1: of rows; of the mixture under its mask
    - `class_means` [classes, *shape], standardised
    - `places` [rows, e]: of all rows, round by round; dot products are higher where two
      encodings hold an image in common
    - `clusters` [rows, q] int64: of all rows; the clusters that each encoding belongs to, counted
      from 0 in any order, -1 for none; each is meant to be one image
    - `shares` [rows, q]: with `clusters`; the weight of each of them in the encoding
    - `publics` [rows, q] int64: of all rows; the public images that are mixed into each encoding,
      in the order of the view's, -1 for none
    - `p_values` [..., pairs]: of tests whose null hypothesis says that encodings cannot be
      told apart
    - `inputs` [batches, b, *input shape]: of gradients and updates; what the model was
      given, as it was given, in any order within a batch
    - `batch_labels` [batches, b, classes]: of gradients and updates; the labels of each batch, in
      any order. Batches of `inputs` or `batch_labels` that hold a NaN are not claimed anything of
    """

    images: Tensor | None = None
    targets: Tensor | None = None
    rows: Tensor | None = None
    batches: Tensor | None = None
    claims: Mapping[str, Tensor] = field(default_factory=dict)
    diagnostics: Mapping[str, float] = field(default_factory=dict)


class Attack(Plugin[C]):
    """Tries to bring the private images back. Runs in a process of its own.

    The engine seeds torch's global generator from the attack's own stream before each call.
    """

    def prepare(self, view: View, budget: Budget, progress: Progress) -> Mapping[str, Tensor]:
        """What can be learned before the release is seen; stored, and given to `reconstruct`."""
        return {}

    @abstractmethod
    def reconstruct(
        self, view: View, prepared: Mapping[str, Tensor], budget: Budget, progress: Progress
    ) -> Reconstruction:
        """Attack one release."""


class Dataset(Plugin[C]):
    """A source of labelled images."""

    @abstractmethod
    def load(self, assets: AssetFolder) -> Collection:
        """All images; large ones are memory-mapped: only the rows that are drawn are read."""

    def best_accuracy(self) -> float | None:
        """Of the best classifier there is, where the law of the images is known."""
        return None


def as_they_are(images: Tensor) -> Tensor:
    """Images, unchanged."""
    return images


@dataclass(frozen=True)
class Scene:
    """What a metric may know besides the pair it compares."""

    scale: Scale
    device: torch.device
    assets: AssetFolder
    decoys: Tensor
    """[m, c, h, w] in [0,1]: images to hide the truth among. The private images that are not
    judged, and as many others as there are private ones; of held-out targets other test images."""
    public: Samples
    """The public images with their labels, uint8 or in [0,1], on the CPU."""
    labels: Tensor
    """[targets] int64: the class of each target; the truth given to `score` begins with the
    first."""
    classes: int
    """How many classes there are."""
    domain: Callable[[Tensor], Tensor] = as_they_are
    """What was done to the images that `score` is given; one for absolute values, say, equals
    another of the same scale. A metric that learns from `public` does it to those too."""


class Metric(ABC):
    """Compares reconstructions with the truth, one value per image."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def unavailable(self, shape: tuple[int, ...]) -> str | None:
        """Why images of this shape cannot be scored, or None."""
        return None

    def chance(self, count: int) -> float | None:
        """What blind choice scores over `count` images, where that has a meaning."""
        return None

    @abstractmethod
    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """[n] numbers for images and truth [n, c, h, w] in [0,1]; NaN where undefined."""


class Victim(Plugin[C]):
    """A network to train on what is released."""

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Sequential:
        """Fresh named blocks, from images to logits; the cut is the name of a block."""


Epochs = Annotated[int, Field(ge=1, le=100_000, description="passes over the release")]
"""Passes over the release, 1 to 100 000."""
BatchSize = Annotated[int, Field(ge=1, le=1_000_000, description="images per step")]
"""Images per step, 1 to 1 000 000."""
Optimizer = Annotated[Literal["adamw", "adam", "sgd"], Field(description="sgd: momentum .9")]
"""The optimiser; SGD has a momentum of .9."""
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False, description="initial learning rate")]
"""The initial learning rate, above 0."""
Decay = Annotated[
    float, Field(ge=0, allow_inf_nan=False, description="as the optimiser understands it")
]
"""Weight decay, 0 or more, as the optimiser understands it."""
Schedule = Annotated[
    Literal["cosine", "step", "none"],
    Field(description="step: a tenth at one half and at three quarters"),
]
"""The learning rate over time; `step`: a tenth at one half and at three quarters."""
Cut = Annotated[str, Field(description="name of the last block of h, the part before the cut")]
"""The name of the last block of h, the part before the cut."""


class Recipe(Config):
    """How a victim is trained: the base of every victim's config.

    A victim with other defaults declares them with the same types (`epochs: Epochs = 30`), which
    carry the bounds; a bare `int` would lose them.
    """

    epochs: Epochs = 10
    batch_size: BatchSize = 128
    optimizer: Optimizer = "adamw"
    lr: Rate = 1e-3
    weight_decay: Decay = 1e-4
    schedule: Schedule = "cosine"
    cut: Cut = ""


class Space(Plugin[C]):
    """Where encodings live: a public extractor's feature maps. Holds its network once loaded."""

    @abstractmethod
    def embed(self, images: Tensor, assets: AssetFolder) -> Tensor:
        """Images [b, c, h, w] in [0,1] to features [b, c', h', w'], on their device.

        Features are float32, or float16 to take half the room. The engine always passes batches
        of one size, several at once from threads of their own, with one core for each: how many
        cores there are changes no bit. It stores the features, and standardises them with the
        mean and deviation of the public pool's.
        """
