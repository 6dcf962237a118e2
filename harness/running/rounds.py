"""Rounds: an owner's rounds of encoding, of which nothing is stored: they are made on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from harness.api.specs import Stage
from harness.rng import KeyedStream, secret_stream
from harness.running.samples import Space
from harness.running.stage import Output
from harness.store.provenance import plugin_identity

if TYPE_CHECKING:
    from harness.asking.plan import Cell
    from harness.asking.request import Resolved
    from harness.running.encoding import Source
    from harness.running.run import Run


@dataclass(frozen=True, eq=False)
class Rounds(Output["Source"]):
    """The rounds that an encoding defense makes of a cell's private images; without one, these."""

    defense: Resolved | None
    rounds: int
    draw: int = 0
    """Which of several releases of the same images: the first leaves, others are to compare."""

    @classmethod
    def alone(cls, cell: Cell) -> Self:
        """Of a cell's own stack."""
        return cls.under(cell, cell.defenses)

    @classmethod
    def under(cls, cell: Cell, defenses: tuple[Resolved, ...], draw: int = 0) -> Self:
        """Of a stack; of none at all one round, as any other would hold the same images."""
        encoding = next((d for d in defenses if d.spec.stage is Stage.ENCODING), None)
        return cls(cell, encoding, cell.request.rounds if defenses else 1, draw)

    @property
    def inputs(self) -> tuple[Output[Any], ...]:
        """All samples."""
        return (Space.of(self.cell),)

    def facts(self) -> dict[str, Any]:
        """The defense, rounds and seeds."""
        request = self.cell.request
        return {
            "defense": plugin_identity(self.defense) if self.defense else None,
            "rounds": self.rounds,
            "draw": self.draw,
            "seed": request.seed,
            "owner": self.cell.owner,
        }

    def obtain(self, run: Run) -> Source:
        """A source, which has made nothing yet."""
        from harness.running.encoding import source_of

        resolved, named = self.defense, None
        if resolved:
            named = resolved.name, run.build("defenses", resolved.spec, resolved.config)
        owner = owner_stream(run, self.draw)
        return source_of(run.splits, named, owner, rounds=self.rounds)


def owner_stream(run: Run, draw: int = 0) -> KeyedStream:
    """What the owner draws a release from: another for every draw."""
    stream = secret_stream(run.cell.request.seed, run.secret)
    return stream.stream(draw=draw) if draw else stream
