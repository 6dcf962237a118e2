"""Strangers' plugins of the owner's side: each works in a confined process, and answers in data.

What they are given, they may read: a defense the private images, a metric the truth. What they
say of them is checked like anything that a stranger left, and they change nothing else.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from torch import Tensor

from harness.api import (
    AssetUnavailable,
    CellFailed,
    Collection,
    Dataset,
    DefenseSpec,
    Encoded,
    EncodingDefense,
    HarnessError,
    Law,
    Measured,
    Metric,
    NotApplicable,
    PiecewiseDefense,
    PluginError,
    Round,
    Samples,
    SamplesOnDemand,
    Scene,
    Stage,
    StatisticsDefense,
    Stream,
    Table,
    UsageError,
)
from harness.api.plugins import silent
from harness.api.release import Guarantee
from harness.running.workplace import left_by, tensors_in, workplace
from harness.sandbox.guests import ANSWER, ASKED, REFUSED, SAID, TENSORS, unpacked

if TYPE_CHECKING:
    from torch import nn

    from harness.api.assets import AssetFolder
    from harness.api.specs import Spec
    from harness.running.run import Run

REFUSALS = (UsageError, AssetUnavailable, PluginError, NotApplicable, CellFailed)
"""What a plugin may raise to refuse something; anything else is its own fault."""
MOST_SAID, LONGEST = 1 << 20, 1 << 14
"""Bytes of an answer beside its tensors, and letters of a refusal."""
LENIENT = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
Plain = Mapping[str, float | int | str]
ANSWERS: Mapping[str, Any] = {
    "build": tuple[bool, bool],
    "load": Collection,
    "best_accuracy": float | None,
    "unavailable": str | None,
    "chance": float | None,
    "score": Tensor,
    "encode": Encoded,
    "begin": tuple[tuple[int, ...], Plain],
    "rows": Encoded,
    "infer": Tensor,
    "law": Law | None,
    "guarantee": Plain,
    "analyse": tuple[Table, ...],
    "measure": Measured,
    "embed": Tensor,
}
"""By method, what it has to answer."""


@cache
def _answer(method: str) -> type[BaseModel]:
    """What checks an answer; the API names tensors without importing torch."""
    made = create_model(method, __config__=LENIENT, answer=(ANSWERS[method], ...))
    made.model_rebuild(_types_namespace={"Tensor": Tensor, "Samples": Samples})
    return made


class Guest:
    """A stranger's plugin at work in a process of its own, until nobody needs it any more."""

    def __init__(self, run: Run, kind: str, spec: Spec, argument: Any) -> None:
        self._who = f"the {kind.removesuffix('s')} {spec.name}"
        self._budget = run.budget
        kept = ExitStack()
        self._process = kept.enter_context(run.processes.take())
        reads = _reads(run, kind, argument)
        self._place = kept.enter_context(workplace(self._process, spec.name, reads))
        weakref.finalize(self, kept.close)
        self.pieces, self.infers = self.ask("build", kind, spec.name, argument)

    def ask(self, method: str, *arguments: Any) -> Any:
        """What the plugin answers; CellFailed, naming it, where that is none.

        What it refuses as the API has it, is refused here.
        """
        place = self._place
        torch.save((method, arguments), place.before / ASKED)
        job = {"action": "call", "function": "harness.sandbox.guests:HOST.answer"}
        job |= {"asked": str(place.before / ASKED), "out": str(place.out)}
        self._process.ask(job, self._budget, silent, who=self._who)
        tensors = tensors_in(place.out / TENSORS, self._who)
        try:
            said = json.loads(left_by(place.out / SAID, MOST_SAID, self._who))
            if isinstance(said, dict) and REFUSED in said:
                raise self._refusal(*said[REFUSED])
            return getattr(_answer(method).model_validate(unpacked(said, tensors)), ANSWER)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else None
            where = ".".join(map(str, first["loc"])) + f": {first['msg']}" if first else error
            raise CellFailed(f"{self._who} answered no {method}: {where}") from None

    def _refusal(self, kind: str, message: str) -> HarnessError:
        known = {each.__name__: each for each in REFUSALS}
        return known.get(kind, CellFailed)(str(message)[:LONGEST])


def _reads(run: Run, kind: str, argument: Any) -> list[Path]:
    """What of this machine a plugin may read: its assets, and of a dataset what options name."""
    if kind == "defenses":
        return []
    options = argument.model_dump().values() if kind == "datasets" else ()
    named = [Path(each) for each in options if isinstance(each, (str, Path)) and each]
    return [*run.assets.folders.values(), *(path for path in named if path.exists())]


class GuestDataset(Dataset[Any]):
    """A dataset that is read elsewhere."""

    def __init__(self, guest: Guest, config: Any) -> None:
        super().__init__(config)
        self._guest = guest

    def load(self, assets: AssetFolder) -> Collection:
        """All images, in memory."""
        found: Collection = self._guest.ask("load", assets)
        return found

    def best_accuracy(self) -> float | None:
        """As it says."""
        found: float | None = self._guest.ask("best_accuracy")
        return found


class GuestMetric(Metric):
    """A metric that is taken elsewhere."""

    def __init__(self, guest: Guest, scene: Scene) -> None:
        super().__init__(scene)
        self._guest = guest

    def unavailable(self, shape: tuple[int, ...]) -> str | None:
        """As it says."""
        found: str | None = self._guest.ask("unavailable", shape)
        return found

    def chance(self, count: int) -> float | None:
        """As it says."""
        found: float | None = self._guest.ask("chance", count)
        return found

    def score(self, images: Tensor, truth: Tensor) -> Tensor:
        """As it says."""
        found: Tensor = self._guest.ask("score", images, truth)
        return found


class GuestEncoding(EncodingDefense[Any]):
    """A defense that encodes elsewhere, each round at once."""

    def __init__(self, guest: Guest, config: Any) -> None:
        super().__init__(config)
        self._guest = guest
        self._inferred = 0

    def encode(self, private: Samples, public: Samples, rng: Stream) -> Encoded:
        """As it says."""
        found: Encoded = self._guest.ask("encode", private, public, rng)
        return found

    def infer(
        self, model: nn.Module, images: Tensor, private: Samples, public: Samples, rng: Stream
    ) -> Tensor:
        """As it says; what it draws of `rng` there is not drawn here, so each call has its own."""
        self._inferred += 1
        drawn = rng.stream(call=self._inferred)
        found: Tensor = self._guest.ask("infer", model, images, private, public, drawn)
        return found.to(images.device)

    @property
    def infers(self) -> bool:
        """As it says."""
        found: bool = self._guest.infers
        return found

    def law(self, values: int, resolved: Mapping[str, float | int | str]) -> Law | None:
        """As it says."""
        found: Law | None = self._guest.ask("law", values, dict(resolved))
        return found

    def guarantee(
        self, images: int, rounds: int, resolved: Mapping[str, float | int | str]
    ) -> Guarantee:
        """As it says."""
        found: Guarantee = self._guest.ask("guarantee", images, rounds, dict(resolved))
        return found

    def analyse(self, private: Samples, rng: Stream) -> tuple[Table, ...]:
        """As it says."""
        found: tuple[Table, ...] = self._guest.ask("analyse", private, rng)
        return found


class GuestPieces(GuestEncoding, PiecewiseDefense[Any]):
    """One that makes its rounds in pieces; it has all images in its own memory."""

    encode = PiecewiseDefense.encode

    def begin(self, private: SamplesOnDemand, public: Samples, rng: Stream) -> Round:
        """As it says."""
        shape, resolved = self._guest.ask("begin", private[:], public, rng)
        return Round(shape, lambda index: self._guest.ask("rows", index), resolved)


class GuestSums(StatisticsDefense[Any]):
    """A defense that sums elsewhere."""

    def __init__(self, guest: Guest, config: Any) -> None:
        super().__init__(config)
        self._guest = guest

    def measure(
        self, private: SamplesOnDemand, public: Samples, classes: int, rng: Stream
    ) -> Measured:
        """As it says."""
        found: Measured = self._guest.ask("measure", private[:], public, classes, rng)
        return found

    def embed(self, images: Tensor, basis: Mapping[str, Tensor]) -> Tensor:
        """As it says."""
        found: Tensor = self._guest.ask("embed", images, dict(basis))
        return found


def is_guest(kind: str, spec: Spec) -> bool:
    """Whether a stranger's plugin of this kind works in a process of its own."""
    at_data = isinstance(spec, DefenseSpec) and spec.stage in (Stage.ENCODING, Stage.STATISTICS)
    return kind in ("datasets", "metrics") or at_data


def guest(run: Run, kind: str, spec: Spec, argument: Any) -> Any:
    """A stranger's plugin, as if it were at work here."""
    asked = Guest(run, kind, spec, argument)
    if kind == "datasets":
        return GuestDataset(asked, argument)
    if kind == "metrics":
        return GuestMetric(asked, argument)
    if isinstance(spec, DefenseSpec) and spec.stage is Stage.STATISTICS:
        return GuestSums(asked, argument)
    return (GuestPieces if asked.pieces else GuestEncoding)(asked, argument)
