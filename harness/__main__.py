"""`python -m harness`, and the installed command `harness`."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

import click

from harness.api.errors import EXIT_INTERRUPTED, HarnessError


def main() -> None:
    """Run a command; whatever goes wrong becomes one message and a documented exit code."""
    from harness.cli import cli

    signal.signal(signal.SIGTERM, _terminated)
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)
    except click.exceptions.Exit as ending:
        sys.exit(ending.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except HarnessError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("\nInterrupted. The same command goes on where this one stopped.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    """End on SIGTERM as on Ctrl-C, so that nothing is left behind."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
