"""The hooks. A plugin implements those it needs, with `@hookimpl`."""

from __future__ import annotations

import pluggy

from harness.api.knowledge import ThreatModel
from harness.api.specs import (
    AttackSpec,
    CeilingSpec,
    DatasetSpec,
    DefenseSpec,
    LearnerSpec,
    MetricSpec,
    SpaceSpec,
    VictimSpec,
)

PROJECT = "harness"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin as one of the hooks below; the function's name says which."""


@hookspec
def harness_defenses() -> list[DefenseSpec]:
    """Defenses this plugin offers."""
    return []


@hookspec
def harness_attacks() -> list[AttackSpec]:
    """Attacks this plugin offers."""
    return []


@hookspec
def harness_datasets() -> list[DatasetSpec]:
    """Datasets this plugin offers."""
    return []


@hookspec
def harness_metrics() -> list[MetricSpec]:
    """Metrics this plugin offers."""
    return []


@hookspec
def harness_victims() -> list[VictimSpec]:
    """Victims this plugin offers."""
    return []


@hookspec
def harness_learners() -> list[LearnerSpec]:
    """Learners this plugin offers."""
    return []


@hookspec
def harness_ceilings() -> list[CeilingSpec]:
    """Ceilings this plugin offers."""
    return []


@hookspec
def harness_spaces() -> list[SpaceSpec]:
    """Spaces this plugin offers."""
    return []


@hookspec
def harness_threat_models() -> list[ThreatModel]:
    """Threat models this plugin offers."""
    return []
