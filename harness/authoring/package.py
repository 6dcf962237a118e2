"""Writing the package of a new plugin, all of it or nothing."""

from __future__ import annotations

import shutil
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from harness.api.errors import UsageError
from harness.authoring.naming import Naming
from harness.store.paths import disk_errors

SHARED = {
    "pyproject.toml": "shared/pyproject.toml.j2",
    "README.md": "shared/README.md.j2",
    "tests/test_conformance.py": "shared/test_conformance.py.j2",
    "src/{package}/__init__.py": "shared/init.py.j2",
}
"""What every package has: its files, and their templates."""


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
    values: dict[str, Any] = {
        "kind": naming.kind,
        "stage": stage,
        "name": naming.plugin,
        "distribution": naming.distribution,
        "package": naming.package,
        "class_name": naming.class_name,
    }
    return environment.from_string(text).render(values)


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
