"""The package that `harness new-plugin` writes: what it is called, and its files."""

from __future__ import annotations

import keyword
import re
import shutil
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from harness.api.errors import UsageError
from harness.asking.registry import KINDS, NAME, registry
from harness.store.paths import disk_errors

Kind = Literal["defense", "attack", "learner"]

LONGEST = 40
SHARED = {
    "pyproject.toml": "shared/pyproject.toml.j2",
    "README.md": "shared/README.md.j2",
    "tests/test_conformance.py": "shared/test_conformance.py.j2",
    "src/{package}/__init__.py": "shared/init.py.j2",
}
"""What every package has: its files, and their templates."""


@dataclass(frozen=True)
class Naming:
    """All names that follow from a plugin's, `soft-mix`."""

    kind: Kind
    plugin: str

    @property
    def distribution(self) -> str:
        """What pip calls it: `harness-soft-mix`; also the folder."""
        return f"harness-{self.plugin.replace('_', '-')}"

    @property
    def package(self) -> str:
        """What Python imports: `harness_soft_mix`."""
        return self.distribution.replace("-", "_")

    @property
    def class_name(self) -> str:
        """The class that does the work: `SoftMix`."""
        return "".join(part.capitalize() for part in re.split("[-_]", self.plugin))


def name_plugin(kind: Kind, plugin: str) -> Naming:
    """The names of a new plugin; UsageError where they cannot be, or somebody has them."""
    if not NAME.fullmatch(plugin) or len(plugin) > LONGEST:
        raise UsageError(
            f"'{plugin}' is not a name for a plugin: write up to {LONGEST} lower-case letters and "
            f"digits, words joined by - or _, a letter first.{_suggestion(plugin)}"
        )
    naming = Naming(kind, plugin)
    if keyword.iskeyword(naming.class_name):
        raise UsageError(f"'{plugin}' would make a class named '{naming.class_name}'.")
    _check_free(naming)
    return naming


def _suggestion(plugin: str) -> str:
    """A name that is near and would do, if there is one."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", plugin).lower())
    offer = "-".join(words)[:LONGEST].strip("-")
    return f" '{offer}' would do." if NAME.fullmatch(offer) else ""


def _check_free(naming: Naming) -> None:
    """UsageError where an installed plugin, or an installed package, has the name."""
    known = registry()
    for kind in KINDS:
        if naming.plugin in known.entries[kind]:
            origin = known.origin(kind, naming.plugin)
            noun = kind.removesuffix("s").replace("_", " ")
            one = f"an {noun}" if noun.startswith("a") else f"a {noun}"
            raise UsageError(
                f"'{naming.plugin}' is taken: {origin} has {one} of that name. Choose another."
            )
    if find_spec(naming.package) is not None:
        raise UsageError(
            f"'{naming.plugin}' would make a package '{naming.package}', and there is one. "
            "Choose another name, or uninstall that."
        )


def sources(naming: Naming, stage: str = "") -> dict[str, str]:
    """Every file of the package by its path, rendered. `stage` is a defense's."""
    own = f"{naming.kind}/{stage}" if stage else naming.kind
    templates = {
        **SHARED,
        "src/{package}/plugin.py": f"{naming.kind}/plugin.py.j2",
        f"src/{{package}}/{naming.kind}.py": f"{own}/idea.py.j2",
        "tests/test_idea.py": f"{own}/test_idea.py.j2",
        "leaderboards/local/board.toml": f"{own}/board.toml.j2",
    }
    return {
        path.format(package=naming.package): _rendered(template, naming, stage)
        for path, template in templates.items()
    }


def _rendered(template: str, naming: Naming, stage: str) -> str:
    from jinja2 import Environment, StrictUndefined

    text = (files("harness.authoring") / "templates" / template).read_text(encoding="utf-8")
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(text).render(
        kind=naming.kind,
        stage=stage,
        name=naming.plugin,
        distribution=naming.distribution,
        package=naming.package,
        class_name=naming.class_name,
    )


def write_package(naming: Naming, into: Path, stage: str = "") -> list[Path]:
    """Write the package below `into`, and return its files.

    It appears by a rename: a folder that is there is whole. UsageError where one is there already.
    """
    target = into / naming.distribution
    if target.exists():
        raise UsageError(f"{target} is there already: remove it, or say --into another folder.")
    rendered = sources(naming, stage)
    with disk_errors(into):
        into.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{naming.distribution}-", dir=into))
        try:
            _write(rendered, scratch / target.name)
            (scratch / target.name).rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return [target / path for path in rendered]


def _write(rendered: dict[str, str], folder: Path) -> None:
    for path, text in rendered.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
