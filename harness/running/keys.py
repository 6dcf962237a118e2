"""The name under which each stage's output is stored.

A key is SHA-256 over the stage, its code, the plugins' code and configs, the keys of its inputs
and its seed axes. All keys of a cell follow from its plan: nothing has to run to know what is
there already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.api.assets import Asset
from harness.api.knowledge import NETWORKS, Channel, ReleaseKind
from harness.api.specs import Preparation
from harness.asking.plan import AttackPlan, Cell
from harness.asking.selector import Resolved
from harness.store.canonical import sha256_of
from harness.store.provenance import module_sha256, package_versions, source_sha256

STAGES = ("load", "release", "train", "prepare", "attack", "judge")
"""Stages in their order, as `--force` names them: forcing one forces all that come after it."""


def plugin_source(resolved: Resolved) -> str:
    """Hash of a plugin's source: its class's module, its config's, and what they import."""
    modules = {resolved.spec.factory.partition(":")[0], resolved.spec.config.__module__}
    return source_sha256(*sorted(modules - {""}))


def plugin_identity(resolved: Resolved) -> dict[str, Any]:
    """What makes two uses of a plugin the same."""
    return {
        "name": resolved.name,
        "version": resolved.spec.version,
        "source": plugin_source(resolved),
        "config": resolved.config.model_dump(mode="json"),
    }


def preparation_identity(made: Preparation, attack: Resolved) -> dict[str, Any]:
    """What makes two preparations the same: their code and arguments, whoever asks for them."""
    return {
        "name": made.name,
        "factory": made.factory,
        "source": source_sha256(made.factory.partition(":")[0]),
        "arguments": preparation_arguments(made, attack),
    }


def preparation_arguments(made: Preparation, attack: Resolved) -> dict[str, Any]:
    """Constants, and the options that the attack was given."""
    config = attack.config.model_dump(mode="json")
    return {**made.constants, **{name: config[name] for name in made.options}}


def _asset_identity(asset: Asset) -> dict[str, str]:
    return {file.name: file.digest for file in asset.files}


CODE = {
    "load": ("harness.running.load", "harness.running.owner"),
    "release": ("harness.running.release", "harness.running.embed", "harness.running.owner"),
    "train": ("harness.running.train", "harness.running.utility", "harness.running.owner"),
    "prepare": ("harness.running.attack", "harness.running.view", "harness.running.attacker"),
    "attack": ("harness.running.attack", "harness.running.view", "harness.running.attacker"),
    "judge": (
        "harness.running.judge",
        "harness.scoring.leakage",
        "harness.scoring.consistency",
        "harness.running.court",
    ),
}
"""The modules whose source, with all it imports, decides what a stage puts out."""


def layout() -> list[str]:
    """How outputs lie on disk: what was stored in another way is not looked at."""
    return [module_sha256(m) for m in ("harness.running.codec", "harness.store.artifacts")]


@dataclass(frozen=True)
class Keys:
    """The keys of one cell's stages."""

    cell: Cell
    owner: str
    """Fingerprint of the owner's key."""

    def _key(self, stage: str, **inputs: Any) -> str:
        return sha256_of(
            {
                "stage": stage,
                "code": source_sha256(*CODE[stage]),
                "layout": layout(),
                "packages": package_versions(),
                **inputs,
            }
        )

    def _hardware(self) -> dict[str, Any]:
        return {"device": self.cell.device, "threads": self.cell.threads}

    def _budget(self) -> list[float]:
        """An attack may pace itself by what it is given."""
        return [self.cell.request.time_limit, self.cell.request.megabytes]

    def _dataset(self, resolved: Resolved) -> dict[str, Any]:
        assets = {asset.name: _asset_identity(asset) for asset in resolved.spec.assets}
        found = self.cell.fingerprints.get(resolved.written)
        named = {"data": found} if found is not None else {}
        return {**plugin_identity(resolved), "assets": assets, **named}

    @cached_property
    def features(self) -> str:
        """Key of a space's features, whatever the images.

        They take minutes to extract, so it holds what decides them and no more of the engine.
        """
        space = self.cell.space
        return sha256_of(
            {
                "stage": "embed",
                "code": module_sha256("harness.store.features"),
                "space": plugin_identity(space),
                "assets": {asset.name: _asset_identity(asset) for asset in space.spec.assets},
                "packages": package_versions(),
                "hardware": self._hardware(),
            }
        )

    @property
    def _space(self) -> dict[str, Any]:
        extracts = self.cell.space.spec.extracts
        features = {"features": self.features} if extracts else {}
        return {**plugin_identity(self.cell.space), **features}

    @cached_property
    def load(self) -> str:
        """Key of the splits."""
        request = self.cell.request
        return self._key(
            "load",
            dataset=self._dataset(self.cell.dataset),
            public=self._dataset(self.cell.public) if self.cell.public else None,
            sizes=request.sizes.model_dump(),
            exact=[request.private_size, request.public_size, request.test_size],
            seed=request.seed,
        )

    def release_of(self, defenses: tuple[Resolved, ...], kind: ReleaseKind) -> str:
        """Key of what a stack releases."""
        request = self.cell.request
        trained = kind is not ReleaseKind.ENCODINGS
        held_out = self.cell.held_out and kind is ReleaseKind.FEATURES
        return self._key(
            "release",
            splits=self.load,
            defenses=[plugin_identity(d) for d in defenses],
            kind=kind,
            space=self._space,
            rounds=request.rounds,
            victim=plugin_identity(self.cell.victim) if trained else None,
            protocol=[
                request.batch_size,
                request.victim_epochs,
                request.bn_mode,
                request.targets,
            ]
            if kind is ReleaseKind.GRADIENTS
            else None,
            held_out=[request.targets] if held_out else None,
            seed=request.seed,
            owner=self.owner,
            hardware=self._hardware() if trained else None,
        )

    @cached_property
    def release(self) -> str:
        """Key of the cell's release."""
        return self.release_of(self.cell.defenses, self.cell.kind)

    def train_of(self, defenses: tuple[Resolved, ...], kind: ReleaseKind, repeat: int = 0) -> str:
        """Key of the victim trained under a stack, with its utility."""
        return self._key(
            "train",
            release=self.release_of(defenses, kind),
            victim=plugin_identity(self.cell.victim),
            defenses=[plugin_identity(d) for d in defenses],
            repeat=repeat,
            seed=self.cell.request.seed,
            hardware=self._hardware(),
        )

    def attack_of(self, plan: AttackPlan) -> str:
        """Key of one attack's reconstruction."""
        return self._key(
            "attack",
            release=self.release,
            attack=plugin_identity(plan.attack),
            shared=self._shared(plan),
            channels=sorted(plan.channels),
            threat_model=self.cell.threat_model.name,
            budget=self._budget(),
            seed=self.cell.request.seed,
            hardware=self._hardware(),
        )

    def _shared(self, plan: AttackPlan) -> list[dict[str, Any]]:
        """What makes an attack's preparations the same, but for what they are made of."""
        return [preparation_identity(made, plan.attack) for made in plan.preparations]

    def preparation_of(
        self, made: Preparation, attack: Resolved, encoder: dict[str, Any] | None
    ) -> str:
        """Key of a preparation that attacks share: it holds no more than its channels tell."""
        encoding = self.cell.encoding
        told = Channel.ENCODER in made.channels
        return self._key(
            "prepare",
            splits=self.load,
            preparation=preparation_identity(made, attack),
            channels=sorted(made.channels),
            encoder=encoder if told else None,
            defense=plugin_identity(encoding) if encoding and told else None,
            network=self.release if made.channels & NETWORKS else None,
            space=self._space,
            budget=self._budget(),
            seed=self.cell.request.seed,
            hardware=self._hardware(),
        )

    def prepare_of(self, plan: AttackPlan, encoder: dict[str, Any] | None) -> str:
        """Key of what one attack learns beforehand: the law of the defense, never the release.

        `encoder` is the encoding defense's config as it turned out.
        """
        encoding = self.cell.encoding
        return self._key(
            "prepare",
            splits=self.load,
            attack=plugin_identity(plan.attack),
            shared=self._shared(plan),
            channels=sorted(plan.channels),
            threat_model=self.cell.threat_model.name,
            protocol=self.cell.protocol,
            encoder=encoder,
            defense=plugin_identity(encoding) if encoding else None,
            network=self.release if plan.channels & NETWORKS else None,
            space=self._space,
            budget=self._budget(),
            seed=self.cell.request.seed,
            hardware=self._hardware(),
        )

    def _scoring(self) -> dict[str, Any]:
        """What decides how images are scored, whoever made them."""
        metrics = [
            [
                spec.name,
                spec.version,
                source_sha256(spec.factory.partition(":")[0]),
                [_asset_identity(asset) for asset in spec.assets],
            ]
            for spec in self.cell.metrics
        ]
        request = self.cell.request
        return {
            "metrics": metrics,
            "unavailable": dict(self.cell.unavailable),
            "targets": [request.targets_from, request.targets],
            "seed": request.seed,
        }

    @cached_property
    def nulls(self) -> str:
        """Key of what guesses without the release score: the same for all attacks and defenses."""
        gradients = self.cell.kind is ReleaseKind.GRADIENTS
        return self._key(
            "judge",
            nulls=self.load,
            space=self._space,
            batches=self.cell.request.batch_size if gradients else None,
            hides_signs=self.cell.hides_signs,
            hardware=self._hardware(),
            **self._scoring(),
        )

    def judge_of(self, plan: AttackPlan) -> str:
        """Key of one attack's scores."""
        return self._key("judge", reconstruction=self.attack_of(plan), **self._scoring())

    def misplaced_of(self, plan: AttackPlan) -> str:
        """Key of what an attack's answers score where they are given to other images."""
        return self._key("judge", misplaced=self.judge_of(plan))

    def worst_of(self, plans: Mapping[str, AttackPlan]) -> str:
        """Key of the worst case over several attacks, by name."""
        return self._key(
            "judge",
            summed=source_sha256("harness.running.ensemble"),
            worst={name: self.judge_of(plan) for name, plan in plans.items()},
        )

    def of(self, plan: AttackPlan) -> dict[str, str]:
        """The keys of all stages of one attack's evaluation, by stage."""
        return {
            "load": self.load,
            "release": self.release,
            "train": self.train_of(self.cell.defenses, self.cell.trained_kind),
            "attack": self.attack_of(plan),
            "judge": self.judge_of(plan),
        }

    @cached_property
    def record(self) -> str:
        """Key of the finished record."""
        return sha256_of(
            {
                "record": [self.judge_of(plan) for plan in self.cell.attacks],
                "train": self.train_of(self.cell.defenses, self.cell.trained_kind),
                "request": self.cell.request.model_dump(mode="json"),
                "code": source_sha256("harness.running.inline"),
            }
        )
