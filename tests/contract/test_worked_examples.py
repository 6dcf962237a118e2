"""The plugins that pages of docs/plugins write from nothing: installed, checked and run."""

import re
from pathlib import Path

import pytest
from strangers import Machine, pip_install

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "docs" / "plugins"
PAGE = PLUGINS / "attack.md"
FILE = re.compile(r'^```\w+ title="(?P<path>[^"]+)"\n(?P<text>.*?)^```$', re.M | re.S)
SHOWN = re.compile(r"^snr_db ↑ +(?P<mean>[\d.]+) ±.*?\+(?P<gain>[\d.]+) \[", re.M)
COMMAND = re.compile(r"^\$ harness (?P<words>evaluate (?:.*\\\n)*.*)$", re.M)
CLOSE_DB = 0.05
"""The page rounds, and other processors round otherwise."""


def write(page, folder):
    """The files of a page below a folder, and their paths."""
    files = FILE.findall(page.read_text(encoding="utf-8"))
    for path, text in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return [path for path, _ in files]


def with_plugin(package, tmp_path_factory):
    """The engine with a package installed."""
    site = tmp_path_factory.mktemp("site")
    pip_install(site, package)
    return Machine(tmp_path_factory.mktemp("cache"), (site,))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """What `new-plugin` writes, with the files of the page in place of its own."""
    into = tmp_path_factory.mktemp("packages")
    machine = Machine(tmp_path_factory.mktemp("cache"))
    assert machine.harness("new-plugin", "attack", "regress", "--into", str(into)).code == 0
    package = into / "harness-regress"
    before = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    written = write(PAGE, package)
    assert len(written) == 3
    assert before >= set(written)
    return package


@pytest.fixture(scope="module")
def installed(package, tmp_path_factory):
    return with_plugin(package, tmp_path_factory)


def test_the_command_of_the_page_leaks_what_the_page_shows(installed):
    text = PAGE.read_text(encoding="utf-8")
    words = COMMAND.search(text)["words"].replace("\\\n", " ").split()
    ran = installed.harness(*words, "--json", "--threads", "1")
    assert ran.code == 0, ran.err
    score = ran.json["privacy"]["snr_db"]
    shown = SHOWN.search(text)
    assert score["mean"] == pytest.approx(float(shown["mean"]), abs=CLOSE_DB)
    assert score["gain"] == pytest.approx(float(shown["gain"]), abs=2 * CLOSE_DB)
    assert score["gain_ci"][0] > 0
    assert not {"weights", "sources"} & set(ran.json["channels_used"])


def test_it_keeps_the_contract_and_what_its_own_tests_promise(installed, package):
    options = ("-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", str(package))
    done = installed.python("-m", "pytest", *options, str(package / "tests"))
    assert done.code == 0, done.out
    assert " failed" not in done.out


def test_the_learner_of_the_page_keeps_its_contract_and_learns(tmp_path, tmp_path_factory):
    page, folder = PLUGINS / "learner.md", tmp_path / "harness-randomlayer"
    first = Machine(tmp_path_factory.mktemp("cache"))
    assert first.harness("new-plugin", "learner", "randomlayer", "--into", str(tmp_path)).code == 0
    assert all(path.startswith(("src/", "tests/")) for path in write(page, folder))
    machine = with_plugin(folder, tmp_path_factory)
    options = ("-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", str(folder))
    done = machine.python("-m", "pytest", *options, str(folder / "tests"))
    assert done.code == 0, done.out
    text = page.read_text(encoding="utf-8")
    words = COMMAND.search(text)["words"].replace("\\\n", " ").replace("'", "").split()
    ran = machine.harness(*words, "--json", "--threads", "1")
    assert ran.code == 0, ran.err
    (shown,) = re.findall(r"^best learner randomlayer: accuracy ([\d.]+)", text, re.M)
    assert ran.json["utility"]["accuracy"] == pytest.approx(float(shown), abs=0.02)


def test_the_metric_of_the_page_keeps_the_contract(tmp_path, tmp_path_factory):
    assert "pyproject.toml" in write(PLUGINS / "index.md", tmp_path)
    checked = with_plugin(tmp_path, tmp_path_factory).harness("check", "max_error")
    assert checked.code == 0, checked.out + checked.err
    assert checked.out.splitlines()[-1].endswith("nothing to fix")


def test_the_table_of_a_board_is_read_as_its_page_shows(monkeypatch, capsys):
    page = (ROOT / "docs" / "boards.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    monkeypatch.chdir(ROOT)
    exec(code)
    gains = dict(line.split() for line in capsys.readouterr().out.splitlines()[1:-1])
    assert float(gains["none"]) > 100
