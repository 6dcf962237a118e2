"""Strangers' packages in folders of their own, and the command line run with them installed."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import psutil
from forked import fork

SMALL = (
    *("evaluate", "--threads", "1", "--victim", "mlp", "--metrics", "snr_db", "--only", "privacy"),
    *("--private-size", "12", "--public-size", "40", "--test-size", "20", "--json"),
)
"""A cell of a few seconds; it still needs a dataset."""

SERIES = Path(__file__).with_name("series.py")
ASKING = """
import json, sys
from dataclasses import asdict
from harness.testing.catalogue import CHECKS
from harness.testing.examination import ask
from harness.testing.subject import find

def result(plugin, name):
    subject = find(plugin)
    (check,) = (check for check in CHECKS[subject.group] if check.name == name)
    return asdict(ask(check, subject))

print(json.dumps([result(*asked) for asked in json.loads(sys.argv[1])]))
"""


@dataclass(frozen=True)
class Ran:
    """What one command left on the terminal."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@dataclass(frozen=True)
class Machine:
    """The engine with a cache of its own and these folders of installed packages."""

    cache: Path
    sites: tuple[Path, ...] = ()

    def harness(self, *arguments):
        """One command, as typed."""
        return self.python("-m", "harness", *arguments)

    def series(self, commands):
        """Several commands, each as typed, in one process: what starts attacks is started once."""
        ran = self.python(str(SERIES), json.dumps(commands))
        assert ran.code == 0, ran.err
        return [Ran(**outcome) for outcome in ran.json]

    def python(self, *arguments):
        """Python with these arguments, and what it left."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, self.sites)),
            "HARNESS_CACHE": str(self.cache),
            "OMP_NUM_THREADS": "1",
        }
        process = fork(arguments, environment, Path.cwd())
        out, err = process.communicate(timeout=600)
        return Ran(process.wait(), out, err)

    def checked(self, asked):
        """What checks find, by plugin and check; in one process, for plugins that do not hang."""
        ran = self.python("-c", ASKING, json.dumps(asked))
        assert ran.code == 0, ran.err
        return dict(zip(asked, ran.json, strict=True))

    def left_behind(self):
        """Scratch files, and processes that were started with these folders on their path."""
        files = list((self.cache / "tmp").glob("*"))
        return files + [p for p in psutil.process_iter() if self._is_ours(p)]

    def _is_ours(self, process):
        try:
            path = process.environ().get("PYTHONPATH", "")
        except psutil.Error:
            return False
        return process.pid != os.getpid() and any(str(site) in path for site in self.sites)


def pip_install(site, *packages):
    """Packages from their sources into a folder, as pip installs them, without a network."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, *offline, "--target", site, *packages], check=True)


def install(site, distribution, source, *, plugin=None):
    """A package as pip leaves it: one module, its metadata and one entry point."""
    module = distribution.replace("-", "_")
    info = site / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (site / f"{module}.py").write_text(dedent(source))
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    entry = f"[harness.plugins]\n{plugin or distribution} = {module}\n"
    (info / "entry_points.txt").write_text(entry)


def names(listed):
    """Kinds and names of what `harness list --json` printed."""
    return Counter((kind, entry["name"]) for kind, entries in listed.items() for entry in entries)
