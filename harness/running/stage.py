"""What every stage of a cell has: a key, a way to make its output, and a form in the store.

A key is SHA-256 over the stage's own module and all that this uses, the plugins' code and configs,
the keys of the inputs, and the seed axes. A module that defines another
output is left out: it counts through that output's key, so whoever uses it has it among the
inputs. All keys follow from the plan: nothing has to run to know what is stored already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from harness.api.errors import CellFailed, HarnessError, MachineFault, where_raised
from harness.store.artifacts import Artifact
from harness.store.provenance import packages_of, sha256_of, source_sha256

if TYPE_CHECKING:
    from harness.api.plugins import Progress
    from harness.api.precision import Precision
    from harness.asking.plan import Cell
    from harness.running.run import Run

Out = TypeVar("Out")


OUTPUTS = (
    *("load", "samples", "rounds", "release", "train"),
    *("learn", "prepare", "attack", "judge", "leakage", "ceiling"),
)
"""The modules in which outputs are defined: in what is made of them, their keys count for them."""
APART = frozenset((*(f"harness.running.{name}" for name in OUTPUTS), "harness.store.frame"))
"""They, and tables for notebooks, which decide nothing."""


@dataclass(frozen=True, eq=False)
class Output(ABC, Generic[Out]):
    """What a run can be asked for, by `run(output)`, of one cell."""

    cell: Cell

    @classmethod
    def of(cls, cell: Cell) -> Self:
        """The cell's output of this class; always the same object."""
        if cls not in cell.outputs:
            cell.outputs[cls] = cls.alone(cell)
        found: Self = cell.outputs[cls]
        return found

    @classmethod
    def alone(cls, cell: Cell) -> Self:
        """Make it from the cell alone."""
        return cls(cell)

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """The outputs that it is made of."""
        return ()

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What decides it besides its inputs and code, as JSON values."""

    @abstractmethod
    def obtain(self, run: Run) -> Out:
        """The output; whoever asks a run twice is given it again without this."""

    @cached_property
    def key(self) -> str:
        """Its name: equal where it is the same, whoever asks."""
        return sha256_of(
            {
                "stage": type(self).__name__,
                **code_identity(type(self).__module__),
                "inputs": [output.key for output in self.inputs],
                **self.facts(),
            }
        )


class Stage(Output[Out]):
    """An output that is stored.

    `name` is what `--force` calls it, and its folder in the store. Whatever `make` takes from the
    run besides its inputs (a device, plugins at work) is in `facts`.
    """

    name: ClassVar[str]
    tries: ClassVar[int] = 3
    """How often it is made before a fault of the machine's is told."""

    @property
    def label(self) -> str:
        """What a user sees while it is made."""
        return self.name

    @abstractmethod
    def make(self, run: Run, progress: Progress) -> Artifact:
        """The output as it is stored."""

    @abstractmethod
    def read(self, stored: Artifact) -> Out:
        """The output as it is used."""

    def obtain(self, run: Run) -> Out:
        """The output, from the store or made; inputs are made outside of this stage's time.

        Where the work was another process's, its own clock counts (`own_seconds`), and how that was
        confined (`walls`). What the machine failed is made again.
        """
        with run.store.turn(self.name, self.key, force=run.forced(self.name)) as stored:
            if stored is not None:
                run.observer.cached(self.label)
                run.heed(stored)
                return self.read(stored)
            for output in self.inputs:
                run(output)
            with run.watched(self.label) as progress:
                for left in reversed(range(self.tries)):
                    try:
                        made = self.make(run, progress)
                        break
                    except MachineFault:
                        if not left:
                            raise
            run.made.add(self.key)
            run.heed(made)
            if "own_seconds" in made.facts:
                run.timing[self.label] = round(made.facts["own_seconds"], 3)
            run.store.write(self.name, self.key, made)
            return self.read(made)


def code_identity(*modules: str) -> dict[str, Any]:
    """What modules run and with which packages, but for other outputs' own modules."""
    return {
        "code": source_sha256(*modules, apart=APART),
        "packages": packages_of(*modules, apart=APART),
    }


def hardware(cell: Cell, precision: Precision = "float32") -> dict[str, Any]:
    """What decides the last digits of what is trained or solved, or more of them."""
    reduced = {} if precision == "float32" else {"precision": precision}
    return {"device": cell.device, "threads": cell.threads, **reduced}


def budget_identity(cell: Cell) -> list[float]:
    """An attack may pace itself by what it is given."""
    return [cell.request.time_limit, cell.request.megabytes]


@contextmanager
def plugin_boundary(name: str) -> Iterator[None]:
    """Whatever a plugin raises on the owner's side becomes a failed cell that names it."""
    try:
        yield
    except HarnessError:
        raise
    except (Exception, SystemExit) as error:
        where = where_raised(error)
        raise CellFailed(f"'{name}' raised {type(error).__name__}: {error} ({where})") from error
