"""The example distribution, installed once as a stranger's."""

import shutil
from pathlib import Path

import pytest
from strangers import Machine, pip_install

from harness.sandbox.process import FORK_SERVERS

EXAMPLE = Path(__file__).parents[2] / "plugins" / "example_thirdparty"


@pytest.fixture(scope="session", autouse=True)
def fork_servers():
    """What starts attacks' processes imports torch once for all evaluations in this process."""
    with FORK_SERVERS.kept():
        yield


@pytest.fixture(scope="session")
def example(tmp_path_factory):
    """The folder that pip installed `harness-example` into, from a copy of its sources."""
    work = tmp_path_factory.mktemp("example")
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    shutil.copytree(EXAMPLE, work / "source", ignore=ignored)
    pip_install(work / "site", work / "source")
    return work / "site"


@pytest.fixture(scope="session")
def machine(example, tmp_path_factory):
    """The engine with the example installed."""
    return Machine(tmp_path_factory.mktemp("cache"), (example,))
