"""A site on disk, and a browser that opens it.

Browser tests run where Playwright and Chromium are installed; with HARNESS_SITE_TESTS=1 they must.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sample_boards import PIXEL, defined_board, galleries, sample_board

from harness.drawing.pages import render, render_index

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = Path(os.environ.get("HARNESS_CHROMIUM", "/usr/bin/chromium"))
ARGUMENTS = (
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
REQUIRED = os.environ.get("HARNESS_SITE_TESTS") == "1"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    found = find_spec("playwright") is not None and CHROMIUM.exists()
    return True if collection_path.name == "test_browser.py" and not (found or REQUIRED) else None


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two measured boards, one that is only defined, and the index over them."""
    folder = tmp_path_factory.mktemp("leaderboards")
    boards = [sample_board(), sample_board("features-v2", "fashion"), defined_board()]
    (folder / "index.html").write_text(render_index(boards), encoding="utf-8")
    for board in boards:
        (folder / board.name / "galleries").mkdir(parents=True)
        (folder / board.name / "index.html").write_text(render(board), encoding="utf-8")
        for name in galleries(board):
            (folder / board.name / name).write_bytes(PIXEL)
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Browser, site: Path) -> Iterator[Callable[..., Page]]:
    """Opens a file of the site; whatever a test does, the page never errs or leaves the disk."""
    faults: list[str] = []

    def opened(path: str = "cifar10-v2/index.html", **options: Any) -> Page:
        page = browser.new_context(**options).new_page()
        page.set_default_timeout(5000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda m: faults.append(m.text) if m.type == "error" else None)
        page.on("request", lambda r: None if _local(r.url) else faults.append(r.url))
        page.goto((site / path).as_uri())
        return page

    yield opened
    for context in browser.contexts:
        context.close()
    assert faults == []


def _local(url: str) -> bool:
    return url.startswith(("file:", "data:"))
