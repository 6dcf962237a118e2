"""Everything that can go wrong, and the exit code each error carries.

0 done, 1 a cell failed (and is a record), 2 bad input, 3 a broken integrity rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar, Literal

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTEGRITY = 3

Ending = Literal["failed", "timeout", "not_applicable"]
"""How a cell ends that has no result; its record says so."""


class HarnessError(Exception):
    """An error written for the person who reads it: what, where, and what would be right."""

    exit_code: ClassVar[int] = EXIT_USAGE
    status: ClassVar[Ending | Literal["fatal"]] = "fatal"
    """How a cell ends that raises it; what is `fatal` concerns more than one cell."""


class UsageError(HarnessError):
    """The request cannot be: a wrong name, value, or combination."""


class PluginError(HarnessError):
    """A plugin does not keep its contract; the message names it and its distribution."""

    status: ClassVar[Ending] = "failed"


class AssetUnavailable(HarnessError):
    """A dataset's or network's bytes are not here; the message says how to get them."""


class StoreError(HarnessError):
    """The cache, or a file, cannot be read or written (permission, space, a file in the way)."""


class ChannelNotGranted(HarnessError):
    """An attack asked for knowledge that its threat model or its needs do not give it."""


class CellFailed(HarnessError):
    """A stage of one cell failed; the cell becomes a record that says so."""

    exit_code = EXIT_FAILED
    status: ClassVar[Ending] = "failed"


class NotApplicable(CellFailed):
    """An attack finds that this release is none it can work on; the record gives the reason."""

    status = "not_applicable"


class CellTimedOut(CellFailed):
    """An attack used up its budget of time."""

    status = "timeout"


class MachineFault(HarnessError):
    """The machine, and no plugin, kept a stage from its end: nothing is known of the cell."""

    exit_code = EXIT_FAILED


class IntegrityError(HarnessError):
    """Bytes are not what their hash says, or the private split met the public pool."""

    exit_code = EXIT_INTEGRITY


MOST_OFFERED = 3
"""So many names that begin alike are offered."""


def nearest(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` or a list of what there is: the tail of an unknown-name message.

    Names that begin with what was written come before those that merely look like it.
    """
    names = sorted(known)
    if offered := near(name, names):
        quoted = " or ".join(f"'{each}'" for each in offered)
        return f" Did you mean {quoted}?"
    return f" Known: {', '.join(names)}." if names else " None are installed."


def near(name: str, known: Collection[str]) -> list[str]:
    """Names that may have been meant; `-` and `_` and the case of letters are the same to us."""
    plain = {each: _plain(each) for each in known}
    written = _plain(name)
    same = [each for each, text in plain.items() if text == written]
    begun = [each for each, text in plain.items() if written and text.startswith(written)]
    found = same or sorted(begun, key=len)[:MOST_OFFERED]
    return found or get_close_matches(name, known, n=1, cutoff=0.5)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def where_raised(error: BaseException) -> str:
    """File and line."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
