"""What all stages of one run share: its plan, its store, its randomness, its clock."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from harness.api import AssetFolder, CellFailed, HarnessError, Progress
from harness.asking.plan import Cell
from harness.asking.registry import Registry, load_factory
from harness.asking.selector import Resolved
from harness.assets import folder as asset_folder
from harness.rng import KeyedStream, board_key, owner_key
from harness.running.keys import STAGES, Keys
from harness.running.observer import Observer
from harness.store import Artifact, Store


@dataclass(frozen=True)
class Context:
    """One run of one cell."""

    cell: Cell
    keys: Keys
    store: Store
    registry: Registry
    observer: Observer
    secret: bytes | None = None
    force: str | None = None
    timing: dict[str, float] = field(default_factory=dict)
    peak_memory: dict[str, float] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return torch.device(self.cell.device)

    @cached_property
    def board(self) -> KeyedStream:
        """Public randomness."""
        return KeyedStream(board_key(self.cell.request.seed))

    @cached_property
    def owner_stream(self) -> KeyedStream:
        """The owner's randomness."""
        return KeyedStream(owner_key(self.cell.request.seed, self.secret))

    @cached_property
    def assets(self) -> AssetFolder:
        """Verified assets of all that this cell uses and has."""
        specs = [self.cell.dataset.spec, self.cell.space.spec]
        specs += [self.cell.public.spec] if self.cell.public else []
        specs += [m for m in self.cell.metrics if m.name not in self.cell.unavailable]
        return asset_folder([a for spec in specs for a in spec.assets], self.store.root)

    def build(self, kind: str, resolved: Resolved) -> Any:
        """A plugin at work."""
        origin = self.registry.origin(kind, resolved.name)
        factory = load_factory(resolved.spec, origin)
        with plugin_boundary(resolved.name):
            return factory(resolved.config)

    def forced(self, stage: str) -> bool:
        """Whether a stage has to run although its output is stored."""
        return self.force is not None and STAGES.index(stage) >= STAGES.index(self.force)

    def obtain(
        self,
        stage: str,
        key: str,
        label: str,
        make: Callable[[Progress], Artifact],
        inputs: Callable[[], object],
    ) -> Artifact:
        """A stage's artifact: from the store, or made, watched, timed and stored.

        `inputs` brings in what `make` will use; other stages run there, outside this one's time.
        Where the work was another process's, its own clock counts (`own_seconds`).
        """

        def making() -> Artifact:
            inputs()
            with self.watched(label) as progress:
                made = make(progress)
            if "own_seconds" in made.facts:
                self.timing[label] = round(made.facts["own_seconds"], 3)
            return made

        artifact, stored = self.store.obtain(stage, key, making, force=self.forced(stage))
        if stored:
            self.observer.cached(label)
        return artifact

    @contextmanager
    def watched(self, label: str) -> Iterator[Progress]:
        """Show and time a piece of work; what is done in several parts is timed as one."""
        with self.observer.stage(label) as progress:
            started = time.perf_counter()
            yield progress
            taken = time.perf_counter() - started
            self.timing[label] = round(self.timing.get(label, 0.0) + taken, 3)


@contextmanager
def plugin_boundary(name: str) -> Iterator[None]:
    """Whatever a plugin raises on the owner's side becomes a failed cell that names it."""
    try:
        yield
    except HarnessError:
        raise
    except (Exception, SystemExit) as error:
        where = _last_frame(error)
        raise CellFailed(f"'{name}' raised {type(error).__name__}: {error} ({where})") from error


def _last_frame(error: BaseException) -> str:
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"


def peak_megabytes() -> float:
    """The most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / 2**20 if sys.platform == "darwin" else peak / 2**10, 1)
