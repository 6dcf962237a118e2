"""`harness audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import (
    FiniteRange,
    epilog,
    given,
    json_option,
    print_answer,
    quiet_option,
    request_option,
    request_options,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.auditing import AuditReport, Design

ASKED = (
    *("defense", "dataset", "public", "space", "rounds", "public_size", "victim"),
    *("seconds", "seed", "threads"),
)


@click.command(
    "audit",
    epilog=epilog(
        "harness audit --defense 'singmix[tau=1e-2]' --dataset fashion --coins 1000",
        "harness audit --defense 'singmix[radius=9,noise=gaussian]' --dataset fashion --json",
        "harness audit --defense 'dpmeans[epsilon=8]' --dataset fashion --guesses 100",
        "harness audit --defense 'mixup[k=2]' --dataset fashion --guesser innerproduct",
        "harness audit --defense none --dataset fashion --guesser lira --learner ridge",
    ),
)
@click.option(
    "--guesser",
    default="likelihood",
    show_default=True,
    help="Who guesses: likelihood, by the law; an attack that ranks candidates, such as "
    "matchedfilter; or membership of a model trained on what leaves, loss or lira.",
)
@request_option(
    "learner",
    "Who is trained for loss and lira.",
    unset="ridge, or noisymeans where sums leave",
)
@request_options(*ASKED)
@click.option(
    "--coins", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Fair coins."
)
@click.option(
    "--guesses", type=click.IntRange(min=1), help="Coins to guess, the surest.  [default: all]"
)
@click.option(
    "--delta", type=FiniteRange(), default=1e-5, show_default=True, help="Of the budget bounded."
)
@quiet_option
@json_option
def command(
    guesser: str,
    coins: int,
    guesses: int | None,
    delta: float,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Bound a defense's epsilon from below, by one run and the coins guessed from it.

    Each coin chooses which of two images of one class is released. The number of guesses is fixed
    before anything is released. The bound is wrong in 5 % of audits at most, whatever the defense
    is, and says nothing of other neighbours than one image replaced by another of its class.
    """
    from harness.auditing import Design, audit
    from harness.cli.progress import Bars

    design = Design(coins, guesses or coins, delta)
    if not as_json:
        click.echo(_fixed(design))
    with Bars(quiet=quiet or as_json) as observer:
        report = audit(design, observer, guesser=guesser, **given(options))
    print_answer(as_json, report.model_dump(mode="json"), lines(report))


def _fixed(design: Design) -> str:
    return (
        f"fixed beforehand: {design.coins} coins, {design.guesses} guesses, delta "
        f"{design.delta:g}, level {design.level:g}"
    )


def lines(report: AuditReport) -> Iterator[str]:
    """What people read of an audit."""
    yield f"{report.defense} on {report.dataset}, {report.space}, {_rounds(report.rounds)}"
    yield f"guesser    {report.guesser}: {report.right} of {report.guesses} right"
    yield f"adjacency  {report.adjacency}"
    most = "–" if report.epsilon_at_most is None else f"{report.epsilon_at_most:.3g} of these pairs"
    why = f" ({report.uncertified})" if report.uncertified else ""
    yield f"epsilon    at least {report.epsilon_at_least:.3g}, at most {most}{why}"
    yield f"           this design finds {report.largest:.3g} at most"
    if report.epsilon_at_least_gaussian is not None:
        yield f"           at least {report.epsilon_at_least_gaussian:.3g} as Gaussian noise"
    if report.apart is not None:
        yield f"proven     epsilon {report.apart.epsilon:.3g} at delta {report.apart.delta:g}"
        yield f"           of other neighbours, not to be compared: {report.apart.adjacency}"


def _rounds(count: int) -> str:
    return "one round" if count == 1 else f"{count} rounds"
