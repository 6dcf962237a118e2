"""The documentation, read without building it: links that lead somewhere, and the whole API."""

from __future__ import annotations

import re
import tomllib
from inspect import ismodule
from pathlib import Path

import pytest

import harness.api
from harness.boards.protocol import Board

pytestmark = pytest.mark.core
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\((?P<to>[^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
LARGEST = 8 * 1024
"""Bytes of a README that is one page."""


def links(path: Path) -> list[str]:
    """Where a page links to, but for the network and for places on the page itself."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    found = [match["to"].partition("#")[0] for match in LINK.finditer(text)]
    return [to for to in found if to and not to.startswith(("http:", "https:"))]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_what_stands_beside_the_docs_links_to_files_that_are_there(name: str) -> None:
    targets = links(ROOT / name)
    assert "docs/plugins/index.md" in targets
    assert [to for to in targets if not (ROOT / to).exists()] == []


def test_pages_link_to_no_file_outside_the_docs() -> None:
    for page in DOCS.rglob("*.md"):
        for to in links(page):
            target = (page.parent / to).resolve()
            assert target.exists(), f"{page}: {to}"
            assert target.is_relative_to(DOCS), f"{page}: {to} is not in the built site"


def test_every_page_can_be_reached_from_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2]
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert pages == set(re.findall(r"[\w/-]+\.md", menu))


def test_the_api_page_has_every_public_name() -> None:
    page = (DOCS / "plugins" / "api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^::: harness\.api\.(\w+)$", page, re.M))
    offered = {name for name, value in vars(harness.api).items() if not ismodule(value)}
    assert documented >= {name for name in offered if not name.startswith("_")}


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= LARGEST


def test_the_docs_are_built_where_changes_are_checked() -> None:
    tox = (ROOT / "tox.ini").read_text(encoding="utf-8")
    assert "mkdocs build --strict" in tox
    for place in (".ci/run", ".github/workflows/tests.yml"):
        assert ",docs," in (ROOT / place).read_text(encoding="utf-8")


def test_examples_of_a_board_are_such() -> None:
    page = (DOCS / "boards.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```$", page, re.M | re.S)
    whole, curve, ranked = map(tomllib.loads, blocks)
    (track,) = Board.model_validate(
        {**whole, "tracks": [{**whole["tracks"][0], **curve["tracks"]}]}
    ).tracks
    assert [part.private_size for part in track.utility] == [(1000, 10_000), (45_000,)]
    assert [track.name for track in Board.model_validate(whole).tracks] == ["once"]
    options = {**whole["options"], **ranked["options"]}
    assert Board.model_validate({**whole, **ranked, "options": options}).ranking == ("max_error",)


def test_the_design_names_every_layer_and_only_files_that_are_there() -> None:
    page = (DOCS / "design.md").read_text(encoding="utf-8")
    rooms = set(re.findall(r"^\| `(\w+)` \|", page, re.M))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    assert rooms == {*layers} - {"__main__"}
    files = re.findall(r"`((?:harness|running|asking)/[\w/]+\.py)`", page)
    assert len(files) > 10
    for file in files:
        assert (ROOT / file).exists() or (ROOT / "harness" / file).exists(), file
