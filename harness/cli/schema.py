"""`harness schema`."""

from __future__ import annotations

import json

import click

from harness.cli.options import epilog


@click.command("schema", epilog=epilog("harness schema record > record.schema.json"))
@click.argument("what", type=click.Choice(["request", "record"]), default="record")
def command(what: str) -> None:
    """Print the JSON schema of requests (and so of TOML files) or of records."""
    from pydantic import BaseModel

    from harness.asking.request import Request
    from harness.store.record import RunRecord

    models: dict[str, type[BaseModel]] = {"request": Request, "record": RunRecord}
    text = json.dumps(models[what].model_json_schema(), indent=2, sort_keys=True)
    click.echo(text.replace('"schema_"', '"schema"'))
