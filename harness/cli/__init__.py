"""The command line: one file per command, imported when it is called."""

from __future__ import annotations

from importlib import import_module

import click

from harness import __version__

COMMANDS = {
    "evaluate": "Run one attack against one defense and record what leaks.",
    "matrix": "Run every defense against every attack, or what a board is missing.",
    "leaderboard": "Build boards' tables and pages from their records, check or export them.",
    "advise": "Say which defenses keep an accuracy, and what leaked from each.",
    "ceiling": "Say what no attack exceeds, from a defense's law, before anything is run.",
    "control": "Check that attacks break what they are known to break.",
    "audit": "Bound a defense's epsilon from below, by coins guessed from one run.",
    "new-plugin": "Write the package of a defense or attack of your own.",
    "check": "Check a plugin against the contract, and say what to fix.",
    "submit": "Run a board's cells for your plugin and write a submission.",
    "verify": "Check records, boards and submissions; judge stored reconstructions again.",
    "challenge": "Make, attack and score challenges: encodings with a commitment to their truth.",
    "keygen": "Draw an owner's key.",
    "release": "Encode your images and write a package for a server.",
    "inspect": "Say what a package holds and promises, and check it.",
    "learn": "Learn from packages and write a model.",
    "predict": "Say which class images are of, by such a model.",
    "list": "List plugins: defenses, attacks, datasets, metrics, victims, ….",
    "describe": "Explain one plugin: its law, options, paper and weaknesses.",
    "show": "Show records again; several at once give a panel.",
    "assets": "List, fetch or find datasets and network weights.",
    "cache": "Look at, prune or verify what is kept between runs.",
    "doctor": "Check this installation and name what is broken.",
    "schema": "Print the JSON schema of requests and records.",
}


class LazyGroup(click.Group):
    """A group whose commands are imported only when they run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order a user meets them."""
        return [*COMMANDS]  # `list` is a module of this package once it has been imported

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command by name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"harness.cli.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or offer the nearest name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from harness.api.errors import nearest

            raise click.UsageError(f"No such command '{args[0]}'.{nearest(args[0], COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table above: nothing is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: harness evaluate --defense singmix --attack unet",
)
@click.version_option(__version__, prog_name="harness")
def cli() -> None:
    """Measure what leaks from images that are released for training.

    Every defense meets every attack. Leakage is what an attack gains over guessing.

    Exit codes: 0 done, 1 the cell has no result (and a record says why), 2 bad input,
    3 a broken integrity rule, 130 interrupted.
    """
