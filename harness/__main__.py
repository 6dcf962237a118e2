"""`python -m harness`, and the installed command `harness`."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

import click

INTERRUPTED = 130
REFUSED = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""What the system says when an output is redirected to a disk that is full or broken."""


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM came.

    A subclass, because Python ends by the signal itself, and not with our exit code, once a plain
    KeyboardInterrupt has passed through `exec`, as importing torch does a hundred times.
    """


def main() -> None:
    """Run a command; whatever goes wrong becomes one message and a documented exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        from harness.cli import cli

        sys.exit(cli.main(standalone_mode=False) or 0)
    except click.exceptions.Exit as ending:
        sys.exit(ending.exit_code)
    except click.ClickException as error:
        _try(error.show)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _say("Interrupted. The same command goes on where this one stopped.")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        _give_up_streams()
        sys.exit(1)
    except Exception as error:  # noqa: BLE001  sorted out by _explain, which raises the rest
        sys.exit(_explain(error))


def _explain(error: Exception) -> int:
    """Say what the harness has to say of an error; any other goes on as it came.

    The errors' module is imported here because `--help` must not wait for it.
    """
    from harness.api.errors import EXIT_USAGE, HarnessError

    if isinstance(error, OSError) and error.errno in REFUSED and error.filename is None:
        _say(f"Error: The output cannot be written: {error.strerror}.")
        _give_up_streams()
        return EXIT_USAGE
    if not isinstance(error, HarnessError):
        raise error
    _say(f"Error: {error}")
    return error.exit_code


def _say(message: str) -> None:
    _try(partial(click.echo, message, err=True))


def _try(show: Callable[[], None]) -> None:
    """Show something where that is possible; the exit code says it too."""
    try:
        show()
    except OSError:
        _give_up_streams()


def _give_up_streams() -> None:
    """Write what is left in those that take no more nowhere: Python would complain once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """End as on Ctrl-C, so that nothing is left behind; a second signal does not disturb that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise Interrupted


if __name__ == "__main__":
    main()
