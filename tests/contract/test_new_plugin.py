"""`harness new-plugin`: what it writes installs, keeps the contract, and can be filled in place."""

import pytest
from strangers import Machine, pip_install

WRITTEN = {
    "fog": ("defense",),
    "calm": ("defense", "--stage", "training"),
    "quiet-one": ("defense", "--stage", "gradient"),
    "unmix": ("attack",),
    "centroids": ("learner",),
}
IDEAS = {"unmix": "attack.py", "centroids": "learner.py"}
SISTERS = ("calm", "quiet-one")
"""Written from templates that differ from fog's in the idea alone."""


def written(folder, name):
    kind, *stage = WRITTEN[name]
    return ["new-plugin", kind, name, *stage, "--into", str(folder)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("packages")


@pytest.fixture(scope="module")
def ran(folder, tmp_path_factory):
    machine = Machine(tmp_path_factory.mktemp("cache"))
    return dict(zip(WRITTEN, machine.series([written(folder, n) for n in WRITTEN]), strict=True))


@pytest.fixture(scope="module")
def installed(ran, folder, tmp_path_factory):
    """The engine with all packages installed."""
    site = tmp_path_factory.mktemp("site")
    pip_install(site, *(folder / f"harness-{name}" for name in WRITTEN))
    return Machine(tmp_path_factory.mktemp("cache"), (site,))


def test_it_says_where_the_idea_goes_and_what_to_do_then(ran, folder):
    assert {outcome.code for outcome in ran.values()} == {0}
    lines = ran["fog"].out.splitlines()
    idea = folder / "harness-fog" / "src" / "harness_fog" / "defense.py"
    assert f"Your idea goes into {idea}. Then:" in lines
    assert lines[-2:] == ["  harness check fog", "  pytest"]


@pytest.mark.parametrize("name", WRITTEN)
def test_there_is_one_place_for_the_idea(ran, folder, name):
    sources = list((folder / f"harness-{name}").rglob("*.py"))
    places = [path.name for path in sources if "Your idea goes here" in path.read_text()]
    assert places == [IDEAS.get(name, "defense.py")]


@pytest.mark.parametrize("name", WRITTEN)
def test_its_board_is_one_that_the_harness_can_run(installed, folder, name):
    board = folder / f"harness-{name}" / "leaderboards" / "local"
    assert name in (board / "board.toml").read_text()
    foreseen = installed.harness("matrix", "--board", str(board), "--dry-run", "--json")
    assert foreseen.code == 0, foreseen.err
    assert "impossible" not in {cell["state"] for cell in foreseen.json}


def test_its_own_tests_pass_as_it_was_written(installed, folder):
    """The conformance kit is among them; that of the sisters is asked below."""
    ideas = [folder / f"harness-{name}" / "tests" / "test_idea.py" for name in SISTERS]
    tests = [folder / f"harness-{name}" / "tests" for name in WRITTEN if name not in SISTERS]
    options = ("-q", "-W", "error", "-p", "no:cacheprovider", "--import-mode=importlib")
    done = installed.python(
        "-m", "pytest", *options, "--rootdir", str(folder), *map(str, tests + ideas)
    )
    assert done.code == 0, done.out
    assert " failed" not in done.out


def test_defenses_of_other_stages_keep_the_contract_too(installed):
    asked = [(name, check) for name in SISTERS for check in ("release", "secrets", "device")]
    wrong = [r for r in installed.checked(asked).values() if r["verdict"] != "ok"]
    assert wrong == []


def test_a_name_that_is_taken_and_a_folder_that_is_there_are_refused(installed, folder, tmp_path):
    taken, there, staged = installed.series(
        [
            written(folder, "fog"),
            ["new-plugin", "defense", "mist", "--into", str(tmp_path)],
            ["new-plugin", "attack", "mist", "--stage", "training", "--into", str(tmp_path)],
        ]
    )
    assert (taken.code, there.code, staged.code) == (2, 0, 2)
    assert "'fog' is taken: plugin 'fog' of distribution 'harness-fog'" in taken.err
    (again,) = installed.series([["new-plugin", "defense", "mist", "--into", str(tmp_path)]])
    assert again.code == 2
    assert "is there already" in again.err
    assert [path.name for path in tmp_path.iterdir()] == ["harness-mist"]


def test_where_nothing_can_be_written_nothing_is(tmp_path):
    (tmp_path / "file").write_text("in the way")
    into = str(tmp_path / "file" / "below")
    (ran,) = Machine(tmp_path / "cache").series([["new-plugin", "defense", "mist", "--into", into]])
    assert ran.code == 2
    assert "Traceback" not in ran.err
    assert (tmp_path / "file").read_text() == "in the way"


SEARCHES = """
from harness.api import Attack, Reconstruction, View
import torch

class PickOut(Attack):
    def reconstruct(self, view, prepared, budget, progress):
        one, listed = view.encodings[0].flatten(1), view.candidates.flatten(1)
        scores = -torch.cdist(one, listed)
        return Reconstruction(rows=torch.arange(len(one)), claims={"candidate_scores": scores})
"""
DECLARES = {
    "needs=(frozenset({Channel.ENCODINGS}),)": "needs=(frozenset({Channel.ENCODINGS, "
    "Channel.CANDIDATES}),)",
    "optional=frozenset({Channel.WEIGHTS, Channel.SOURCES}),": "",
    '"snr_db",': '"identification.top1",',
    "40.0,": "0.9,",
    '"rounds": 2': '"threat_model": "candidates"',
}


def test_its_tests_do_not_fail_another_idea(tmp_path):
    """One that makes no image, needs a list of candidates, and has no use for more rounds."""
    machine = Machine(tmp_path / "cache")
    (ran,) = machine.series([["new-plugin", "attack", "pick-out", "--into", str(tmp_path)]])
    assert ran.code == 0, ran.err
    package = tmp_path / "harness-pick-out"
    source = package / "src" / "harness_pick_out"
    text = (source / "plugin.py").read_text()
    for before, after in DECLARES.items():
        assert before in text
        text = text.replace(before, after)
    (source / "plugin.py").write_text(text)
    (source / "attack.py").write_text(SEARCHES)
    site = tmp_path / "site"
    pip_install(site, package)
    done = Machine(tmp_path / "other", (site,)).python(
        *("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"),
        *("--import-mode=importlib", "--rootdir", str(package), str(package / "tests")),
    )
    assert done.code == 0, done.out
    assert " failed" not in done.out
