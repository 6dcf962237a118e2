"""Pages as text: all that is in a view, nothing that a stranger could smuggle in."""

from __future__ import annotations

from collections.abc import Sequence
from html.parser import HTMLParser

import pytest
from sample_boards import cell, defined_board, sample_board, track

from harness.leaderboard.headline import key_findings
from harness.leaderboard.site import render, render_index
from harness.leaderboard.view import BoardView, RowView

pytestmark = pytest.mark.core

ALONE = {"meta", "link", "input", "img", "wbr"}
"""Elements without an end."""


class Page(HTMLParser):
    """What is open, every id, every start tag, and the text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in ALONE:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"line {self.getpos()[0]} closes {tag}"

    def handle_data(self, data: str) -> None:
        self.text += "" if self.open and self.open[-1] in ("style", "script") else data


@pytest.mark.parametrize("view", [sample_board(), defined_board()], ids=["measured", "defined"])
def test_tags_balance_and_ids_are_unique(view: BoardView):
    page = Page(render(view))
    assert page.open == []
    assert len(page.ids) == len({*page.ids})
    targets = [attrs["href"] for tag, attrs in page.tags if tag == "a" and "href" in attrs]
    inside = {target[1:] for target in targets if target and target.startswith("#")}
    assert inside <= {*page.ids}


def test_every_row_and_every_reason_is_there():
    view = sample_board()
    page = Page(render(view))
    for row in view.tracks[0].rows:
        assert row.defense in page.text
        for each in row.cells:
            assert each.command in page.text
            assert each.reason in page.text


def test_what_is_code_in_prose_is_code_in_the_page():
    assert "rounds; <code>linear</code> knows" in render(sample_board())


def test_the_same_view_gives_the_same_bytes():
    assert render(sample_board()) == render(sample_board())


def test_what_a_stranger_writes_stays_text():
    """Names and reasons come from submissions that anybody can send."""
    attack = '<script>alert(1)</script><img src=x onerror=alert(2)>" onload="alert(3)'
    hostile = cell("mixup[k=2]", "linear", "informed", 3.0).model_copy(
        update={"reason": attack, "findings": (attack,), "command": attack, "commit": attack}
    )
    view = sample_board().model_copy(
        update={
            "title": attack,
            "tracks": (track("encodings", attack).model_copy(update={"rows": (_row(hostile),)}),),
        }
    )
    page = Page(render(view))
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not [attrs for _, attrs in page.tags if {"onload", "onerror"} & {*attrs}]
    assert attack in page.text


def _row(*cells) -> RowView:
    return sample_board().tracks[0].rows[1].model_copy(update={"cells": cells})


def test_the_policy_allows_this_style_and_this_script_alone():
    tags = Page(render(sample_board())).tags
    policy = next(a["content"] for _, a in tags if a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert policy.count("sha256-") == 2
    assert "unsafe" not in policy
    assert not [attrs for _, attrs in tags if "style" in attrs]


def test_a_page_loads_its_galleries_and_nothing_else():
    tags = Page(render(sample_board())).tags
    sources = {attrs.get("src") for tag, attrs in tags if attrs.get("src")}
    assert sources
    assert all(str(source).startswith("galleries/") for source in sources)


def test_defenses_whose_names_look_alike_have_places_of_their_own():
    rows = [_row().model_copy(update={"defense": name}) for name in ("a[b=1]", "a[b=-1]", "A[b=1]")]
    one = track("encodings", "Encodings").model_copy(update={"rows": tuple(rows)})
    page = Page(render(sample_board().model_copy(update={"tracks": (one,)})))
    ids = [each for each in page.ids if each.startswith("row-")]
    assert sorted(ids) == [
        "row-encodings-a-b-1",
        "row-encodings-a-b-1--2",
        "row-encodings-a-b-1--3",
    ]


def test_a_large_board_stays_small():
    """30 defenses against 15 attacks on three seeds are 1 350 records."""
    cells = tuple(cell("mixup[k=2]", f"attack-{i}", "informed", i / 2) for i in range(15))
    rows = tuple(_row(*cells).model_copy(update={"defense": f"mixup[k={i}]"}) for i in range(2, 32))
    one = track("encodings", "Encodings").model_copy(update={"rows": rows})
    page = render(sample_board().model_copy(update={"tracks": (one,)}))
    assert len(page.encode()) < 1_000_000


def test_findings_are_computed():
    front, leakage, trust = key_findings(sample_board())
    assert front.startswith("Encodings: 6 of 12 ranked defenses are on the front")
    assert "mixup[k=2] (accuracy 83.0%, SNR gain +9.4 dB [+9.1, +9.7])" in front
    assert "singmix[tau=1e0] (accuracy 55.0%, SNR gain +0.2 dB [−0.1, +0.5], unverified)" in front
    assert "against 22 of 24 ranked rows; most often it is linear (18 times)" in leakage
    assert trust == (
        "2 of 24 rows are unverified; "
        "of 144 cells 6 cannot be, 2 failed, 2 ran out of time, 2 not run yet."
    )


def test_a_board_that_was_not_run_says_so():
    assert key_findings(defined_board()) == ("This board is defined and has not been run: 1 cell.",)
    assert "guessing" not in Page(render(defined_board())).text.partition("How to read it")[0]


def test_the_index_links_boards_that_have_numbers_first():
    tags = Page(render_index([defined_board(), sample_board()])).tags
    links = [attrs["href"] for tag, attrs in tags if tag == "a"]
    assert [link for link in links if link and "/" in link] == [
        "cifar10-v1/index.html",
        "paper-v1/index.html",
    ]
