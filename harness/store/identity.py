"""What makes two uses of a plugin the same: its name, version, source and options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.store.provenance import packages_of, source_sha256

if TYPE_CHECKING:
    from harness.api.assets import Asset
    from harness.api.specs import Preparation
    from harness.asking.selector import Resolved


def plugin_source(resolved: Resolved) -> str:
    """Hash of a plugin's source: its class's module, its config's, and what they use."""
    return source_sha256(*_modules(resolved))


def _modules(resolved: Resolved) -> list[str]:
    modules = {resolved.spec.factory.partition(":")[0], resolved.spec.config.__module__}
    return sorted(modules - {""})


def plugin_identity(resolved: Resolved) -> dict[str, Any]:
    """What makes two uses of a plugin the same."""
    return {
        "name": resolved.name,
        "version": resolved.spec.version,
        "source": plugin_source(resolved),
        "packages": packages_of(*_modules(resolved)),
        "config": plain_config(resolved),
    }


def plain_config(resolved: Resolved) -> dict[str, Any]:
    """A plugin's options as JSON values."""
    values: dict[str, Any] = resolved.config.model_dump(mode="json")
    return values


def preparation_identity(made: Preparation, attack: Resolved) -> dict[str, Any]:
    """What makes two preparations the same: their code and arguments, whoever asks for them."""
    return {
        "name": made.name,
        "factory": made.factory,
        "source": source_sha256(made.factory.partition(":")[0]),
        "packages": packages_of(made.factory.partition(":")[0]),
        "arguments": preparation_arguments(made, attack),
    }


def preparation_arguments(made: Preparation, attack: Resolved) -> dict[str, Any]:
    """Constants, and the options that the attack was given."""
    config = plain_config(attack)
    return {**made.constants, **{name: config[name] for name in made.options}}


def assets_identity(assets: tuple[Asset, ...]) -> dict[str, dict[str, str]]:
    """Files by asset, by content."""
    return {asset.name: {file.name: file.digest for file in asset.files} for asset in assets}
