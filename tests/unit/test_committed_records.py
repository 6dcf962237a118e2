"""The records behind the figures of docs/results are genuine, and say what is said there."""

from pathlib import Path

import pytest

from harness.store.record import Records, RunRecord

pytestmark = pytest.mark.core
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
RECORDS = sorted((ROOT / "benchmarks" / "records").glob("*.json"))


def page(topic: str) -> str:
    """One page of results, as it is written."""
    return (RESULTS / f"{topic}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem[:10])
def test_a_committed_record_is_genuine(path: Path, tmp_path: Path) -> None:
    record = Records(tmp_path).load(path)
    assert record.id == path.stem
    assert record.status == "ok"


@pytest.mark.parametrize(
    ("attack", "dataset", "strengths"),
    [("linear", "cifar10", 7), ("linear", "mnist", 7), ("unet", "cifar10", 3)],
)
def test_pages_quote_sweeps_of_singularized_mixup(
    attack: str, dataset: str, strengths: int
) -> None:
    scores = swept(attack, dataset, judge_at="image")
    assert len(scores) == strengths
    assert in_a_row(scores) in page("linear" if attack == "linear" else "learned")


@pytest.mark.parametrize("dataset", ["mnist", "cifar10"])
@pytest.mark.parametrize("first", ["larger", "any"])
def test_a_page_quotes_table_1_in_the_papers_own_protocol(dataset: str, first: str) -> None:
    scores = swept("linear", dataset, first, judge_at="release", space="pixels-imagenet")
    assert len(scores) == 7
    assert in_a_row(scores) in page("linear")


def test_table_1_is_reproduced_on_mnist() -> None:
    scores = swept("linear", "mnist", "larger", judge_at="release", space="pixels-imagenet")
    stated = (8.19, 0.09, -2.79, -3.65, -3.90, -3.98, -4.01)
    assert in_a_row(dict(zip(sorted(scores, reverse=True), stated, strict=True))) in page("linear")
    for tau, paper in zip(sorted(scores, reverse=True), stated, strict=True):
        assert scores[tau] == pytest.approx(paper, abs=0.5)


def swept(attack: str, dataset: str, first: str = "any", **asked: object) -> dict[float, float]:
    """Mean SNR by tau, of committed records of singularized mixup that were asked for like this."""
    found = [Records(Path()).load(path) for path in RECORDS]
    return {
        record.defense[0].config["tau"]: record.privacy["snr_db"].mean
        for record in found
        if record.privacy
        and (record.attack.name, record.dataset.name) == (attack, dataset)
        and record.defense[0].config.get("first", "any") == first
        and all(getattr(record.request, name) == value for name, value in asked.items())
    }


def in_a_row(scores: dict[float, float]) -> str:
    """By falling tau, as pages write numbers."""
    written = [f"{scores[tau]:.2f}".replace("-", "−") for tau in sorted(scores, reverse=True)]
    return " | ".join(written)


def trained(**asked: object) -> list[RunRecord]:
    """Committed records of trainings that were asked for like this."""
    found = [Records(Path()).load(path) for path in RECORDS]
    return [
        record
        for record in found
        if record.utility and all(getattr(record.request, k) == v for k, v in asked.items())
    ]


def accuracies(records: list[RunRecord]) -> str:
    """In the records' order, as pages write them."""
    return " | ".join(f"{r.utility.accuracy:.3f}" for r in records if r.utility)


@pytest.mark.parametrize(("tau", "least"), [(1e-2, 0.24), (1e-4, 0.14)])
def test_a_page_quotes_what_is_learned_from_pixels_on_fresh_seeds(tau: float, least: float) -> None:
    """Above what least-squares class means without shrinkage reached there."""
    records = [
        record
        for record in trained(dataset="cifar10", space="pixels", private_size=1000)
        if record.request.seed and record.defense[0].config["tau"] == tau
    ]
    records.sort(key=lambda record: record.request.seed)
    assert [record.request.seed for record in records] == [7, 8, 9]
    assert accuracies(records) in page("accuracy")
    assert all(r.utility and r.utility.accuracy >= least for r in records)


@pytest.mark.parametrize(("n", "least"), [(1000, (0.6, 0.2)), (10_000, (0.7, 0.5))])
def test_a_page_quotes_what_is_learned_in_a_space(n: int, least: tuple[float, float]) -> None:
    records = trained(space="vgg16", dataset="cifar10", private_size=n)
    records.sort(key=lambda record: -record.defense[0].config["tau"])
    assert len(records) == 4
    assert accuracies(records) in page("accuracy")
    for record, wanted in zip(records[1:3], least, strict=True):  # at 1e-2 and 1e-4
        assert record.utility
        assert record.utility.accuracy >= wanted


def test_a_page_quotes_accuracies_of_pruned_gradients() -> None:
    records = trained(dataset="fashion", private_size=5000, repeats=3)
    assert len(records) == 4
    for record in records:
        assert record.utility
        assert f"{record.utility.accuracy:.3f}" in page("accuracy")


def test_a_page_quotes_mixcons_tables() -> None:
    records = trained(private_size=59_000) + trained(dataset="synthetic-mixcon", only="utility")
    text = page("features")
    assert len(records) == 5 + 9
    for record in records:
        assert record.utility
        assert f"{100 * record.utility.accuracy:.1f}" in text


def by_tau(attack: str, value: str, taus: int = 6, **asked: object) -> str:
    """The table's row of a committed sweep over tau, as pages write numbers."""
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
def test_a_page_quotes_linear_attacks(attack: str, value: str, rounds: int) -> None:
    quoted = by_tau(attack, value, rounds=rounds, preset="standard")
    assert quoted in page("linear")


@pytest.mark.parametrize("attack", ["lmmse", "unet", "prior"])
def test_a_page_quotes_attacks_beyond_linear_ones(attack: str) -> None:
    quoted = by_tau(attack, "snr", taus=3, dataset="fashion", preset="quick")
    assert quoted in page("learned")


@pytest.mark.parametrize("noise", ["sphere", "gaussian"])
@pytest.mark.parametrize(
    ("attack", "finding"),
    [("sphere[rows=500]", "partner_known_top1"), ("normchannel", "weight_error")],
)
def test_a_page_quotes_identification(attack: str, finding: str, noise: str) -> None:
    found = [Records(Path()).load(path) for path in RECORDS]
    values = {
        record.defense[0].config["tau"]: record.findings[finding].value
        for record in found
        if record.request.attack == attack and record.defense[0].config["noise"] == noise
    }
    assert len(values) == 6
    digits = 3 if attack.startswith("sphere") else 2
    quoted = " | ".join(f"{values[tau]:.{digits}g}" for tau in sorted(values, reverse=True))
    assert quoted in page("identification")


MATCHED = [
    record
    for record in (Records(Path()).load(path) for path in RECORDS)
    if record.release_kind == "gradients"
]


def matched(**asked: object) -> RunRecord:
    """The one committed record of gradients that was asked for like this."""
    wanted = {"dataset": "cifar10", "victim": "strided", "rounds": 1, **asked}
    (found,) = (r for r in MATCHED if all(getattr(r.request, k) == v for k, v in wanted.items()))
    return found


def worse(record: RunRecord, *metrics: str) -> str:
    """A dagger where a guess is better by one of these, by the whole interval."""
    gains = (record.privacy[metric].gain_ci for metric in metrics)
    return "†" if any(gain and gain[1] < 0 for gain in gains) else ""


def spread(record: RunRecord) -> str:
    """LPIPS as the page has it: mean, deviation and best image."""
    score = record.privacy["lpips_vgg"]
    mark = worse(record, "lpips_vgg", "snr_db")
    return f"{score.mean:.3f} ± {score.std:.3f} ({score.worst:.3f}){mark}"


def mean(record: RunRecord, metric: str, digits: int) -> str:
    shown = f"{record.privacy[metric].mean:.{digits}f}".replace("-", "−")
    return f"{shown}{worse(record, metric)}"


def row_is_quoted(*cells: str) -> bool:
    return f"| {' | '.join(cells)} |" in page("gradients")


PRUNED = ("none", "gradprune[p=0.9]", "gradprune[p=0.99]", "gradprune[p=0.999]")
HIDDEN = ("instahide[k=4]", "gradprune[p=0.9]+instahide[k=4]")
MIXED = ("none", "mixup[k=4]", "gradprune[p=0.9]+mixup[k=4]", *HIDDEN)


@pytest.mark.parametrize(
    ("defenses", "size", "images"),
    [
        (PRUNED, 1, 1000),
        (PRUNED, 16, 1000),
        (PRUNED[:2], 32, 1000),
        (MIXED, 1, 20),
        (MIXED, 16, 32),
        (MIXED[:2], 32, 32),
    ],
)
def test_a_page_quotes_gradient_matching(defenses: tuple[str, ...], size: int, images: int) -> None:
    asked = {"attack": "gradmatch[steps=600]", "batch_size": size, "private_size": images}
    blank = [""] * (len(PRUNED if images == 1000 else MIXED) - len(defenses))
    cells = [spread(matched(defense=defense, **asked)) for defense in defenses]
    row = "one gradient for each image" if size == 1 else f"batches of {size}"
    assert row_is_quoted(row, *cells, *blank)


def test_a_page_quotes_what_several_encodings_give_away() -> None:
    asked = {"attack": "gradmatch[steps=600]", "batch_size": 1, "rounds": 8}
    mixup, *hidden = (spread(matched(defense=d, **asked)) for d in ("mixup[k=4]", *HIDDEN))
    assert row_is_quoted("one for each of eight encodings", "", mixup, "", *hidden)


@pytest.mark.parametrize("rounds", [1, 8])
@pytest.mark.parametrize("defense", HIDDEN)
def test_a_page_quotes_absolute_values_where_signs_are_hidden(defense: str, rounds: int) -> None:
    asked = {"attack": "gradmatch[steps=600]", "batch_size": 1, "private_size": 20}
    record = matched(defense=defense, rounds=rounds, **asked)
    metrics = (("lpips_vgg", 3), ("lpips_vgg_abs", 3), ("snr_db_abs", 2), ("ssim_abs", 3))
    cells = [mean(record, metric, digits) for metric, digits in metrics]
    assert row_is_quoted(f"`{defense}`", str(rounds), *cells)


SETTINGS: dict[str, list[dict[str, object]]] = {
    "adaptive": [
        {"attack": "gradmatch[steps=300,adaptive=true]", "defense": p} for p in PRUNED[1:]
    ],
    "adaptive=false": [
        {"attack": "gradmatch[steps=300,adaptive=false]", "defense": p} for p in PRUNED[1:]
    ],
    "rate": [
        {"attack": "gradmatch[steps=600,lr=0.02]", "defense": p, "targets": 20} for p in PRUNED[2:]
    ],
    "rate=.1": [
        {"attack": "gradmatch[steps=600]", "defense": p, "targets": 20} for p in PRUNED[2:]
    ],
    "tv": [
        {"attack": f"gradmatch[steps=300,tv={weight}]"}
        for weight in ("0", "1e-3", "5e-3", "1e-2", "5e-2", "1e-1", "5e-1")
    ],
    "bn": [
        {"attack": f"gradmatch[steps=300,statistics=inferred,tv=1e-3,bn={w}]", "victim": "cnn"}
        for w in ("0", "5e-4", "1e-3", "5e-3", "1e-2")
    ],
    "dpsgd": [
        {"attack": "gradmatch[steps=300]", "defense": f"dpsgd[noise_multiplier={sigma}]"}
        for sigma in ("0.001", "0.01", "0.1", "1")
    ],
    "age": [
        {"attack": "gradmatch[steps=300]", "victim_epochs": epochs, "only": "privacy"}
        for epochs in (0, 1, 5, 20)
    ],
}


@pytest.mark.parametrize(
    ("title", "setting"),
    [
        ("pruning known", "adaptive"),
        ("taken for zeros", "adaptive=false"),
        ("steps of .1", "rate=.1"),
        ("steps of .02", "rate"),
        ("single images", "tv"),
        ("batches of 4", "bn"),
        ("clipped and noised", "dpsgd"),
        ("single images", "age"),
    ],
)
def test_a_page_quotes_what_options_of_gradient_matching_do(title: str, setting: str) -> None:
    asked = {"defense": "none", "private_size": 1000, "batch_size": 4 if setting == "bn" else 1}
    records = [matched(**{**asked, **each}) for each in SETTINGS[setting]]
    cells = [mean(record, "snr_db", 2) for record in records]
    assert row_is_quoted(title, *cells, *[""] * (len(SETTINGS["tv"]) - len(cells)))


@pytest.mark.parametrize(
    ("title", "attack", "threat_model"),
    [
        ("`strongest`: labels and statistics known", "preset=strongest", "fl-strong"),
        ("`strongest` without statistics", "preset=strongest,statistics=none", "fl-strong"),
        ("`realistic`: labels known", "preset=realistic", "fl-strong"),
        ("`realistic` without statistics", "preset=realistic,statistics=none", "fl-strong"),
        ("`scripts`: neither known", "preset=scripts", "fl-realistic"),
        ("`scripts` without statistics", "preset=scripts,statistics=none", "fl-realistic"),
    ],
)
def test_a_page_quotes_what_the_server_knows(title: str, attack: str, threat_model: str) -> None:
    asked = {"attack": f"gradmatch[steps=300,{attack}]", "threat_model": threat_model}
    records = [matched(victim="cnn", batch_size=size, **asked) for size in (1, 4)]
    cells = [f"{mean(r, 'snr_db', 2)}; {mean(r, 'lpips_vgg', 3)}" for r in records]
    assert row_is_quoted(title, *cells)


def test_a_page_quotes_what_labels_gradients_tell() -> None:
    asked = {"attack": "gradmatch[steps=1,labels=counted]", "victim": "strided[epochs=1]"}
    records = [matched(batch_size=size, **asked) for size in (1, 2, 4, 8, 16, 32, 64)]
    told = [f"{record.findings['label_accuracy'].value:.3f}" for record in records]
    chance = [f"{record.findings['label_accuracy'].chance:.3f}" for record in records]
    distinct = [record.measures.get("release.distinct_labels") for record in records]
    assert row_is_quoted("distinct", *("" if d is None else f"{d:.2f}" for d in distinct))
    assert row_is_quoted("read off the bias", *told)
    assert row_is_quoted("right by chance", *chance)


def test_a_suite_finds_no_use_in_knowing_less() -> None:
    text = page("gradients").replace("\n", " ")
    for size in (1, 4):
        record = matched(attack="suite", victim="cnn", batch_size=size)
        members = [record.members[name] for name in ("gradmatch", "gradmatch[preset=scripts]")]
        informed, told = (member.privacy["snr_db"].mean for member in members)
        assert informed > told
        assert "knows_less_does_better" not in {flag.name for flag in record.flags}
        seen, less_seen = (member.privacy["lpips_vgg"].mean for member in members)
        shown = f"{informed:.1f} and {told:.1f} dB (LPIPS {seen:.3f} and {less_seen:.3f})"
        assert shown in text


def test_a_page_quotes_a_decoder_that_mixcon_does_not_hinder() -> None:
    found = [Records(Path()).load(path) for path in RECORDS]
    decoder = "inversion[preset=decoder,epochs=5,base=16]"
    scores = {
        record.request.defense: f"{record.privacy['ssim'].mean:.3f}"
        for record in found
        if record.request.attack == decoder and record.dataset.name == "cifar10"
    }
    text = page("features").replace("\n", " ")
    assert f"{scores['none']} and {scores['mixcon[strength=1,beta=1e-8]']}, and is not" in text


BY_CLUSTERS = [
    (path, record)
    for path, record in ((path, Records(Path()).load(path)) for path in RECORDS)
    if record.attack.name in ("carlini", "chen", "luo")
    and record.request.dataset in ("fashion", "cifar10")
]
MOVED = [
    (path, record)
    for path, record in BY_CLUSTERS
    if "affine" in record.request.defense and "compare_steps" not in record.request.attack
]
CLUSTERING = [
    (path, record)
    for path, record in BY_CLUSTERS
    if record.request.attack in ("carlini", "chen", "luo")
    and "affine" not in record.request.defense
]


def test_attacks_that_cluster_were_measured() -> None:
    assert {record.request.attack for _, record in CLUSTERING} == {"carlini", "chen", "luo"}


@pytest.mark.parametrize(
    "record",
    [record for _, record in CLUSTERING],
    ids=[path.stem[:10] for path, _ in CLUSTERING],
)
def test_a_page_quotes_attacks_that_cluster(record: RunRecord) -> None:
    found, scores = record.findings, record.privacy
    quoted = [found[name].value for name in ("pair_auc", "encodings_assigned")]
    values = [f"{value:.3f}" for value in quoted]
    row = [*values, f"{scores['snr_db'].mean:.2f}", f"{scores['ssim'].mean:.3f}"]
    assert " | ".join(row).replace("-", "−") in page("clusters")


def test_a_page_quotes_gains_over_a_codebook() -> None:
    scores = [record.privacy["snr_db"] for _, record in CLUSTERING]
    matched = [score for score in scores if "codebook" in score.nulls]
    assert len(matched) >= 5
    for score in matched:
        assert score.gain is not None
        assert score.gain_ci is not None
        low, high = score.gain_ci
        text = f"| {score.mean:.2f} | ", f" | {score.gain:+.1f} ({low:.1f} to {high:.1f}) |"
        quoted = [each.replace("-", "−") for each in text]
        rows = page("clusters").splitlines()
        assert any(all(each in row for each in quoted) for row in rows), quoted


@pytest.mark.parametrize(
    "record", [record for _, record in MOVED], ids=[path.stem[:10] for path, _ in MOVED]
)
def test_a_page_quotes_attacks_on_moved_images(record: RunRecord) -> None:
    scores, purity = record.privacy, record.findings["cluster_purity"].value
    snr, ssim = (scores[name].mean for name in ("snr_db", "ssim"))
    cell = f"| {purity:.2f}, {snr:.2f}, {ssim:.3f} |".replace("-", "−")
    rows = [row for row in page("clusters").splitlines() if f"`{record.request.attack}`" in row]
    assert any(cell in row for row in rows)


def test_luo_sees_more_of_moved_images_than_carlini() -> None:
    """Which is no more than guesses do that are matched as its images are."""
    assert MOVED
    for dataset, margin in (("fashion", 0.3), ("cifar10", 0.04)):
        of = {
            (record.attack.name, record.request.rounds): record.privacy["ssim"]
            for _, record in MOVED
            if record.request.dataset == dataset and "classwise" not in record.request.attack
        }
        for rounds in (50, 10):
            assert of["luo", rounds].mean > of["carlini", rounds].mean + margin


def test_a_page_quotes_what_true_clusters_give() -> None:
    told = [record for _, record in BY_CLUSTERS if "oracle=clusters" in record.request.attack]
    assert len(told) >= 6
    for record in told:
        assert f"{record.privacy['snr_db'].mean:.2f}" in page("clusters")


def test_a_flow_assigns_more_than_the_greedy_way() -> None:
    ways: dict[tuple[str, str], float] = {}
    for _, record in BY_CLUSTERS:
        _, _, way = record.request.attack.partition("assign=")
        if way and record.request.dataset == "fashion":
            found = record.findings["encodings_assigned"].value
            ways[record.request.defense, way.removesuffix("]")] = found
            assert f"{100 * found:.1f}" in page("clusters")
    for defense in ("instahide[k=2]", "instahide[k=4,scheme=cross]"):
        assert ways[defense, "flow"] > ways[defense, "greedy"]


def test_clusters_cost_nothing_inside() -> None:
    """Within 1.5 dB of true clusters, in absolute values."""
    inside = {
        (record.request.dataset, record.request.attack): record.privacy["snr_db_abs"].mean
        for _, record in BY_CLUSTERS
        if record.request.defense == "instahide[k=2]"
    }
    for dataset in ("fashion", "cifar10"):
        told = inside[dataset, "carlini[oracle=clusters]"]
        assert inside[dataset, "carlini"] > max(7, told - 1.5)


CHEN = [
    (path, record)
    for path, record in ((path, Records(Path()).load(path)) for path in RECORDS)
    if record.attack.name == "chen" and "snr_db_abs" in record.privacy
]


@pytest.mark.parametrize(
    "record", [record for _, record in CHEN], ids=[path.stem[:10] for path, _ in CHEN]
)
def test_a_page_quotes_chen_where_signs_are_hidden(record: RunRecord) -> None:
    found, absolute = record.findings, record.by_image["snr_db_abs"].attack
    named = f"{found['publics_found'].value:.3f}" if "publics_found" in found else "–"
    back = sum(score is not None and score >= 20 for score in absolute) / len(absolute)
    signed, folded = (f"{record.privacy[name].mean:.2f}" for name in ("snr_db", "snr_db_abs"))
    row = [f"{found['gram_correlation'].value:.3f}", named, f"{back:.3f}", signed, folded]
    assert " | ".join(row).replace("-", "−") in page("clusters")


def test_chen_breaks_its_own_setting() -> None:
    """What its theory promises of independent values: the Gram matrix, images, public ones."""
    inside, cross = sorted(
        (record for _, record in CHEN if record.dataset.name == "synthetic-gaussian"),
        key=lambda record: "publics_found" in record.findings,
    )
    assert inside.findings["gram_correlation"].value >= 0.98
    assert cross.findings["publics_found"].value >= 0.99
    for record in (inside, cross):
        scores = [score for score in record.by_image["snr_db_abs"].attack if score is not None]
        assert sum(score >= 20 for score in scores) >= 0.9 * len(scores)


@pytest.mark.parametrize("dataset", ["cifar10", "fashion"])
def test_a_page_quotes_the_learned_linear_map(dataset: str) -> None:
    found = [Records(Path()).load(path) for path in RECORDS]
    (record,) = (
        each for each in found if each.attack.name == "regression" and each.dataset.name == dataset
    )
    score = record.privacy["snr_db"]
    assert score.gain is not None
    assert score.gain_ci is not None
    low, high = score.gain_ci
    row = [f"{score.mean:.2f}", f"{score.null:.2f}", f"{score.gain:.2f} ({low:.2f} to {high:.2f})"]
    assert " | ".join(row) in page("linear")
    assert score.null_name == "class_mean"
    assert score.gain >= 0.35


PAIRED = [
    record
    for record in (Records(Path()).load(path) for path in RECORDS)
    if record.attack.name == "em"
]


def test_a_page_quotes_pairs_by_likelihood() -> None:
    for record in PAIRED:
        found, score = record.findings, record.privacy["snr_db"]
        shares = [found[name].value for name in ("memberships_found", "encodings_assigned")]
        rest = f"{score.mean:.2f} | {record.privacy['ssim'].mean:.3f} | {score.gain:.2f} |"
        row = f"{' | '.join(f'{share:.3f}' for share in shares)} | {rest}"
        assert row.replace("-", "−") in page("clusters")


def test_pairs_of_cifar10_are_found_at_a_tenth() -> None:
    (record,) = (
        each
        for each in PAIRED
        if each.dataset.name == "cifar10" and each.defense[0].config["tau"] == 0.1
    )
    assert record.findings["encodings_assigned"].value >= 0.99
