"""The figures of docs/ceilings.md are those of benchmarks/ceilings.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.core
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """What measures them and writes the page."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import ceilings
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    return ceilings


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "ceilings.json").read_bytes())
    return found


def test_the_page_has_the_file_s_numbers(script: ModuleType) -> None:
    """`python benchmarks/ceilings.py --write` puts them there."""
    whole = script.PAGE.read_text(encoding="utf-8")
    assert whole.count(script.BEGIN) == 1
    assert script.page(whole) == whole


def test_another_number_is_another_page(script: ModuleType, told: dict[str, Any]) -> None:
    """No figure between the marks is written by hand."""
    changed = json.loads(json.dumps(told))
    for cell in changed["ceilings"]:
        for quantity in cell["quantities"].values():
            quantity["value"] = 7.77
        cell["trend"] = [7.77 for _ in cell["trend"]]
    for cell in changed["reached"]:
        cell["value"] = 6.66
    text = script.text(changed)
    shown = script.text(told)
    kept = {word for word in shown.split() if "." in word and word in text.split()}
    assert not [
        word
        for word in kept
        if word.strip("(),|;[]").replace(".", "").isdigit() and word not in intervals(script, told)
    ]


def intervals(script: ModuleType, told: dict[str, Any]) -> set[str]:
    """Ends of intervals and shares by chance, which the change above leaves as they are."""
    ends = {script._short(1 / told["ceilings"][1]["candidates"][-1])}
    for cell in told["ceilings"]:
        for quantity in cell["quantities"].values():
            for end in quantity["interval"] or ():
                ends |= {f"[{script._short(end)},", f"{script._short(end)}]"}
    return ends


def test_what_was_asked_is_what_the_page_says(told: dict[str, Any]) -> None:
    asked = told["options"]
    assert (asked["private_size"], asked["targets"]) == (1000, 500)
    assert len(asked["commit"]) == 40
    bounded = [cell for cell in told["ceilings"] if cell["ceiling"] == "exchangeable"]
    assert {cell["candidates"][-1] for cell in bounded} == {10_001}


def test_linear_is_below_the_ceiling_without_labels_by_a_fifth_of_a_decibel_at_most(
    script: ModuleType, told: dict[str, Any]
) -> None:
    """Where noise is loud a Gaussian prior is as good as the population itself."""
    gaps = []
    for cell in told["reached"]:
        (tau,) = (t for t in script.QUIET if script.DEFENSE.format(tau=t) == cell["defense"])
        ceiling = script._of(told["ceilings"], cell["dataset"], tau)["quantities"]["pooled_snr_db"]
        gaps.append(ceiling["value"] - cell["value"])
    assert len(gaps) == 6
    assert all(0 <= gap <= 0.2 for gap in gaps)


def test_a_ceiling_with_labels_is_never_below_the_one_without(told: dict[str, Any]) -> None:
    for cell in told["ceilings"]:
        found = cell["quantities"]
        for name in ("pooled_snr_db", "identification"):
            if name in found:
                assert found[f"{name}_labels"]["value"] >= found[name]["value"]
