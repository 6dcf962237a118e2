"""The records that the README's figures come from are genuine, and say what it says."""

from pathlib import Path

import pytest

from harness.record import RunRecord
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


def trained(**asked: object) -> list[RunRecord]:
    """Committed records of trainings that were asked for like this."""
    found = [Records(Path()).load(path) for path in RECORDS]
    return [
        record
        for record in found
        if record.utility and all(getattr(record.request, k) == v for k, v in asked.items())
    ]


def in_readme(*means: float) -> bool:
    quoted = " | ".join(f"{mean:.3f}" for mean in means)
    return quoted in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_quotes_accuracies_in_a_space() -> None:
    records = trained(space="vgg16", dataset="cifar10")
    by_tau = sorted(records, key=lambda record: -record.defense[0].config["tau"])
    assert len(by_tau) == 4
    for way in ("plain", "bn_recomputed"):
        assert in_readme(*(r.utility.accuracies[way].mean for r in by_tau if r.utility))


def test_the_readme_quotes_accuracies_of_encodings_and_pruned_gradients() -> None:
    records = trained(dataset="fashion", private_size=5000, repeats=3)
    assert len(records) == 10
    for record in records:
        assert record.utility
        assert in_readme(record.utility.accuracies["plain"].mean)
        assert in_readme(record.utility.accuracy)


def test_the_readme_quotes_mixcons_tables() -> None:
    records = trained(private_size=59_000) + trained(dataset="synthetic-mixcon", only="utility")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(records) == 5 + 9
    for record in records:
        assert record.utility
        assert f"{100 * record.utility.accuracy:.1f}" in text


def by_tau(attack: str, value: str, taus: int = 6, **asked: object) -> str:
    """The table's row of a committed sweep over tau, as the README writes numbers."""
    wanted = {"rounds": 1, "dataset": "cifar10", **asked}
    found = [Records(Path()).load(path) for path in RECORDS]
    scores = {}
    for record in found:
        named = record.privacy and record.request.attack == attack
        if named and all(getattr(record.request, k) == v for k, v in wanted.items()):
            mean = record.privacy["snr_db"].mean
            told = {"snr": mean, **record.diagnostics}[value]
            scores[record.defense[0].config["tau"]] = told
    assert len(scores) == taus
    return " | ".join(f"{scores[t]:.2f}".replace("-", "−") for t in sorted(scores, reverse=True))


@pytest.mark.parametrize(
    ("attack", "value", "rounds"),
    [
        ("lmmse[mean=public]", "snr", 1),
        ("lmmse[mean=public]", "predicted_snr_db", 1),
        ("lmmse[mean=public]", "snr", 10),
        ("lmmse", "snr", 1),
        ("wiener[mean=public]", "snr", 1),
        ("exact", "snr", 1),
    ],
)
def test_the_readme_quotes_linear_attacks(attack: str, value: str, rounds: int) -> None:
    quoted = by_tau(attack, value, rounds=rounds, preset="standard")
    assert quoted in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("attack", ["lmmse", "unet", "prior"])
def test_the_readme_quotes_attacks_beyond_linear_ones(attack: str) -> None:
    quoted = by_tau(attack, "snr", taus=3, dataset="fashion", preset="quick")
    assert quoted in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("noise", ["sphere", "gaussian"])
@pytest.mark.parametrize(
    ("attack", "finding"),
    [("sphere[rows=500]", "partner_known_top1"), ("normchannel", "weight_error")],
)
def test_the_readme_quotes_identification(attack: str, finding: str, noise: str) -> None:
    found = [Records(Path()).load(path) for path in RECORDS]
    values = {
        record.defense[0].config["tau"]: record.findings[finding].value
        for record in found
        if record.request.attack == attack and record.defense[0].config["noise"] == noise
    }
    assert len(values) == 6
    digits = 3 if attack.startswith("sphere") else 2
    quoted = " | ".join(f"{values[tau]:.{digits}g}" for tau in sorted(values, reverse=True))
    assert quoted in (ROOT / "README.md").read_text(encoding="utf-8")


def leaked(attack: str, metric: str, **asked: object) -> dict[str, float]:
    """By defense as written, the mean that committed records of an attack have."""
    found = [Records(Path()).load(path) for path in RECORDS]
    return {
        record.request.defense: record.privacy[metric].mean
        for record in found
        if record.privacy
        and record.request.attack == attack
        and metric in record.privacy
        and all(getattr(record.request, k) == v for k, v in asked.items())
    }


MIXED = (
    "none",
    "mixup[k=4]",
    "gradprune[p=0.9]+mixup[k=4]",
    "instahide[k=4]",
    "gradprune[p=0.9]+instahide[k=4]",
)
PRUNED = ("none", "gradprune[p=0.9]", "gradprune[p=0.99]", "gradprune[p=0.999]")


@pytest.mark.parametrize(
    ("defenses", "batch_size", "private_size"),
    [(PRUNED, 1, 1000), (PRUNED, 16, 1000), (MIXED, 1, 20), (MIXED, 16, 32)],
)
def test_the_readme_quotes_gradient_matching(
    defenses: tuple[str, ...], batch_size: int, private_size: int
) -> None:
    asked = {"dataset": "cifar10", "batch_size": batch_size, "private_size": private_size}
    scores = leaked("gradmatch[steps=600]", "lpips_vgg", **asked)
    assert in_readme(*(scores[defense] for defense in defenses))


CLUSTERING = [
    (path, record)
    for path, record in ((path, Records(Path()).load(path)) for path in RECORDS)
    if record.request.attack in ("carlini", "chen", "luo") and "ssim" in record.privacy
]
"""Those of images: Gaussian values have no SSIM."""


def test_attacks_that_cluster_were_measured() -> None:
    assert {record.request.attack for _, record in CLUSTERING} == {"carlini", "chen", "luo"}


@pytest.mark.parametrize(
    "record",
    [record for _, record in CLUSTERING],
    ids=[path.stem[:10] for path, _ in CLUSTERING],
)
def test_the_readme_quotes_attacks_that_cluster(record: RunRecord) -> None:
    found, scores = record.findings, record.privacy
    quoted = [found[name].value for name in ("pair_auc", "encodings_assigned")]
    values = [f"{value:.3f}" for value in quoted]
    row = [*values, f"{scores['snr_db'].mean:.2f}", f"{scores['ssim'].mean:.3f}"]
    assert " | ".join(row).replace("-", "−") in (ROOT / "README.md").read_text(encoding="utf-8")
