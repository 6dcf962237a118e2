"""What the docs say of audits is what `python benchmarks/audits.py --out` wrote."""

import json
import sys
from pathlib import Path

import pytest

from harness.api.gaussian import epsilon_of
from harness.auditing import AuditReport
from harness.cli.audit import lines
from harness.scoring.audit import LEVEL, Guessed, least_epsilon, least_mu

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import audits  # noqa: E402

TOLD = json.loads((ROOT / "benchmarks" / "audits.json").read_text(encoding="utf-8"))
REPORTS = [
    AuditReport.model_validate({k: v for k, v in each.items() if k != "asked"})
    for each in TOLD["audits"]
]
PAGE = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")


def named(start: str, guesser: str = "likelihood") -> list[AuditReport]:
    return [r for r in REPORTS if r.defense.startswith(start) and r.guesser.startswith(guesser)]


@pytest.mark.parametrize("report", REPORTS, ids=lambda r: f"{r.defense} {r.guesser}")
def test_bounds_are_those_of_the_counts(report):
    guessed = Guessed(report.coins, report.guesses, report.right)
    assert (report.coins, report.level, report.delta) == (1000, LEVEL, 1e-5)
    assert report.epsilon_at_least == pytest.approx(least_epsilon(guessed, report.delta), abs=1e-9)
    if report.epsilon_at_least_gaussian is not None:
        found = epsilon_of(least_mu(guessed), report.delta)
        assert report.epsilon_at_least_gaussian == pytest.approx(found, abs=1e-9)
    for least in (report.epsilon_at_least, report.epsilon_at_least_gaussian or 0.0):
        assert report.epsilon_at_most is None or least <= report.epsilon_at_most


def test_every_audit_that_the_script_names_was_run():
    assert [(each["defense"], each["asked"]) for each in TOLD["audits"]] == [
        (defense, dict(asked)) for defense, asked in audits.AUDITS
    ]
    assert len(TOLD["commit"]) == 40


def test_the_page_has_the_table_and_the_command_s_own_words():
    assert audits.table(TOLD["audits"]) in PAGE
    (shown,) = [r for r in named("singmix[tau=1e-4]") if "sphere noise" in r.guesser]
    assert "\n".join(lines(shown)) in PAGE


def test_null_scores_raise_no_more_alarms_than_they_may():
    counts = [each["alarms"] for each in TOLD["null"]]
    assert {each["audits"] for each in TOLD["null"]} == {audits.NULLS}
    assert all(each["chance"] <= LEVEL for each in TOLD["null"])
    assert all(count <= LEVEL * audits.NULLS for count in counts)
    assert "{}, {}, {} and {} find an epsilon above 0".format(*counts) in " ".join(PAGE.split())


def test_the_sphere_reads_its_own_maximum_at_every_tau_and_normal_noise_less_and_less():
    spheres = [r for r in named("singmix") if "sphere noise" in r.guesser]
    assert len(spheres) == 3
    assert all(r.epsilon_at_least == r.largest > 5.7 for r in spheres)
    normal = [r.epsilon_at_least for r in named("singmix") if "gaussian noise" in r.guesser]
    assert len(normal) == 3
    assert normal[0] > 1 > normal[1] >= normal[2]
