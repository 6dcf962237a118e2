"""Pages as text: all that is in a view, nothing that a stranger could smuggle in."""

from __future__ import annotations

from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sample_boards import cell, defined_board, leaks, sample_board, track

from harness.drawing.markdown import readme
from harness.drawing.pages import render, render_index
from harness.results.headline import key_findings
from harness.results.ranks import RULE
from harness.results.view import BoardView, Number, RowView, TrackView

pytestmark = pytest.mark.core

ROOT = Path(__file__).parents[2]
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
            assert all(command in page.text for command in each.commands)
            assert each.reason in page.text


def test_what_is_code_in_prose_is_code_in_the_page():
    assert "rounds; <code>linear</code> knows" in render(sample_board())


def test_the_same_view_gives_the_same_bytes():
    assert render(sample_board()) == render(sample_board())


def test_what_a_stranger_writes_stays_text():
    """Names and reasons come from submissions that anybody can send."""
    attack = '<script>alert(1)</script><img src=x onerror=alert(2)>" onload="alert(3)'
    hostile = cell("mixup[k=2]", "linear", "informed", 3.0).model_copy(
        update={"reason": attack, "findings": (attack,), "commands": (attack,), "commit": attack}
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
    assert len(page.encode()) < 1_200_000


def test_findings_are_computed():
    lacking, front, leakage, naming, trust = key_findings(sample_board())
    assert lacking == (
        "This board has 2 cells not run yet: 2 of 22 rows of defenses lack some and have no rank."
    )
    assert front.startswith("Encodings: 4 of 10 ranked defenses are on the front; they go from")
    assert "`mixup[k=2]` (accuracy 83.0%, SNR gain +9.4 dB [+9.1, +9.7])" in front
    last = "(accuracy 74.0%, SNR gain +1.1 dB [+0.8, +1.4], images named among candidates)."
    assert front.endswith(f"to `singmix[tau=1e-1]` {last}")
    assert "against 20 of 20 ranked rows; most often it is `linear` (16 times)" in leakage
    assert naming == (
        "Among candidates, images are named in 8 of the 14 rows where an attack asked: under "
        "`singmix[tau=1e-4]`, `sphere` puts a true image first for 50.0% [40.0, 60.0] of 200 "
        "encodings, among 500 candidates (chance 0.2%; AUC 0.750, chance 0.5)."
    )
    assert trust == (
        "2 of 24 rows are unverified, 2 older: of earlier source, versions or options; "
        "of 144 pairs of a defense and an attack "
        "6 cannot be, 2 failed, 2 ran out of time, 2 not run yet."
    )


def test_what_teaches_nothing_is_not_praised():
    """Rows at chance are counted on the front, and no end of it."""
    view = sample_board()
    rows = [_at(row, 0.09) if row.defense == "singmix[tau=1e-1]" else row for row in _all(view)]
    (front, *_) = _of(view, rows)
    assert (
        "4 of 10 ranked defenses are on the front, 1 with an accuracy that is not surely" in front
    )
    assert "`singmix[tau=1e-1]`" not in front
    (front, *_) = _of(view, [_at(row, 0.09) for row in rows])
    assert front.endswith("on the front, 4 with an accuracy that is not surely above chance.")
    page = render(view.model_copy(update={"tracks": (_only(view, rows),)}))
    assert page.count("<small>chance</small>") == 1
    assert "the strongest learner here found nothing</span>" in page
    assert _upright(page) == len(view.metrics)
    assert _upright(render(view)) == 0


def _upright(page: str) -> int:
    """Lines of chance in planes; those of curves lie flat."""
    lines = (line for line in page.splitlines() if '<path class="chance"' in line)
    return sum("V" in line.partition("<title>")[0] for line in lines)


def test_what_hides_nothing_is_not_praised():
    view = sample_board()
    bare = {"leaks": leaks(119.0, "linear")}
    rows = [r.model_copy(update=bare) if r.defense == "mixup[k=2]" else r for r in _all(view)]
    (front, *_) = _of(view, rows)
    assert "on the front, 1 with the images as good as given away; the others go from" in front
    assert "`mixup[k=2]`" not in front


def test_a_front_of_one_is_named():
    view = sample_board()
    ranks = {row.defense: 1 if row.defense == "mixup[k=4]" else 2 for row in _all(view)}
    rows = [r.model_copy(update={"rank": {"snr_db": ranks[r.defense]}}) for r in _all(view)]
    (front, *_) = _of(view, rows)
    assert "is on the front: `mixup[k=4]` (accuracy 79.0%" in front


def _all(view: BoardView) -> tuple[RowView, ...]:
    return view.tracks[0].rows


def _at(row: RowView, accuracy: float) -> RowView:
    number = Number(value=accuracy, ci=(accuracy - 0.01, accuracy + 0.01))
    return row.model_copy(update={"accuracy": number})


def _only(view: BoardView, rows: Sequence[RowView]) -> TrackView:
    return view.tracks[0].model_copy(update={"rows": tuple(rows)})


def _of(view: BoardView, rows: Sequence[RowView]) -> tuple[str, ...]:
    """What is found of these rows alone, as if no cell were missing."""
    return key_findings(view.model_copy(update={"tracks": (_only(view, rows),), "missing": 0}))


def test_the_reference_is_shown_without_a_rank():
    page = render(sample_board())
    assert '<span class="m m0" data-v="">ref</span>' in page
    assert "the reference, without a rank" in page
    assert "11 defenses. " in page


def test_what_is_not_whole_says_so_first():
    page = render(sample_board())
    assert "<b>Not whole: 1 cell not run, and rows that lack any have no rank.</b>" in page


def test_claims_are_shown_as_they_were_written():
    one, two = sample_board().claims
    claims = (one.model_copy(update={"claimed": -7.45}), two)
    page = render(sample_board().model_copy(update={"claims": claims}))
    assert '<td class="n">−7.45</td>' in page
    assert '<td class="n">0.041</td>' in page


def test_a_cell_has_a_command_for_every_seed():
    page = Page(render(sample_board()))
    for seed in (0, 1, 2):
        assert f"harness evaluate --defense 'mixup[k=2]' --attack unet --seed {seed}" in page.text


def test_the_rule_of_ranks_is_one_sentence_everywhere():
    page = Page(render(sample_board()))
    assert RULE in page.text
    assert RULE in " ".join(readme(sample_board()).split())
    for name in ("docs/boards.md", "CONTRIBUTING.md"):
        assert RULE in " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_a_board_that_was_not_run_says_so():
    assert key_findings(defined_board()) == ("This board is defined and has not been run: 1 cell.",)
    assert "guessing" not in Page(render(defined_board())).text.partition("How to read it")[0]


def test_the_index_links_boards_that_have_numbers_first():
    tags = Page(render_index([defined_board(), sample_board()])).tags
    links = [attrs["href"] for tag, attrs in tags if tag == "a"]
    assert [link for link in links if link and "/" in link] == [
        "cifar10-v2/index.html",
        "paper-v1/index.html",
    ]
