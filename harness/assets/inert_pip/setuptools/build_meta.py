"""A build backend that reads an archive's name and version, and never its code.

pip wants metadata even of an archive that it only downloads, and would run `setup.py` for it.
"""

# ruff: noqa: ARG001 - the arguments are those of PEP 517

from __future__ import annotations

import sys
from email.parser import HeaderParser
from pathlib import Path


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, str] | None = None
) -> str:
    """Copy name and version from PKG-INFO of the archive in the working directory."""
    headers = HeaderParser().parsestr(Path("PKG-INFO").read_text(encoding="utf-8"))
    name, version = headers["Name"], headers["Version"]
    folder = Path(metadata_directory) / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")
    return folder.name


def get_requires_for_build_wheel(config_settings: dict[str, str] | None = None) -> list[str]:
    """Nothing is needed."""
    return []


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, str] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Refuse: archives are data here."""
    raise RuntimeError("archives are only downloaded, never built")


# pip asks for `setuptools.build_meta:__legacy__` where an archive has no pyproject.toml.
__legacy__ = sys.modules[__name__]
