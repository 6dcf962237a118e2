"""`python -m harness`, and the installed command `harness`."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

import click

INTERRUPTED = 130


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
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted. The same command goes on where this one stopped.", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:  # noqa: BLE001  sorted out by _explain, which raises the rest
        sys.exit(_explain(error))


def _explain(error: Exception) -> int:
    """Say what the harness has to say of an error; any other goes on as it came.

    The errors' module is imported here because `--help` must not wait for it.
    """
    from harness.api.errors import HarnessError

    if not isinstance(error, HarnessError):
        raise error
    click.echo(f"Error: {error}", err=True)
    return error.exit_code


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """End as on Ctrl-C, so that nothing is left behind; a second signal does not disturb that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise Interrupted


if __name__ == "__main__":
    main()
