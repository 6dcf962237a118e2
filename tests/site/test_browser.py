"""A board's page in a browser, from the disk: what a reader sees, and what answers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    Visit = Callable[..., Page]

pytestmark = [pytest.mark.core, pytest.mark.browser]

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}


def ranking(page: Page) -> Locator:
    """The ranked table of the first track."""
    return page.locator("#encodings .ranking")


def defenses(page: Page) -> list[str]:
    """Those that the table shows, in its order."""
    return ranking(page).locator("> tbody:visible > tr > th .name").all_inner_texts()


def head(page: Page, name: str) -> Locator:
    return ranking(page).locator("thead th", has_text=name)


def row(page: Page, defense: str) -> Locator:
    return ranking(page).locator("> tbody").filter(has=page.get_by_role("button", name=defense))


def opened(page: Page, defense: str) -> Locator:
    row(page, defense).get_by_role("button", name=defense).click()
    return row(page, defense).locator(".opened")


def test_it_opens_from_the_disk_with_everything_in_it(visit: Visit):
    page = visit()
    assert page.title() == "cifar10 at its own resolution"
    assert page.locator("section.track").count() == 2
    assert len(defenses(page)) == 12


def test_a_column_sorts_and_says_so(visit: Visit):
    page = visit()
    accuracy = head(page, "Accuracy")
    accuracy.get_by_role("button").click()
    assert accuracy.get_attribute("aria-sort") == "descending"
    assert head(page, "Rank").get_attribute("aria-sort") == "none"
    assert defenses(page)[:3] == ["none", "mixup[k=2]", "singmix[tau=1e-4]"]
    accuracy.get_by_role("button").click()
    assert accuracy.get_attribute("aria-sort") == "ascending"
    assert defenses(page)[:2] == ["noise[sigma=2]", "singmix[tau=1e0]"]


def test_a_column_sorts_by_keyboard(visit: Visit):
    page = visit()
    head(page, "SNR gain").get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert defenses(page)[0] == "singmix[tau=1e0]"


def test_text_filters_rows_of_the_table_and_of_the_map(visit: Visit):
    page = visit()
    page.get_by_label("Find").fill("SingMix")
    assert all(name.startswith("singmix") for name in defenses(page))
    assert page.locator("#encodings .heat:visible tbody tr:visible").count() == 4
    assert page.locator("#count").inner_text() == "8 of 24 rows"
    page.get_by_label("Find").fill("")
    assert len(defenses(page)) == 12


def test_the_strongest_attack_is_found_too(visit: Visit):
    page = visit()
    page.get_by_label("Find").fill("unet")
    assert defenses(page) == ["instahide[k=2]", "instahide[k=4]"]


def test_a_threat_model_shows_its_attacks_alone(visit: Visit):
    page = visit()
    page.get_by_label("Threat model").select_option("released")
    gains = row(page, "mixup[k=2]").locator("td.g0")
    assert gains.inner_text().startswith("+5.6")  # carlini's, not the +9.4 of linear
    columns = page.locator("#encodings .heat:visible thead th:visible").all_inner_texts()
    assert columns == ["carlini released", "luo released"]
    cells = opened(page, "mixup[k=2]").locator("details.cell:visible > summary b")
    assert cells.all_inner_texts() == ["carlini", "luo"]


def test_a_row_opens_to_its_cells_and_each_cell_to_its_proof(visit: Visit):
    page = visit()
    inside = opened(page, "mixup[k=2]")
    assert inside.is_visible()
    cell = inside.locator("details.cell").first
    cell.locator("> summary").click()
    assert cell.get_by_text("It tells pairs of one image apart").is_visible()
    assert cell.locator("img").evaluate("img => img.decode().then(() => img.naturalWidth)") == 1
    link = cell.get_by_role("link").first.get_attribute("href")
    assert link is not None
    assert link.startswith("records/")
    button = row(page, "mixup[k=2]").get_by_role("button", name="mixup[k=2]")
    assert button.get_attribute("aria-expanded") == "true"
    button.click()
    assert not inside.is_visible()


def test_a_command_is_copied(visit: Visit):
    page = visit()
    cell = opened(page, "mixup[k=2]").locator("details.cell").first
    cell.locator("> summary").click()
    cell.get_by_role("button", name="Copy").click()
    cell.get_by_role("button", name="Copied").wait_for()
    page.get_by_label("Find").focus()
    page.keyboard.press("Control+V")
    command = "harness evaluate --defense 'mixup[k=2]' --attack linear --seed {}"
    pasted = page.get_by_label("Find").input_value()
    assert "".join(pasted.split()) == "".join("".join(map(command.format, (0, 1, 2))).split())


@pytest.mark.parametrize("script", [True, False])
def test_another_metric_changes_picture_and_map(visit: Visit, script: bool):
    page = visit(java_script_enabled=script)
    page.get_by_text("LPIPS", exact=True).first.click()
    assert "LPIPS gain" in str(
        page.locator("#encodings .plane:not(.curves):visible .axis").text_content()
    )
    assert "LPIPS gain" in page.locator("#encodings .heat:visible caption").inner_text()


def test_a_mark_tells_its_numbers_and_leads_to_its_row(visit: Visit):
    page = visit(viewport=DESKTOP)
    mark = page.locator("#encodings .plane:not(.curves):visible .mark", has_text="tau=1e-2")
    mark.locator(".sign").hover()
    lines = page.get_by_role("tooltip").inner_text().splitlines()
    assert lines[0] == "singmix[tau=1e-2]"
    assert "SNR gain +3.3 dB [+3.0, +3.6]" in lines
    mark.locator(".sign").click()
    row(page, "singmix[tau=1e-2]").locator(".opened").wait_for()
    page.mouse.move(0, 0)
    assert not page.get_by_role("tooltip").is_visible()


def test_a_mark_is_touched_once_to_read_it_and_twice_to_go_there(visit: Visit):
    page = visit(viewport=PHONE, has_touch=True, is_mobile=True)
    sign = page.locator("#encodings .plane:not(.curves):visible .mark").nth(3).locator(".sign")
    sign.tap()
    assert page.get_by_role("tooltip").is_visible()
    assert page.evaluate("location.hash") == ""
    sign.tap()
    page.wait_for_url("**#row-encodings-*")


def test_error_bars_do_not_keep_a_mark_from_its_reader(visit: Visit):
    page = visit(viewport=DESKTOP)
    for mark in page.locator("#encodings .plane:not(.curves):visible .mark").all():
        mark.locator(".sign").hover()
        assert page.get_by_role("tooltip").inner_text().startswith(named(mark))


def named(mark: Locator) -> str:
    return str(mark.get_attribute("aria-label")).partition(", ")[0]


def test_an_address_opens_its_row(visit: Visit):
    page = visit("cifar10-v2/index.html")
    page.goto(page.url + "#row-encodings-mixup-k-4")
    page.reload()
    row(page, "mixup[k=4]").locator(".opened").wait_for()


@pytest.mark.parametrize("path", ["index.html", "cifar10-v2/index.html", "paper-v1/index.html"])
def test_a_phone_never_scrolls_sideways(visit: Visit, path: str):
    page = visit(path, viewport=PHONE, is_mobile=True)
    for button in page.locator(".open").all()[:3]:
        button.click()
    for cell in page.locator("details:visible").all()[:6]:
        cell.evaluate("details => { details.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_without_javascript_everything_is_there(visit: Visit):
    page = visit(java_script_enabled=False)
    assert len(defenses(page)) == 12
    assert (
        page.locator("#encodings .plane:not(.curves):visible .mark").count() == 11
    )  # one lacks a cell
    first = ranking(page).locator("> tbody").first
    first.locator("summary").first.click()
    first.locator("details.cell > summary").first.click()
    assert first.get_by_text("harness evaluate --defense 'mixup[k=2]' --attack linear").is_visible()
    assert not page.get_by_label("Find").is_visible()  # nothing that would not work


def test_letters_stand_out_in_light_and_dark(visit: Visit):
    for scheme in ("light", "dark"):
        page = visit(color_scheme=scheme)
        cells = page.locator("#encodings .heat:visible td[class^=h], .chip:visible, figcaption")
        poor = [c for c in cells.evaluate_all(CONTRASTS) if c < 4.5]
        assert poor == [], scheme


CONTRASTS = """cells => {
  const light = (rgb) => {
    const parts = rgb.match(/[0-9.]+/g).slice(0, 3).map((v) => v / 255);
    const linear = parts.map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (el) => {
    const back = getComputedStyle(el).backgroundColor;
    return back === "rgba(0, 0, 0, 0)" ? behind(el.parentElement) : back;
  };
  return cells.map((el) => {
    const both = [light(getComputedStyle(el).color), light(behind(el))].sort((a, b) => b - a);
    return (both[0] + 0.05) / (both[1] + 0.05);
  });
}"""
"""How much lighter the lighter one of letters and ground is, as WCAG counts it."""


def test_the_index_keeps_the_boards_of_a_dataset(visit: Visit):
    page = visit("index.html")
    page.get_by_label("Dataset").select_option("fashion")
    links = page.locator(".boards li:visible h2 a")
    assert links.all_inner_texts() == ["fashion at its own resolution"]
    links.first.click()
    assert page.title() == "fashion at its own resolution"
    page.get_by_role("link", name="All boards").click()
    assert page.title() == "Leaderboards"
