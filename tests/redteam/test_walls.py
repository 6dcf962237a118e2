"""A plugin's process is kept from what is none of its business, and by nothing but its walls.

Each deed is done twice: within the walls, where it has to fail, and without, where it succeeds. So
a test fails when its protection is gone, and when the deed would have failed anyway.
"""

import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import deeds
import pytest

from harness.api.errors import CellFailed
from harness.api.plugins import silent
from harness.api.view import Budget
from harness.sandbox.jail import MACHINES, Walls, steps
from harness.sandbox.process import AttackProcess, ForkServers

HERE = str(Path(__file__).parent)
BUDGET = Budget(30.0, 4000, 1)
ROOT_ALONE = {"leaves_a_device", "renames_the_machine"}

pytestmark = pytest.mark.skipif(
    not Walls.here().stand or platform.machine() != "x86_64",
    reason="the kernel has no Landlock, or its calls have other numbers here",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folders of one attack, and things that are none of its business."""
    base, cache, home, other = (
        tmp_path_factory.mktemp(name) for name in ("base", "cache", "home", "other")
    )
    (base / "out").mkdir()
    for folder in ("records", "cells"):
        (cache / folder).mkdir()
    for path in (cache / "records" / "secret", home / "key", other / "view", base / "view"):
        path.write_text("secret")
    return {"base": base, "out": base / "out", "cache": cache, "home": home, "other": other}


@pytest.fixture(scope="module")
def listening(tmp_path_factory):
    """Sockets of every kind that somebody else listens at."""
    path, name = str(tmp_path_factory.mktemp("s") / "s"), f"redteam-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as file,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as letters,
    ):
        letters.bind(path + "-letters")
        for each, address in ((file, path), (abstract, "\0" + name)):
            each.bind(address)
            each.listen()
        yield {"port": tcp.getsockname()[1], "socket": path, "abstract": name} | {
            "letterbox": path + "-letters"
        }


@pytest.fixture(scope="module")
def processes(place, tmp_path_factory):
    """A process within its walls, and one without."""
    patch = pytest.MonkeyPatch()
    patch.setenv("HARNESS_CACHE", str(place["cache"]))
    patch.setenv("PYTHONPATH", os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]))
    patch.setenv("REDTEAM_TOKEN", "secret")
    logs = tmp_path_factory.mktemp("logs")
    servers = ForkServers()  # of this environment, whatever others in this process keep
    with servers.kept():
        within = AttackProcess(logs / "within", 1, servers.start)
        within.confine([place["base"]], [place["out"]])
        without = AttackProcess(logs / "without", 1, servers.start)
        yield {"within": within, "without": without}
        within.close()
        without.close()
    patch.undo()


@pytest.fixture
def bystander():
    """Some other process of the same user."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def do(processes, place, listening, bystander):
    def done(where, deed):
        for left in place["out"].iterdir():
            left.unlink()
        pointer, other = (place["cache"] / "cells" / name for name in ("pointer", "other"))
        other.unlink(missing_ok=True)
        pointer.write_text("id")
        (place["base"] / "planted").unlink(missing_ok=True)
        job = {name: str(path) for name, path in place.items()} | listening
        job |= {"action": "call", "function": "deeds:do", "deed": deed}
        processes[where].ask(job | {"parent": os.getpid(), "victim": bystander}, BUDGET, silent)

    return done


@pytest.mark.parametrize("deed", [deed.__name__ for deed in deeds.PREVENTED])
def test_what_is_none_of_its_business_is_out_of_reach(deed, do):
    with pytest.raises(CellFailed):
        do("within", deed)
    if deed == deeds.reads_a_secret_of_the_environment.__name__:
        return  # nobody hands it on, within walls or without
    if deed in ROOT_ALONE and os.getuid():
        return
    do("without", deed)


def test_the_process_says_how_it_is_confined(do, processes):
    with pytest.raises(CellFailed):
        do("within", "reads_the_cache")
    assert processes["within"].walls == {"landlock": Walls.here().landlock, "seccomp": True}
    assert processes["without"].walls == {}


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_every_jump_of_the_filter_ends_within_it(machine):
    program = steps(MACHINES[machine])
    for place, (_, if_so, if_not, _) in enumerate(program):
        assert place + 1 + max(if_so, if_not) < len(program) or program[place][0] == 0x06
    assert len(program) < 256
