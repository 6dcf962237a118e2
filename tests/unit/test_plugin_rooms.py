"""Built-in plugins stand beside each other: the source of one is not part of another's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.asking.registry import GROUP, registry
from harness.store.provenance import modules_of

pytestmark = pytest.mark.core

BUILT_IN = "harness_plugins"
HOMES = {
    entry.module for entry in entry_points(group=GROUP) if entry.module.startswith(BUILT_IN + ".")
}
"""A module or folder for each plugin."""
BUILT_ON = {"harness_plugins.spaces.pooled": "harness_plugins.spaces.imagenet"}
"""Plugins that are another plugin's own output, a step further: its source is part of theirs."""


def home(module: str) -> str | None:
    """The plugin that a module belongs to; none for what plugins share."""
    within = [name for name in HOMES if module == name or module.startswith(name + ".")]
    return within[0] if within else None


def homes(module: str) -> set[str | None]:
    """Where what a module uses may live."""
    own = home(module)
    return {own, BUILT_ON.get(own or ""), None}


def root() -> Path:
    spec = find_spec(BUILT_IN)
    assert spec
    assert spec.origin
    return Path(spec.origin).parent


def modules() -> Iterator[str]:
    for path in root().rglob("*.py"):
        parts = path.relative_to(root().parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_plugin_uses_another_plugin_s_folder() -> None:
    """Nor does what plugins share: then one plugin would be part of all that share it."""
    found = list(modules())
    assert set(found) >= HOMES
    strangers = {
        module: sorted(others)
        for module in found
        if (others := {home(name) for name in modules_of(module)} - homes(module))
    }
    assert not strangers


def parts(attack: str) -> list[str]:
    """The modules that an attack names: its class, its options, what makes its preparations."""
    spec = registry().spec("attacks", attack)
    factories = [spec.factory, *(made.factory for made in spec.preparations)]
    return [*(factory.partition(":")[0] for factory in factories), spec.config.__module__]


SOURCES = {name: parts(name) for name in registry().entries["attacks"] if name != "suite"}


def hashes(folder: Path) -> dict[str, list[str]]:
    """Of every part of every built-in attack, in a fresh process that finds plugins in `folder`."""
    script = (
        "import json, sys; from harness.store.provenance import source_sha256\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        f"parts = json.loads({json.dumps(SOURCES)!r})\n"
        "print(json.dumps({n: [source_sha256(m) for m in each] for n, each in parts.items()}))\n"
    )
    command = [sys.executable, "-c", script]
    found: dict[str, list[str]] = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
    return found


@pytest.fixture
def changed_by(tmp_path: Path) -> Callable[[str], set[str]]:
    """The attacks that have a part whose hash moves once files of a copy are edited."""
    shutil.copytree(root(), tmp_path / BUILT_IN, ignore=lambda _, names: _data(names))
    before = hashes(tmp_path)

    def edit(pattern: str) -> set[str]:
        edited = list((tmp_path / BUILT_IN).glob(pattern))
        assert edited
        for path in edited:
            path.write_text(path.read_text(encoding="utf-8") + "# edited\n", encoding="utf-8")
        after = hashes(tmp_path)
        return {name for name in before if before[name] != after[name]}

    return edit


def _data(names: list[str]) -> set[str]:
    return {name for name in names if "." in name and not name.endswith(".py")}


@pytest.mark.parametrize("attack", ["unet", "prior", "linear", "similarity", "luo"])
def test_editing_an_attack_makes_nothing_of_another_anew(
    attack: str, changed_by: Callable[[str], set[str]]
) -> None:
    assert changed_by(f"attacks/{attack}/*.py") == {attack}


def test_editing_the_u_net_s_blocks_concerns_those_that_train_one(
    changed_by: Callable[[str], set[str]],
) -> None:
    changed = changed_by("networks/unet.py")
    assert {"unet", "prior", "demask", "unfold", "carlini", "average"} <= changed
    assert not {"lmmse", "linear", "nearest", "similarity", "gradmatch", "luo", "chen"} & changed
