"""`harness evaluate`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import (
    PATH,
    Part,
    config_option,
    epilog,
    given,
    json_option,
    print_answer,
    quiet_option,
    request_options,
)

if TYPE_CHECKING:
    from harness.store.record import RunRecord


@click.command(
    "evaluate",
    epilog=epilog(
        "harness evaluate --defense singmix --attack unet",
        'harness evaluate --defense "singmix[tau=1e-2]" --attack linear --dataset cifar10 --json',
        "harness evaluate --package clinic.release --truth 'folder[path=clinic]' --public fashion "
        "--attack suite --owner-key clinic.key",
    ),
)
@request_options()
@config_option
@click.option(
    "--owner-key", type=PATH, help="File whose bytes key the owner's secrets; else the seed does."
)
@click.option("--package", type=PATH, help="Attack a package of `harness release`, as it is.")
@click.option("--truth", metavar="DATASET", help="Whose images the package is of.")
@click.option("--part", type=Part(), help="Of the truth every N-th image from the K-th.")
@click.option("--force", metavar="STAGE", help="Run a stage and all after it anew.")
@click.option("--dry-run", is_flag=True, help="Show the plan and what is cached; run nothing.")
@quiet_option
@json_option
def command(
    config: Path | None,
    owner_key: Path | None,
    package: Path | None,
    truth: str | None,
    part: tuple[int, int] | None,
    force: str | None,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Run one attack against one defense and record what leaks.

    Options on the command line win over those in a file. What is stored already is not run again.

    With --package the release is that of the file: its law, space and rounds are the package's, and
    --truth, --private-size, --part and --seed name the images as they were named at the release.
    Without the owner's key attackers hold what leaves (threat model `released`), and images that
    attacks show are matched with the truth; with the key of `harness keygen` and its ledger any
    attack can be tried.
    """
    from harness.cli.progress import Bars

    asked = given(options, config)
    _check_package(package, truth, part, dry_run=dry_run)
    if dry_run:
        return _foresee(as_json, **asked, owner_key=_secret(owner_key), force=force)
    with Bars(quiet=quiet or as_json) as watching:
        if package and truth:
            named = package, truth, part, owner_key
            record = _of_package(*named, observer=watching, force=force, **asked)
        else:
            from harness.evaluation import evaluate

            secret = _secret(owner_key)
            record = evaluate(observer=watching, owner_key=secret, force=force, **asked)
    _show(as_json, record)
    return 0 if record.status == "ok" else 1


def _check_package(
    package: Path | None, truth: str | None, part: tuple[int, int] | None, *, dry_run: bool
) -> None:
    """UsageError for what belongs to a package and has none, and the other way round."""
    from harness.api.errors import UsageError

    if package is None and (truth is not None or part is not None):
        raise UsageError("--truth and --part are of a package; name it with --package.")
    if package is not None and truth is None:
        raise UsageError("A package is judged against its owner's images: name them with --truth.")
    if package is not None and dry_run:
        raise UsageError(f"--dry-run looks at no package; `harness inspect {package}` does.")


def _of_package(
    package: Path,
    truth: str,
    part: tuple[int, int] | None,
    owner_key: Path | None,
    **asked: Any,
) -> RunRecord:
    from harness.packages.attacked import Truth, attack_package
    from harness.packages.keys import read_owner_key

    key = read_owner_key(owner_key) if owner_key else None
    return attack_package(package, Truth(truth, part), key, **asked)


def _foresee(as_json: bool, **asked: Any) -> int:
    from harness.running.run import dry_run

    foreseen = dry_run(**asked)
    print_answer(as_json, foreseen, _lines(foreseen))
    return 0


def _show(as_json: bool, record: RunRecord) -> None:
    if as_json:
        click.echo(record.json_text())
        return
    from harness.cli.report import print_report
    from harness.store import cache_root
    from harness.store.record import Records

    print_report(record, Records(cache_root()))


def _secret(owner_key: Path | None) -> bytes | None:
    return read_key(owner_key) if owner_key else None


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


def _lines(foreseen: dict[str, Any]) -> Iterator[str]:
    """Channels, stages and which of them are stored, in the order of a run."""
    for name, value in foreseen.items():
        several = isinstance(value, dict)
        lines = [f"{k}: {v}" for k, v in value.items()] if several else [value]
        for number, line in enumerate(lines):
            yield f"{'' if number else name:<14} {line}"
