"""A stranger's distribution: installed, listed, run on every kind of release, and taken away."""

import ast

import pytest
from strangers import SMALL, Machine, names

STRIPES = (*SMALL, "--dataset", "stripes")
OFFERED = {
    ("defenses", "blur"),
    ("defenses", "clouds"),
    ("defenses", "smallhidden"),
    ("defenses", "clip"),
    ("attacks", "sharpen"),
    ("attacks", "featuremean"),
    ("attacks", "inputlayer"),
    ("attacks", "lookup"),
    ("learners", "spectrum"),
    ("datasets", "stripes"),
    ("metrics", "max_error"),
    ("spaces", "corners"),
}


def cell(defense, attack, *options):
    return [*STRIPES, "--defense", defense, "--attack", attack, *options]


CELLS = {
    "encodings": cell("blur[strength=0.5]", "sharpen", "--metrics", "snr_db,max_error"),
    "features": cell("smallhidden[weight=0.01]", "featuremean", "--public-size", "400"),
    "blurred features": cell("smallhidden+blur", "featuremean"),
    "gradients": cell("none", "inputlayer"),
    "clipped gradients": cell("clip[norm=0.01]+none", "inputlayer", "--targets", "5"),
    "blurred gradients": cell("clip+blur", "inputlayer"),
    "gradients of batches": cell("none", "inputlayer", "--batch-size", "5"),
    "candidates": cell("blur", "lookup", "--threat-model", "candidates"),
    "utility": cell("smallhidden+clip+blur", "sharpen", "--only", "utility", "--repeats", "2"),
    "a space": cell(
        *("singmix[radius=0]", "linear", "--space", "corners"),
        *("--metrics", "snr_db,ssim,max_error"),
    ),
    "training in a space": cell(
        *("none", "linear", "--space", "corners", "--only", "utility"),
        *("--private-size", "200", "--test-size", "100"),
    ),
    "features in a space": cell("none", "linear", "--space", "corners", "--release", "features"),
}


@pytest.fixture(scope="module")
def ran(machine):
    return dict(zip(CELLS, machine.series(list(CELLS.values())), strict=True))


@pytest.fixture(scope="module")
def records(ran):
    for name, outcome in ran.items():
        assert outcome.code == 0, f"{name}: {outcome}"
    return {name: outcome.json for name, outcome in ran.items()}


def snr(record):
    return record["privacy"]["snr_db"]


def test_it_imports_nothing_of_the_engine_but_the_contract(example):
    trees = [ast.parse(path.read_text()) for path in (example / "harness_example").glob("*.py")]
    imports = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    engine = {node.module for node in imports if node.module.partition(".")[0] == "harness"}
    assert engine == {"harness.api"}


def test_every_plugin_of_it_is_listed_and_healthy(machine):
    listed, doctor = machine.harness("list", "--json"), machine.harness("doctor")
    assert set(names(listed.json)) >= OFFERED
    assert (listed.code, doctor.code) == (0, 0), doctor.out


def test_a_blur_is_undone(records):
    record = records["encodings"]
    assert record["release_kind"] == "encodings"
    assert snr(record)["mean"] > 40 > record["companions"]["identity"]["snr_db"]["mean"]
    assert record["privacy"]["max_error"]["mean"] < 0.01
    assert record["privacy"]["max_error"]["gain"] > 0.3


def test_encodings_say_nothing_of_a_defense_that_acts_later(machine):
    (outcome,) = machine.series([cell("clip", "sharpen")])
    assert outcome.code == 1
    assert outcome.json["status"] == "not_applicable"
    assert outcome.json["error"].startswith(
        "'sharpen' reads encodings; what is released under 'clip'"
    )


def test_a_space_is_judged_in_its_own_features(records):
    """Noiseless mixtures of known weights and sources are solved, wherever they live."""
    record = records["a space"]
    assert record["space"]["name"] == "corners"
    assert snr(record)["mean"] > 10 > snr(record)["null"]
    assert "'corners' holds features" in record["privacy"]["ssim"]["unavailable"]
    assert "'corners' holds features" in record["privacy"]["max_error"]["unavailable"]


def test_a_victim_learns_in_a_space(records):
    utility = records["training in a space"]["utility"]
    assert utility["accuracy"] > utility["chance"] + 0.1


def test_a_victim_in_a_space_releases_features_of_features(records):
    record = records["features in a space"]
    assert record["release_kind"] == "features"
    assert snr(record)["n"] == record["splits"]["targets"]


def test_features_are_extracted_once(machine, records):
    (again,) = machine.series([cell("blur", "identity", "--space", "corners", "--seed", "0")])
    assert "features" not in again.json["timing"] or again.json["timing"]["features"] < 1
    held = machine.harness("cache", "info", "--json").json
    assert held["features_bytes"] > 0
    assert machine.harness("cache", "verify").code == 0


def test_several_trainings_are_averaged(records):
    utility = records["utility"]["utility"]
    (plain,) = [utility["accuracies"]["plain"]]
    assert len(plain["trainings"]) == 2
    assert utility["accuracy"] == pytest.approx(sum(plain["trainings"]) / 2)
    assert "training ratio" not in records["utility"]["timing"]  # too short to be measured
    assert records["utility"]["measures"]["separability.across.mean"] > 0


def test_features_tell_more_than_a_guess(records):
    record = records["features"]
    assert record["release_kind"] == "features"
    assert snr(record)["gain_ci"][0] > 5
    assert [d["config"] for d in record["defense"]] == [{"weight": 0.01}]


def test_features_of_a_victim_trained_on_encodings_leave_too(records):
    assert snr(records["blurred features"])["mean"] > 0
    assert len(records["blurred features"]["defense"]) == 2


def test_the_first_layers_gradient_is_the_image(records):
    record = records["gradients"]
    assert record["release_kind"] == "gradients"
    assert record["channels_used"] == ["gradients"]
    assert snr(record)["mean"] > 40
    assert snr(record)["n"] == 12


def test_clipping_a_gradient_hides_nothing_and_the_judged_images_are_those_released(records):
    record = records["clipped gradients"]
    assert snr(record)["n"] == record["splits"]["targets"] == 5
    assert min(snr(record)["ci"]) > 40


def test_gradients_of_blurred_images_give_blurred_images(records):
    assert 0 < snr(records["blurred gradients"])["mean"] < 40


def test_images_that_fill_no_batch_are_not_judged(records):
    record = records["gradients of batches"]
    assert record["splits"]["private"] == 12
    assert record["splits"]["targets"] == 10
    assert snr(record)["mean"] < 10


def test_candidates_are_told_from_decoys(records):
    found = records["candidates"]["identification"]
    assert found["candidates"] == 24
    assert found["top1"] > 0.8 > found["top1_chance"]


def test_a_stack_of_all_three_stages_trains(records):
    utility = records["utility"]["utility"]
    assert utility["n"] == 20
    assert 0 <= utility["accuracy"] <= 1


def test_records_name_the_distribution_and_the_source_that_ran(records):
    record = records["clipped gradients"]
    used = [record["defense"][0], record["attack"], record["dataset"]]
    assert {plugin["distribution"] for plugin in used} == {"harness-example"}
    assert all(len(bytes.fromhex(plugin["source_sha256"])) == 32 for plugin in used)
    assert len({plugin["source_sha256"] for plugin in used}) == 3
    assert record["victim"]["distribution"] == record["defense"][1]["distribution"]


def test_a_changed_source_is_another_plugin(machine, example, tmp_path, records):
    import shutil

    changed = tmp_path / "site"
    shutil.copytree(example, changed)
    with (changed / "harness_example" / "attacks.py").open("a") as file:
        file.write("# a comment counts\n")
    before = records["gradients"]["attack"]["source_sha256"]
    ran = Machine(machine.cache, (changed,)).harness(*CELLS["gradients"])
    assert ran.json["attack"]["source_sha256"] != before
    assert snr(ran.json) == snr(records["gradients"])


def test_uninstalled_it_vanishes_and_its_records_stay(machine, records):
    bare = Machine(machine.cache)
    identity = records["gradients"]["id"]
    listed, doctor, shown, lost = bare.series(
        [["list", "--json"], ["doctor"], ["show", identity], CELLS["gradients"]]
    )
    assert not OFFERED & set(names(listed.json))
    assert doctor.code == 0
    assert shown.code == 0
    assert "inputlayer" in shown.out
    assert (lost.code, lost.out) == (2, "")
    assert "Unknown attack 'inputlayer'" in lost.err


def test_nothing_is_left_behind(machine, records):
    assert machine.left_behind() == []


def test_noise_of_a_colour_that_nobody_stated_is_learned_and_told_by_a_flag(machine):
    sizes = ("--private-size", "200", "--public-size", "5000", "--preset", "quick")
    asked = (*STRIPES[:-1], "fashion-mini", "--defense", "clouds", *sizes)
    ran = machine.series([[*asked, "--attack", name] for name in ("lmmse", "regression")])
    stated, learned = (outcome.json for outcome in ran)
    errors = [record["findings"]["squared_error"]["value"] for record in (stated, learned)]
    assert errors[0] / errors[1] >= 10**0.8  # 8 dB
    flags = [{flag["name"] for flag in record["flags"]} for record in (stated, learned)]
    assert "missed_forecast" in flags[0]
    assert "missed_forecast" not in flags[1]
