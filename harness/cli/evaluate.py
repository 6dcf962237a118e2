"""`harness evaluate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from harness.cli.options import epilog, json_option

CHOICES = {
    "release": ["encodings", "features", "gradients"],
    "preset": ["quick", "standard", "paper"],
    "only": ["privacy", "utility"],
    "targets_from": ["private", "heldout"],
    "bn_mode": ["train", "eval"],
    "device": ["auto", "cpu", "cuda", "mps"],
}
REQUEST_OPTIONS: dict[str, tuple[Any, str]] = {
    "defense": (str, "Defense or stack, such as 'singmix[tau=1e-2]'.  [default: singmix]"),
    "attack": (str, "Attack, such as 'linear[preset=paper]'.  [default: unet]"),
    "dataset": (str, "Dataset to protect.  [default: fashion-mini]"),
    "public": (str, "Take the attacker's images from another dataset."),
    "victim": (str, "Model trained on the release.  [default: cnn]"),
    "space": (str, "Where encodings live.  [default: pixels]"),
    "threat_model": (str, "What the attacker holds.  [default: informed]"),
    "release": (click.Choice(CHOICES["release"]), "What leaves.  [default: by stack and attack]"),
    "preset": (click.Choice(CHOICES["preset"]), "Sizes and budgets.  [default: quick]"),
    "only": (click.Choice(CHOICES["only"]), "Run one half."),
    "repeats": (int, "Trainings of the victim on one release.  [default: 1]"),
    "rounds": (int, "How often each image is encoded and released.  [default: 1]"),
    "private_size": (int, "Private images.  [default: by preset]"),
    "public_size": (int, "Public images.  [default: by preset]"),
    "test_size": (int, "Test images.  [default: by preset]"),
    "targets": (int, "Images to judge; 100 if held out.  [default: all]"),
    "targets_from": (
        click.Choice(CHOICES["targets_from"]),
        "Judge private images, or features of test images.  [default: private]",
    ),
    "batch_size": (int, "Images per released gradient.  [default: 1]"),
    "victim_epochs": (int, "Age of the model whose gradients leave.  [default: 1]"),
    "bn_mode": (click.Choice(CHOICES["bn_mode"]), "BatchNorm for gradients.  [default: train]"),
    "twice": (
        bool,
        "Attacks that can also at twice their effort.  [default: suites, unless quick]",
    ),
    "metrics": (str, "'all', or names parted by commas.  [default: by preset]"),
    "seed": (int, "Seed of everything public.  [default: 0]"),
    "seconds": (float, "Time limit of each attack.  [default: by preset]"),
    "megabytes": (int, "Memory limit of each attack.  [default: 8192]"),
    "device": (click.Choice(CHOICES["device"]), "Where to compute.  [default: auto]"),
    "threads": (int, "CPU threads.  [default: all cores]"),
}


def _request_options(function: Any) -> Any:
    for name, (kind, text) in reversed(REQUEST_OPTIONS.items()):
        flag = f"--{name.replace('_', '-')}"
        flag = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
        function = click.option(flag, name, type=kind, default=None, help=text)(function)
    return function


@click.command(
    "evaluate",
    epilog=epilog(
        "harness evaluate --defense singmix --attack unet",
        'harness evaluate --defense "singmix[tau=1e-2]" --attack linear --dataset cifar10 --json',
    ),
)
@_request_options
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with these options.")
@click.option(
    "--owner-key",
    type=click.Path(path_type=Path),
    help="File whose bytes key the owner's secrets; else the seed does.",
)
@click.option("--force", metavar="STAGE", help="Run a stage and all after it anew.")
@click.option("--dry-run", is_flag=True, help="Show the plan and what is cached; run nothing.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@json_option
def command(
    config: Path | None,
    owner_key: Path | None,
    force: str | None,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Run one attack against one defense and record what leaks.

    Options on the command line win over those in a file. What is stored already is not run again.
    """
    from harness.cli.progress import observer

    given = {**_from_file(config), **{k: v for k, v in options.items() if v is not None}}
    secret = read_key(owner_key) if owner_key else None
    if dry_run:
        return _dry_run(given, secret, force, as_json)
    from harness.running.evaluation import evaluate

    watching = observer(quiet=quiet or as_json or not sys.stderr.isatty())
    with watching:
        record = evaluate(observer=watching, owner_key=secret, force=force, **given)
    _print(record, as_json)
    return 0 if record.status == "ok" else 1


def _print(record: Any, as_json: bool) -> None:
    if as_json:
        click.echo(record.json_text())
        return
    from harness.cli.report import print_report
    from harness.store import cache_root
    from harness.store.records import Records

    print_report(record, Records(cache_root()))


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    from harness.asking.request import read_config

    return read_config(path)


def read_key(path: Path) -> bytes:
    """The owner's secret in a file; UsageError where there is none, or too little of one."""
    from harness.api.errors import UsageError

    try:
        secret = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The owner's key {path} cannot be read: {error.strerror}.") from None
    if len(secret) < 16:
        raise UsageError(f"The owner's key {path} has {len(secret)} bytes; it needs 16 at least.")
    return secret


def _dry_run(given: dict[str, Any], secret: bytes | None, force: str | None, as_json: bool) -> int:
    """Print the plan: channels, stages, and which of them are stored."""
    from harness.running.evaluation import dry_run

    foreseen = dry_run(owner_key=secret, force=force, **given)
    if as_json:
        import json

        click.echo(json.dumps(foreseen))
        return 0
    for name, value in foreseen.items():
        for number, line in enumerate(_lines(value)):
            click.echo(f"{'' if number else name:<14} {line}")
    return 0


def _lines(value: Any) -> list[str]:
    """One line, or one for each entry."""
    return [f"{k}: {v}" for k, v in value.items()] if isinstance(value, dict) else [str(value)]
