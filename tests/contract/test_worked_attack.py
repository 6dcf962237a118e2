"""The attack that docs/plugins/attack.md writes from nothing: installed, checked and run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from strangers import Machine

PAGE = Path(__file__).parents[2] / "docs" / "plugins" / "attack.md"
FILE = re.compile(r'^```python title="(?P<path>[^"]+)"\n(?P<text>.*?)^```$', re.M | re.S)
SHOWN = re.compile(r"^snr_db ↑ +(?P<mean>[\d.]+) ±.*?\+(?P<gain>[\d.]+) \[", re.M)
COMMAND = re.compile(r"^\$ harness (?P<words>evaluate (?:.*\\\n)*.*)$", re.M)
CLOSE_DB = 0.05
"""The page rounds, and other processors round otherwise."""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """What `new-plugin` writes, with the files of the page in place of its own."""
    into = tmp_path_factory.mktemp("packages")
    machine = Machine(tmp_path_factory.mktemp("cache"))
    assert machine.harness("new-plugin", "attack", "regress", "--into", str(into)).code == 0
    files = FILE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(files) == 3
    for path, text in files:
        assert (into / "harness-regress" / path).exists()
        (into / "harness-regress" / path).write_text(text, encoding="utf-8")
    return into / "harness-regress"


@pytest.fixture(scope="module")
def installed(package, tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--target", site]
    subprocess.run([*pip, *offline, package], check=True)
    return Machine(tmp_path_factory.mktemp("cache"), (site,))


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
