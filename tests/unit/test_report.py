"""A record as people read it."""

from __future__ import annotations

from typing import Any

import pytest

from harness.asking.request import make_request
from harness.cli.report import print_report
from harness.scoring.summary import MetricScore
from harness.scoring.utility import Accuracy, Utility
from harness.store.record import Member, RunRecord, Used

pytestmark = pytest.mark.core
SNR = {"snr_db": MetricScore(unit="dB", leaks_more="higher", mean=9.3, std=2.1, n=3)}


ASKED = ("batch_size", "victim_epochs", "release", "local_steps", "local_lr", "local_images")


def used(name: str) -> Used:
    return Used(name=name, version="1", distribution="d", source_sha256="0", config={})


def record(**more: Any) -> RunRecord:
    asked = {name: more.pop(name) for name in list(more) if name in ASKED}
    values: dict[str, Any] = {
        "status": "ok",
        "request": make_request(defense="none", threads=1, **asked),
        "defense": (used("none"),),
        "attack": used("gradmatch"),
        "dataset": used("cifar10"),
        "victim": used("strided"),
        "space": used("pixels"),
        "threat_model": "informed",
        "release_kind": "gradients",
        "device": "cpu",
        "threads": 1,
    }
    return RunRecord(**{**values, **more}).sealed()


def printed(shown: RunRecord, capsys: pytest.CaptureFixture[str]) -> str:
    print_report(shown, None)
    return capsys.readouterr().out


def test_members_of_a_suite_are_told_apart_by_their_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ("gradmatch", "gradmatch[preset=realistic]")
    members = {name: Member(status="ok", attack=used(name), privacy=SNR) for name in names}
    lines = printed(record(attack=used("suite"), members=members, privacy=SNR), capsys).splitlines()
    rows = [line.split()[0] for line in lines if line.startswith("gradmatch")]
    assert sorted(rows) == sorted(names)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "gradients of single images after 1 epoch, BatchNorm in train mode)"),
        (
            {"batch_size": 16, "victim_epochs": 0},
            "gradients of batches of 16 after 0 epochs, BatchNorm in train mode)",
        ),
    ],
)
def test_the_heading_says_of_what_gradients_were_taken(
    asked: dict[str, int], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in printed(record(**asked), capsys)


def test_the_heading_says_how_parties_trained(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"release": "updates", "local_steps": 8, "local_images": 4}
    shown = printed(record(**asked, release_kind="updates"), capsys)
    said = "updates of 8 steps of SGD at 0.01 on batches of 4 after 1 epoch, BatchNorm in train"
    assert said in " ".join(shown.split())


def test_the_heading_of_other_releases_says_nothing_of_gradients(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "gradients" not in printed(record(release_kind="encodings"), capsys)


def learned(**more: Any) -> Utility:
    """Two learners, of which one was chosen, and one that was left out."""
    shares = {"ridge": 0.52, "network": 0.55}
    values: dict[str, Any] = {
        "accuracy": 0.52,
        "interval": (0.49, 0.55),
        "inference": "ridge",
        "accuracies": {name: Accuracy.of([share], 1000) for name, share in shares.items()},
        "validation": {"ridge": 0.54, "network": 0.5},
        "left_out": {"encoded": "this defense has no inference of its own"},
        "chance": 0.1,
        "n": 1000,
        "reference_accuracy": 0.7,
        "reference_inference": "network",
    }
    return Utility(**{**values, **more})


def test_the_chosen_learner_is_told_first_and_the_others_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = printed(record(release_kind="encodings", utility=learned()), capsys)
    assert (
        "best learner ridge: accuracy 0.520 (0.490 to 0.550); unprotected 0.700 by network; "
        "chance 0.100\n"
    ) in out
    assert "by learner: ridge 0.520, network 0.550\n" in out
    assert "left out encoded: this defense has no inference of its own\n" in out


def test_an_accuracy_at_chance_is_no_more_than_what_was_found_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = learned(accuracy=0.11, interval=(0.09, 0.13))
    out = printed(record(release_kind="encodings", utility=told), capsys)
    assert "chance 0.100; the strongest learner here found nothing" in " ".join(out.split())
