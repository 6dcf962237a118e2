"""The records that the README's figures come from are genuine, and say what it says."""

from pathlib import Path

import pytest

from harness.store.records import Records

pytestmark = pytest.mark.core
ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "benchmarks" / "records").glob("*.json"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem[:10])
def test_a_committed_record_is_genuine(path: Path, tmp_path: Path) -> None:
    record = Records(tmp_path).load(path)
    assert record.id == path.stem
    assert record.status == "ok"


@pytest.mark.parametrize(
    ("attack", "dataset", "resolution"),
    [
        ("linear", "cifar10", None),
        ("linear", "mnist", None),
        ("linear", "mnist", 224),
        ("unet", "cifar10", None),
    ],
)
def test_the_readme_quotes_them(attack: str, dataset: str, resolution: int | None) -> None:
    found = [Records(Path()).load(path) for path in RECORDS]
    scores = {
        record.defense[0].config["tau"]: record.privacy["snr_db"].mean
        for record in found
        if record.privacy
        and record.attack.name == attack
        and record.dataset.name == dataset
        and record.defense[0].config["resolution"] == resolution
    }
    quoted = [f"{scores[tau]:.2f}".replace("-", "−") for tau in sorted(scores, reverse=True)]
    assert " | ".join(quoted) in (ROOT / "README.md").read_text(encoding="utf-8")
