"""Options and endings that commands share."""

from __future__ import annotations

from typing import Any

import click


def epilog(*examples: str) -> str:
    """The examples at the end of a command's help, each on a line of its own."""
    lines = "\n".join(f"  {example}" for example in examples)
    return f"\b\nExample{'s' if len(examples) > 1 else ''}:\n{lines}"


def json_option(function: Any) -> Any:
    """`--json`: print results as JSON and nothing else."""
    flag = click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
    return flag(function)
