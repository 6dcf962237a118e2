"""The page on gradients says of updates what `benchmarks/updates.json` holds."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOUND = json.loads((ROOT / "benchmarks" / "updates.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "results" / "gradients.md").read_text(encoding="utf-8")


def test_the_table_is_what_was_measured(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import updates

    lines = updates.table(FOUND)
    wanted = {
        (name, s) for name, a in updates.ROWS.items() for s in updates.STEPS if updates.fits(a, s)
    }
    sys.modules.pop("updates")
    assert "\n".join(lines) in PAGE
    assert {(name, int(s)) for name, cells in FOUND.items() for s in cells} == wanted


def test_a_dense_layer_tells_single_images_after_any_number_of_steps():
    alone = FOUND["`firstlayer`, `mlp`, one image"]
    assert {steps: cell["snr_db"] for steps, cell in alone.items()} == {
        "1": 120.0,
        "5": 120.0,
        "20": 120.0,
    }


def test_a_planted_layer_tells_images_of_a_batch_exactly():
    planted = FOUND["`firstlayer`, `planted`, eight images at once"]
    assert all(cell["low"] > 60 for cell in planted.values())


def test_a_search_finds_single_images_and_hardly_batches():
    alone = FOUND["`gradmatch`, `strided`, one image"]
    assert all(cell["low"] > cell["guess"] for cell in alone.values())
    for way in ("four images at once", "four images one by one"):
        cells = FOUND[f"`gradmatch`, `strided`, {way}"].values()
        assert all(cell["low"] < cell["guess"] for cell in cells)
