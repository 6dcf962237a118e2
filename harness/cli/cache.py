"""`harness cache`."""

from __future__ import annotations

import click

from harness.cli.options import FiniteRange, epilog, json_option, print_answer


@click.group("cache", epilog=epilog("harness cache info", "harness cache prune --days 30"))
def command() -> None:
    """Look at, prune or verify what is kept between runs.

    The folder is $HARNESS_CACHE, or the user's cache folder.
    """


@command.command("info", epilog=epilog("harness cache info --json"))
@json_option
def info(as_json: bool) -> None:
    """Say where the cache is and what it holds."""
    from harness.store.upkeep import summary

    facts = summary()
    artifacts = (
        f"  {stage:<10} {count:>6} artifacts {size / 2**20:>10.1f} MB"
        for stage, (count, size) in facts["artifacts"].items()
    )
    beside = (
        f"  {'records':<10} {facts['records']:>6}",
        f"  {'features':<10} {'':>16} {facts['features_bytes'] / 2**20:>10.1f} MB",
        f"  {'assets':<10} {'':>16} {facts['assets_bytes'] / 2**20:>10.1f} MB",
    )
    print_answer(as_json, facts, [facts["root"], *artifacts, *beside])


@command.command(
    "prune", epilog=epilog("harness cache prune --days 30", "harness cache prune --all")
)
@click.option("--days", type=FiniteRange(min=0), default=30.0, show_default=True)
@click.option("--all", "everything", is_flag=True, help="Drop every artifact.")
@json_option
def prune(days: float, everything: bool, as_json: bool) -> None:
    """Drop artifacts and features unused for this many days. Records, pictures and assets stay."""
    from harness.store.upkeep import prune as run

    count, size = run(0.0 if everything else days)
    said = f"Dropped {count} artifacts, {size / 2**20:.1f} MB."
    print_answer(as_json, {"artifacts": count, "bytes": size}, [said])


@command.command(
    "verify", epilog=epilog("harness cache verify --remove", "harness cache verify --adopt")
)
@click.option("--remove", is_flag=True, help="Drop what is corrupt.")
@click.option(
    "--adopt",
    is_flag=True,
    help="Seal what is whole but for this cache's seal: trust what an older version, or another "
    "cache, left here.",
)
@json_option
def verify(remove: bool, adopt: bool, as_json: bool) -> int:
    """Check every artifact and record against its hash and seal. Exits 3 if one is corrupt."""
    from harness.api.errors import EXIT_INTEGRITY
    from harness.store import upkeep

    adopted = upkeep.adopt() if adopt else 0
    faults = upkeep.verify(remove=remove)
    lines = [f"{'removed' if remove else 'corrupt'}: {fault}" for fault in faults]
    lines += [f"Sealed {adopted} entries."] if adopt else []
    values = {"corrupt": faults, "removed": remove, "adopted": adopted}
    print_answer(as_json, values, lines or ["Everything is what its hash says."])
    return EXIT_INTEGRITY if faults and not remove else 0
