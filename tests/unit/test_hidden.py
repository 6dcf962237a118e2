"""Hidden reruns: what falls is told, what moves as draws do is not, and rows are what is said."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import torch
from board_records import record
from click.testing import CliRunner

from harness.api import UsageError
from harness.api.law import Law
from harness.cli import cli
from harness.scoring.lawful import like_public, unlike_law
from harness.submissions.hidden import Hidden, fallen

GENERATOR = torch.Generator().manual_seed(3)
IMAGES = torch.randn(60, 64, generator=GENERATOR)
WEIGHTS = torch.tensor([[0.7, 0.3]]).repeat(40, 1)
SOURCES = torch.stack([torch.arange(40), torch.arange(20, 60)], 1)
MIXED = (WEIGHTS.unsqueeze(2) * IMAGES[SOURCES]).sum(1)
NOISE = torch.randn(40, 64, generator=GENERATOR)


def told(law, rows, sources=SOURCES):
    return unlike_law(law, rows, WEIGHTS, sources, IMAGES)


def test_a_gain_that_is_gone_is_told() -> None:
    high, low = record(gains=(20, 21, 22, 20)), record(gains=(0, 0.1, 0, 0.2))
    assert next(fallen(high, low)).startswith("the gain in snr_db falls from 20.75 to 0.075")
    assert list(fallen(low, high)) == []


def test_one_that_moves_as_draws_do_is_not() -> None:
    assert list(fallen(record(gains=(110, 111, 109, 110)), record(gains=(87, 88, 86, 87)))) == []
    assert list(fallen(record(gains=(2, 0, 3, 1)), record(gains=(1, 0, 2, 0)))) == []


def test_an_accuracy_falls_where_intervals_are_apart() -> None:
    assert list(fallen(record(right=90), record(right=80))) == []
    assert "accuracy falls from 0.900 to 0.400" in [*fallen(record(right=90), record(right=40))]


def test_rows_are_mixtures_with_the_noise_that_is_stated() -> None:
    assert told(Law("none"), MIXED) == ""
    assert told(Law("none", signs=True), -MIXED) == ""
    assert told(Law("gaussian", 2.0), MIXED + 2 * NOISE) == ""
    assert told(Law("gaussian", 2.0, covers="others"), MIXED + 0.6 * NOISE) == ""


def test_other_rows_are_told() -> None:
    assert "not the mixture" in told(Law("none"), MIXED, SOURCES.flip(0))
    assert "not the mixture" in told(Law("none"), IMAGES[:40])
    assert "times the energy" in told(Law("gaussian", 2.0), MIXED + NOISE)
    assert "correlated" in told(Law("gaussian", 1.0), MIXED + NOISE[:, :1])
    assert told(Law("none", altered="crops"), IMAGES[:40]) == ""


def test_rows_that_are_public_images_are_told_and_a_few_twins_are_not() -> None:
    public = IMAGES[40:]
    assert like_public(public, public) == "20 of 20 rows are public images"
    assert like_public(-public + 0.01, public) == "20 of 20 rows are public images"
    assert like_public(torch.cat([MIXED[:38], public[:2]]), public) == ""


def test_a_secret_is_drawn_anew_and_names_itself_by_a_hash() -> None:
    one, other = Hidden(), Hidden()
    assert one.secret != other.secret
    assert one.commitment != other.commitment
    assert Hidden(one.secret).instead_of(0) == one.instead_of(0) != one.instead_of(1)
    assert one.secret.hex() not in repr(one)


@pytest.mark.parametrize("wrong", [["--secret"], ["--rerun", "--keep-secret", "k"]])
def test_what_makes_no_hidden_rerun_is_refused(wrong: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--keep-secret needs --secret, and that needs --rerun"):
        CliRunner().invoke(
            cli, ["verify", str(tmp_path), *wrong], standalone_mode=False, catch_exceptions=False
        )


def test_a_kept_secret_is_its_owners_alone_and_is_used_again(tmp_path: Path) -> None:
    path, key = tmp_path / "record.json", tmp_path / "key"
    path.write_text("{}")
    command = ["verify", str(path), "--rerun", "--secret", "--keep-secret", str(key), "--json"]
    said = [
        json.loads(CliRunner().invoke(cli, command, standalone_mode=False).stdout)["commitment"]
        for _ in range(2)
    ]
    assert said == [Hidden(key.read_bytes()).commitment] * 2
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
