"""Boards as pages: one self-contained file each, read without a server, a network or JavaScript.

Templates are filled and everything is inlined; the same view gives the same bytes.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from harness.boards.answering import lacking
from harness.drawing import heat, svg
from harness.results import numbers
from harness.results.bracket import in_decibels, proven
from harness.results.headline import key_findings
from harness.results.identified import in_words
from harness.results.numbers import counted
from harness.results.ranks import RULE, attacks_in_order, rows_in_order
from harness.results.view import WEAK, BoardView, CellView, Leak, RowView
from harness.scoring.verdict import ABSOLUTE

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render(view: BoardView) -> str:
    """A board's page: one file that needs nothing but its galleries and records beside it."""
    metrics = view.metrics or (view.main_metric,)
    return _page("board.html.j2", view=view, metrics=metrics, anchors=anchors(view))


def render_index(views: Sequence[BoardView]) -> str:
    """The page over all boards, which lie in folders of their names beside it."""
    ordered = sorted(views, key=lambda view: (view.status != "measured", view.name))
    return _page("index.html.j2", metrics=(), views=ordered)


def _page(template: str, metrics: Sequence[str], **values: object) -> str:
    """The filled template with its style and its script, and a policy that allows no others."""
    environment = _environment()
    style = _squeezed(environment.get_template("style.css.j2").render(metrics=metrics))
    script = _squeezed(environment.get_template("page.js.j2").render())
    policy = (
        "default-src 'none'; img-src 'self' file: data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    )
    values |= {"style": style, "script": script, "policy": policy, "metrics": metrics}
    return _squeezed(environment.get_template(template).render(values)) + "\n"


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("harness.drawing"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(breakable=_breakable, coded=_coded)
    environment.globals.update(
        heat=heat, numbers=numbers, svg=svg, rule=RULE, weak=WEAK, ABSOLUTE=ABSOLUTE
    )
    environment.globals.update({function.__name__: function for function in CALLED})
    return environment


def _breakable(text: str) -> Markup:
    """A plugin's name and options, which may go on in a new line after any of them."""
    from markupsafe import Markup

    return Markup("<wbr>").join(re.split(r"(?<=[\[,+])", text))


def _coded(text: str) -> Markup:
    """Prose with what stands in backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _squeezed(text: str) -> str:
    """The text without indentation and empty lines, which a page has no use for."""
    return "\n".join(filter(None, map(str.strip, text.splitlines())))


def _hash(text: str) -> str:
    """A text as a content security policy names it."""
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def cells_in_order(row: RowView, metric: str) -> list[CellView]:
    """A row's cells, the strongest attack first, those without a number last."""

    def place(cell: CellView) -> tuple[bool, float, bool, str, str]:
        leak = cell.leak(metric)
        gain = -leak.gain.value if leak else 0.0
        return leak is None, gain, cell.status != "ok", cell.attack, cell.threat_model

    return sorted(row.cells, key=place)


def threat_models(rows: Iterable[RowView]) -> list[str]:
    """All threat models that rows were attacked under, by name."""
    return sorted({cell.threat_model for row in rows for cell in row.cells})


def strongest_under(row: RowView, model: str, metric: str) -> tuple[str, Leak] | None:
    """Of the attacks under a threat model the one with the largest mean gain, and its leak."""
    under = [cell for cell in row.cells if cell.threat_model == model]
    found = [(cell.attack, leak) for cell in under if (leak := cell.leak(metric))]
    return max(found, key=lambda each: each[1].gain.value, default=None)


def anchors(view: BoardView) -> dict[tuple[str, str], str]:
    """The id of each row in the page, by track and defense: readable, and no two alike."""
    found: dict[tuple[str, str], str] = {}
    uses: Counter[str] = Counter()
    for track in view.tracks:
        for row in track.rows:
            text = f"{track.name}-{row.defense}".lower()
            name = "row-" + re.sub(r"[^a-z0-9.]+", "-", text).strip("-")
            uses[name] += 1  # no name holds two dashes, so one with a number is nobody else's
            number = f"--{uses[name]}" if uses[name] > 1 else ""
            found[track.name, row.defense] = name + number
    return found


def attacks(view: BoardView) -> set[str]:
    """Every attack of a board, options and all."""
    return {cell.attack for row in view.rows for cell in row.cells}


def record_path(cell: CellView, record: str) -> str:
    """Where a record lies, from the board's folder: with its submission if it came with one."""
    home = cell.homes.get(record)
    folder = f"submissions/{home}/" if home else ""
    return f"{folder}records/{record}.json"


def leaks_in_order(leaks: Mapping[str, Leak], metrics: Iterable[str]) -> list[Leak]:
    """Leaks by each metric, after it that on absolute values."""
    names = (name for metric in metrics for name in (metric, metric + ABSOLUTE))
    return [leaks[name] for name in names if name in leaks]


CALLED = (
    *(counted, key_findings, rows_in_order, attacks_in_order, cells_in_order, leaks_in_order),
    *(lacking, threat_models, strongest_under, attacks, record_path, in_words, in_decibels, proven),
)
"""What templates call, by their own names."""
