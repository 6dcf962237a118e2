"""`harness keygen`."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import PATH, epilog, json_option, print_answer


@click.command(
    "keygen", epilog=epilog("harness keygen clinic.key", "harness keygen boards.key --signing")
)
@click.argument("path", metavar="FILE", type=PATH)
@click.option("--signing", is_flag=True, help="A key that signs boards instead, without a ledger.")
@json_option
def command(path: Path, signing: bool, as_json: bool) -> None:
    """Draw an owner's key into a new file that nobody else can read.

    All that a release hides is drawn from it. Whoever has the key and a package has the images that
    are in it. Beside it FILE.ledger begins, in which `harness release` writes down what left; keep
    both, and never send either.
    """
    if signing:
        from harness.boards.signing import draw_signing_key

        name = draw_signing_key(path)
        values = {"key": str(path), "fingerprint": name}
    else:
        from harness.packages.ledger import draw_key, ledger_of

        name = draw_key(path).fingerprint
        values = {"key": str(path), "ledger": str(ledger_of(path)), "fingerprint": name}
    print_answer(as_json, values, [f"key  {path} (mode 0600), fingerprint {name}"])
