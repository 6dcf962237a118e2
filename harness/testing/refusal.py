"""Telling a plugin's own sentence from a failure."""

from __future__ import annotations

from harness.api.errors import HarnessError


def refusal(error: HarnessError) -> str:
    """What a plugin says of data that it cannot work on; raised again where it is not its own.

    A plugin refuses by raising one of the harness's errors itself. What the engine raises of it,
    of a broken contract or of any other exception, is no refusal.
    """
    if not raised_by_plugin(error):
        raise error
    return f"refuses: {error}"


def raised_by_plugin(error: HarnessError) -> bool:
    """Whether an error comes from a line that is none of the engine's."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    module = str(trace.tb_frame.f_globals.get("__name__", "")) if trace else ""
    return module.partition(".")[0] != "harness"
