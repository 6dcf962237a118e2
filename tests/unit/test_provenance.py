"""A hash of source: of all that a module imports, and of nothing else."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.asking.registry import registry
from harness.store.provenance import (
    API_WAS,
    _modules,
    code_state,
    is_of_today,
    module_sha256,
    modules_of,
    source_sha256,
    spec_source,
)

pytestmark = pytest.mark.core

SOURCES = {
    "__init__.py": "raise RuntimeError('hashing runs nothing')\n",
    "attack.py": "import torch\nfrom mine.net import Net\nfrom . import rows\n",
    "net.py": (
        "from typing import TYPE_CHECKING\n"
        "from mine.deep import Layer\n"
        "if TYPE_CHECKING:\n"
        "    from mine.kinds import Kind\n"
        "class Net: ...\n"
    ),
    "kinds.py": "class Kind: ...\n",
    "rows.py": "def late():\n    import mine.late\n",
    "late.py": "",
    "unrelated.py": "",
    "deep/__init__.py": "from mine.deep.layer import Layer\nfrom mine.unrelated import most\n",
    "deep/layer.py": "from ..shared import number\nclass Layer: ...\n",
    "shared.py": "number = 1\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose `attack` imports most of the rest, in every way there is."""
    for name, text in SOURCES.items():
        path = tmp_path / "mine" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path / "mine"


def digest(package: Path) -> str:
    """The hash as a fresh process takes it: within one, sources are read once."""
    script = (
        "import sys; from harness.store.provenance import source_sha256\n"
        f"sys.path.insert(0, {str(package.parent)!r})\n"
        "print(source_sha256('mine.attack'))\n"
        "assert not {'mine', 'torch', 'numpy'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "name", ["attack.py", "net.py", "rows.py", "late.py", "deep/layer.py", "shared.py"]
)
def test_a_change_in_what_is_imported_changes_the_hash(package: Path, name: str) -> None:
    before = digest(package)
    assert digest(package) == before
    (package / name).write_text(SOURCES[name] + "# changed\n")
    assert digest(package) != before


@pytest.mark.parametrize("name", ["unrelated.py", "kinds.py", "deep/__init__.py"])
def test_a_change_elsewhere_does_not(package: Path, name: str) -> None:
    """Nor one in what is imported for types alone, or in what only passes a name on."""
    before = digest(package)
    (package / name).write_text(SOURCES[name] + "# changed\n")
    assert digest(package) == before


PACKAGES = {
    "__init__.py": "",
    "shop/__init__.py": (
        "from typing import TYPE_CHECKING\n"
        "from .bread import Bread, Crumb\n"
        "from mine.shop.cakes import Cake as Tart\n"
        "from . import till\n"
        "from .rolls import Roll\n"
        "if TYPE_CHECKING:\n"
        "    from .oven import Oven\n"
        "class Shop: ...\n"
        "Crumb.size = 2\n"
        "try:\n    from .fast import scale\nexcept ImportError:\n    from .slow import scale\n"
        "def __getattr__(name):\n"
        "    if name == 'Oven':\n"
        "        from mine.shop.oven import Oven\n"
        "        return Oven\n"
    ),
    "shop/bread.py": "from mine.flour import Flour\nclass Bread: ...\nclass Crumb: ...\n",
    "shop/cakes.py": "class Cake: ...\n",
    "shop/rolls/__init__.py": "from .round import Roll\n",
    "shop/rolls/round.py": "class Roll: ...\n",
    "shop/oven.py": "class Oven: ...\n",
    "shop/till.py": "",
    "shop/fast.py": "scale = 1\n",
    "shop/slow.py": "scale = 2\n",
    "flour.py": "class Flour: ...\n",
    "bare/salt.py": "from mine.bare.sea import water\n",
    "bare/sea.py": "water = 1\n",
}

ALL = {
    "shop",
    "shop.bread",
    "shop.cakes",
    "shop.fast",
    "shop.oven",
    "shop.rolls.round",
    "shop.slow",
    "shop.till",
    "flour",
}
"""What the whole of the shop uses: it does not say of which name it is in need."""


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("from mine.shop import Bread", {"shop.bread", "flour"}),
        ("from .shop import Bread", {"shop.bread", "flour"}),
        ("def bake():\n    from mine.shop import Bread", {"shop.bread", "flour"}),
        ("from mine.shop import Tart", {"shop.cakes"}),
        ("from mine.shop import Roll", {"shop.rolls.round"}),
        ("from mine.shop import Oven", {"shop.oven"}),
        ("from mine.shop import till", {"shop.till"}),
        ("from mine.shop.till import opened", {"shop.till"}),
        ("import mine.shop.till", {"shop.till"}),
        ("from mine.bare import salt", {"bare.salt", "bare.sea"}),
        ("from mine.bare.salt import water", {"bare.salt", "bare.sea"}),
        ("import mine.shop", ALL),
        ("from mine.shop import *", ALL),
        ("from mine.shop import Shop", ALL),
        ("from mine.shop import Crumb", ALL),
        ("from mine.shop import scale", ALL),
        ("from mine.shop import gone", ALL),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import mine.shop", set()),
        ("import typing\nif typing.TYPE_CHECKING:\n    from mine.shop import Bread", set()),
        ("if TYPE_CHECKING:\n    import mine.shop\nelse:\n    import mine.flour", {"flour"}),
    ],
)
def test_a_name_is_followed_to_the_module_that_defines_it(
    tmp_path: Path, text: str, used: set[str]
) -> None:
    for name, source in {**PACKAGES, "asks.py": text}.items():
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    script = (
        "import sys; from harness.store.provenance import modules_of\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "print(*modules_of('mine.asks'))\n"
    )
    command = [sys.executable, "-c", script]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said == sorted(["mine.asks", *(f"mine.{name}" for name in used)])


def test_splitting_a_dataset_is_decided_by_few_modules() -> None:
    used = modules_of("harness.running.load")
    assert {"harness.running.load", "harness.api.data"} <= set(used)
    assert not {"harness.api", "harness.api.plugins", "harness.running.judge"} & set(used)
    assert len(used) <= 15


def packages(folder: Path, *modules: str) -> dict[str, str]:
    """What `packages_of` says in a fresh process that finds modules in `folder` too."""
    script = (
        "import json, sys; from harness.store.provenance import packages_of\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        f"print(json.dumps(packages_of(*{modules!r})))\n"
        "assert not {'mine', 'torch', 'numpy'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", script]
    found: dict[str, str] = json.loads(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )
    return found


def test_packages_are_those_that_the_closure_imports(package: Path) -> None:
    install(package.parent, "Fancy.Numbers", "1.2", top="fancy")
    install(package.parent, "torch", "9.9", top="torch")
    install(package.parent, "unused", "1", top="unused")
    assert packages(package.parent, "mine.attack") == {"torch": "9.9"}
    (package / "late.py").write_text("def later():\n    from fancy.solver import solve\n")
    wanted = {"torch": "9.9", "Fancy.Numbers": "1.2"}
    assert packages(package.parent, "mine.attack") == wanted
    (package / "unrelated.py").write_text("import unused\n")
    assert packages(package.parent, "mine.attack") == wanted


def test_what_decides_no_numbers_or_is_not_installed_is_no_package_of_a_key(package: Path) -> None:
    text = "import json, pydantic, nowhere\nimport harness.api\nfrom mine import net\n"
    (package / "rows.py").write_text(text)
    assert packages(package.parent, "mine.rows") == {}


def install(folder: Path, name: str, number: str, top: str) -> None:
    """A distribution as an installer leaves it, of one package."""
    info = folder / f"{name}-{number}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    (info / "top_level.txt").write_text(f"{top}\n")


def test_a_built_in_plugin_is_hashed_without_running_it() -> None:
    script = (
        "import sys; from harness.store.provenance import source_sha256\n"
        "source_sha256('harness.running.release', 'harness_plugins.attacks.unet.attack')\n"
        "print(sorted({'torch', 'numpy', 'scipy'} & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_code_is_dirty_where_code_changed_and_not_for_new_records(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        user = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", "-C", str(tmp_path), *user, *arguments], check=True)

    assert code_state(tmp_path) == {}
    (tmp_path / "harness").mkdir()
    code = tmp_path / "harness" / "code.py"
    code.write_text("x = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "code")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "record.json").write_text("{}")
    assert code_state(tmp_path)["dirty"] is False
    (tmp_path / "harness" / "more.py").write_text("y = 2\n")
    assert code_state(tmp_path)["dirty"] is True
    git("add", ".")
    git("commit", "-qm", "more")
    code.write_text("x = 2\n")
    assert code_state(tmp_path)["dirty"] is True


def test_a_plugin_without_options_of_its_own_is_not_made_of_the_api() -> None:
    """Nor is a record older that once counted the API as it then was."""
    spec = registry().spec("defenses", "none")
    (own,) = _modules(spec)
    assert own.startswith("harness_plugins.")
    assert spec_source(spec) == source_sha256(own)
    digest = hashlib.sha256()
    for name in sorted({*modules_of(own), *API_WAS}):
        digest.update(f"{name}\0{API_WAS.get(name) or module_sha256(name)}\n".encode())
    assert is_of_today(spec, digest.hexdigest())
    assert is_of_today(spec, spec_source(spec))
    assert not is_of_today(spec, source_sha256("harness.api.specs"))


def test_a_config_of_its_own_is_part_of_a_plugin() -> None:
    assert "harness_plugins.defenses.singmix" in _modules(registry().spec("defenses", "singmix"))
