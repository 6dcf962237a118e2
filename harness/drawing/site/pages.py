"""Pages from views: templates filled, everything inlined, the same view the same bytes."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from harness.drawing.site import heat, scatter, standing
from harness.results import attackers, numerals, rows
from harness.results.headline import key_findings
from harness.results.leading import RANKING, leading
from harness.results.ranks import RULE
from harness.results.view import BoardView

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render(view: BoardView) -> str:
    """A board's page: one file that needs nothing but its galleries and records beside it."""
    metrics = view.metrics or RANKING[:1]
    anchors = standing.anchors(view)
    return _page("board.html.j2", view=view, metrics=metrics, anchors=anchors)


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
    page = environment.get_template(template)
    return (
        _squeezed(page.render(style=style, script=script, policy=policy, metrics=metrics, **values))
        + "\n"
    )


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("harness.drawing.site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for module in (heat, numerals, scatter, standing):
        environment.globals[module.__name__.rpartition(".")[2]] = module
    environment.filters.update(breakable=_breakable, coded=_coded)
    environment.globals.update(
        key_findings=key_findings,
        leading=leading,
        rows_in_order=rows.in_order,
        attacks_in_order=attackers.in_order,
        rule=RULE,
    )
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
