"""From a request to a cell that can run, or the reason why it cannot. Pure: nothing is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import ValidationError

from harness.api.errors import UsageError
from harness.api.knowledge import CARRIED, OF_BATCHES, Channel, ReleaseKind, ThreatModel
from harness.api.plugins import Config
from harness.api.precision import Precision
from harness.api.specs import AttackSpec, MetricSpec, Preparation, Spec, Stage
from harness.asking.demand import check_demand
from harness.asking.partition import CURIOUS, parse_partition
from harness.asking.registry import Registry, release_kind
from harness.asking.request import Request, Resolved, parse_one, parse_stack, resolve


@dataclass(frozen=True)
class AttackPlan:
    """One attack with the channels it will be given."""

    attack: Resolved
    kind: ReleaseKind
    channels: frozenset[Channel]

    @property
    def preparations(self) -> tuple[Preparation, ...]:
        """Those of its preparations that its options use and whose channels it was granted."""
        declared: tuple[Preparation, ...] = self.attack.spec.preparations
        spared = _config(self.attack).unprepared()
        return tuple(m for m in declared if m.channels <= self.channels and m.name not in spared)

    @property
    def effort(self) -> str:
        """The option that buys more work, if the attack says which that is."""
        return _config(self.attack).busiest() or str(self.attack.spec.effort)

    @property
    def doubled(self) -> AttackPlan | None:
        """The same at twice its effort, where it says what that is and may be doubled."""
        name, config = self.effort, self.attack.config
        if not name:
            return None
        values = {**config.model_dump(), name: 2 * getattr(config, name)}
        try:
            more = type(config).model_validate(values)
        except ValidationError:
            return None
        return replace(self, attack=replace(self.attack, config=more))


@dataclass(frozen=True)
class Cell:
    """One evaluation with every choice resolved. `reason` says why it cannot be, if it cannot."""

    request: Request
    defenses: tuple[Resolved, ...]
    dataset: Resolved
    public: Resolved | None
    victim: Resolved
    space: Resolved
    threat_model: ThreatModel
    metrics: tuple[MetricSpec, ...]
    """Those that were asked for."""
    attack: Resolved
    main: AttackPlan | None = None
    companions: tuple[AttackPlan, ...] = ()
    members: Mapping[str, AttackPlan] = field(default_factory=dict)
    """Where the attack is many: those that can be, as written. `main` is the first of them."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Members that cannot be, with the reason."""
    reason: str | None = None
    device: str = "cpu"
    threads: int = 1
    reduces: bool = False
    """Whether this machine is faster with bfloat16 than with float32."""
    owner: str = ""
    """Fingerprint of the owner's key, or of whatever stands for what the owner has."""
    apart_from: int | None = None
    """The seed whose private and test images are drawn last; None of a run like any other."""
    outputs: dict[type, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What a run can be asked for of this very cell, by class: each is named once."""
    learners: Mapping[str, Resolved] = field(default_factory=dict)
    """Who learns from released encodings, as written: one, or the members of one that is many."""
    ceilings: Mapping[str, Resolved] = field(default_factory=dict)
    """What is asked to bound what leaks, as written."""
    left_out: tuple[tuple[MetricSpec, str], ...] = ()
    """Metrics that were not asked for, with the reason."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Metrics whose assets are not here, with the reason."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """By dataset as written: what names data that is no asset."""

    @property
    def attacks(self) -> tuple[AttackPlan, ...]:
        """Every attack that runs."""
        if self.members:
            return tuple(self.members.values())
        return tuple(plan for plan in (self.main, *self.companions) if plan)

    @property
    def channels(self) -> frozenset[Channel]:
        """All that the attack, or any of its members, works with."""
        plans = self.members.values() or filter(None, [self.main])
        return frozenset[Channel]().union(*(plan.channels for plan in plans))

    @property
    def twice(self) -> bool:
        """Whether attacks also run at twice their effort."""
        asked = self.request.twice
        return asked if asked is not None else bool(self.members) and self.request.preset != "quick"

    @property
    def kind(self) -> ReleaseKind:
        """The kind of release the cell makes."""
        if self.main:
            return self.main.kind
        return ReleaseKind.STATISTICS if self.sums else ReleaseKind.ENCODINGS

    @property
    def trained_kind(self) -> ReleaseKind:
        """The release whose victim's accuracy counts.

        Gradients and updates are of a model that is hardly trained, so it is that of a model
        trained to the end on the same stack's encodings.
        """
        return ReleaseKind.FEATURES if self.kind is ReleaseKind.FEATURES else ReleaseKind.ENCODINGS

    @property
    def learns(self) -> bool:
        """Whether utility is what learners make of the release; else the owner trains a victim."""
        encoded = self.kind is ReleaseKind.ENCODINGS and not self.late
        return encoded or self.kind is ReleaseKind.STATISTICS

    @property
    def streamed(self) -> bool:
        """Whether nothing but learners reads the release: none of its rounds is stored."""
        encoded = self.kind is ReleaseKind.ENCODINGS
        return self.learns and encoded and self.request.only == "utility"

    @property
    def together(self) -> int | None:
        """Images that one piece of the release is of, where it comes in such pieces."""
        return self.request.together if self.kind in OF_BATCHES else None

    @property
    def protocol(self) -> dict[str, int | float | str]:
        """How the release is made, as far as an attacker is told."""
        request = self.request
        encoded = self.encoding is not None or self.kind is ReleaseKind.ENCODINGS
        rounds = request.rounds if encoded else 1
        known: dict[str, int | float | str] = {"rounds": rounds, "space": request.space}
        if self.kind not in OF_BATCHES:
            return known
        return {
            **known,
            **(self.local or {}),
            "batch_size": request.batch_size,
            "victim_epochs": request.victim_epochs,
            "bn_mode": request.bn_mode,
            "guards": "+".join(defense.written for defense in self.late),
        }

    @property
    def local(self) -> dict[str, int | float] | None:
        """How a party trains before it sends an update; None where none leaves."""
        request = self.request
        if self.kind is not ReleaseKind.UPDATES:
            return None
        return {
            "local_steps": request.local_steps,
            "local_lr": request.local_lr,
            "local_images": request.together,
        }

    def precision(self, *specs: Spec) -> Precision:
        """What networks are trained in that all of these plugins have a part in."""
        asked: Precision | Literal["auto"] = self.request.precision
        if asked != "auto":
            return asked
        return "bfloat16" if self.reduces and all(spec.bfloat16 for spec in specs) else "float32"

    def victim_precision(self, defenses: tuple[Resolved, ...]) -> Precision:
        """What the victim is trained in where these defenses of the stack guard the training."""
        return self.precision(self.victim.spec, *(d.spec for d in defenses if d in self.late))

    @property
    def least_precision(self) -> Precision:
        """bfloat16 where anything that the cell trains is trained in it."""
        found = {self.precision(plan.attack.spec) for plan in self.attacks}
        if not self.learns:
            found.add(self.victim_precision(self.late))
        elif self.request.only != "privacy":
            learners = self.learners.values()
            found |= {self.precision(learner.spec, self.victim.spec) for learner in learners}
        return "bfloat16" if "bfloat16" in found else "float32"

    @property
    def held_out(self) -> bool:
        """Whether attacks are judged on images that the victim was not trained on."""
        return self.request.targets_from == "heldout"

    @property
    def judged_at_release(self) -> bool:
        """Whether images are returned and judged at the resolution of the encodings."""
        return self.request.judge_at == "release" and self.main is not None

    @property
    def hides_signs(self) -> bool:
        """Whether a defense of the stack multiplies by random signs."""
        return any(defense.spec.hides_signs for defense in self.defenses)

    @property
    def encoding(self) -> Resolved | None:
        """The encoding defense of the stack, if it has one."""
        return next((d for d in self.defenses if d.spec.stage is Stage.ENCODING), None)

    @property
    def late(self) -> tuple[Resolved, ...]:
        """The defenses of the stack that act after the encoding, on training or gradients."""
        late = (Stage.TRAINING, Stage.GRADIENT)
        return tuple(d for d in self.defenses if d.spec.stage in late)

    @property
    def sums(self) -> Resolved | None:
        """The defense that releases statistics, if that is what the stack is."""
        return next((d for d in self.defenses if d.spec.stage is Stage.STATISTICS), None)


def plan(request: Request, registry: Registry) -> Cell:
    """Resolve every name and option; UsageError for what was typed wrong, or is out of all reach.

    A cell that is well written and still cannot be (the attack's needs exceed the grants, say)
    comes back with its reason.
    """
    attack = resolved("attacks", request.attack, request.preset, registry)
    if request.parties > 1:
        parse_partition(request.partition)
    cell = _bare(request, registry, _stack(request, registry), attack)
    planned = _with_attacks(cell, registry)
    check_demand(planned)
    return planned


def plan_as_ran(
    request: Request, registry: Registry, defenses: tuple[Resolved, ...], main: AttackPlan
) -> Cell:
    """A cell that ran somewhere, of defenses and an attack that need not be installed here."""
    return replace(_bare(request, registry, defenses, main.attack), main=main)


def _bare(
    request: Request, registry: Registry, defenses: tuple[Resolved, ...], attack: Resolved
) -> Cell:
    """A cell of which nobody knows yet how its attack reads the release."""
    specs, left_out = registry.specs("metrics"), _left_out(request, registry)
    preset, public = request.preset, request.public
    return Cell(
        request=request,
        defenses=defenses,
        dataset=resolved("datasets", request.dataset, preset, registry),
        public=None if public is None else resolved("datasets", public, preset, registry),
        victim=resolved("victims", request.victim, preset, registry),
        space=resolved("spaces", request.space, preset, registry),
        threat_model=registry.spec("threat_models", request.threat_model),
        metrics=tuple(spec for spec in specs if spec.name not in left_out),
        attack=attack,
        learners=_learners(request, registry, defenses),
        ceilings=_ceilings(request, registry),
        left_out=tuple((spec, left_out[spec.name]) for spec in specs if spec.name in left_out),
    )


def _learners(
    request: Request, registry: Registry, defenses: tuple[Resolved, ...]
) -> dict[str, Resolved]:
    """Who learns; UsageError for a set of learners that names another set.

    Where encodings leave, those of a set that read statistics are none of it. Where statistics do,
    the others stay: they learn from unprotected images, and the record says why they do no more.
    """
    asked = resolved("learners", request.learner, request.preset, registry)
    texts = asked.spec.members or (request.learner,)
    found = {text: resolved("learners", text, request.preset, registry) for text in texts}
    for text, learner in found.items():
        if learner.spec.members:
            raise UsageError(f"'{asked.name}' names '{text}', which is many learners itself.")
    if not asked.spec.members or any(d.spec.stage is Stage.STATISTICS for d in defenses):
        return found
    return {t: each for t, each in found.items() if each.spec.reads is ReleaseKind.ENCODINGS}


def _ceilings(request: Request, registry: Registry) -> dict[str, Resolved]:
    """All that are installed, where they are asked for: a first look does without.

    Of several parties none: a ceiling's candidates must be drawn as the target is, and a party's
    images need not be drawn as the pool's are.
    """
    wanted = request.ceiling if request.ceiling is not None else request.preset != "quick"
    if not wanted or request.only == "utility" or request.parties > 1:
        return {}
    specs = registry.specs("ceilings")
    return {s.name: resolved("ceilings", s.name, request.preset, registry) for s in specs}


def _left_out(request: Request, registry: Registry) -> dict[str, str]:
    """Metrics that this request does not score, with the reason."""
    specs = registry.specs("metrics")
    if request.metrics is None:
        slow = [spec.name for spec in specs if spec.slow and request.preset == "quick"]
        return dict.fromkeys(slow, "slow, so left out of the quick preset; --metrics all has it")
    if request.metrics == "all":
        return {}
    wanted = {registry.spec("metrics", name.strip()).name for name in request.metrics.split(",")}
    return {spec.name: "not asked for" for spec in specs if spec.name not in wanted}


def resolved(kind: str, text: str, preset: str, registry: Registry) -> Resolved:
    """A plugin of a kind, as written."""
    selection = parse_one(text)
    return resolve(registry.spec(kind, selection.name), selection, preset)


def _stack(request: Request, registry: Registry) -> tuple[Resolved, ...]:
    """The defenses as written, of which one encodes at most."""
    defenses = tuple(
        resolve(registry.spec("defenses", selection.name), selection, request.preset)
        for selection in parse_stack(request.defense)
    )
    names = [defense.name for defense in defenses]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise UsageError(f"'{repeated[0]}' stands twice in the stack.")
    encoders = [d.name for d in defenses if d.spec.stage is Stage.ENCODING]
    if len(encoders) > 1:
        raise UsageError(
            f"A stack has at most one encoding defense; this one has {' and '.join(encoders)}."
        )
    sums = [d.name for d in defenses if d.spec.stage is Stage.STATISTICS]
    if sums and len(defenses) > 1:
        raise UsageError(
            f"'{sums[0]}' releases sums over the images as they are: a stack with it has no other "
            "defense."
        )
    trainers = [d for d in defenses if d.spec.stage is not Stage.ENCODING]
    alone = [d.name for d in trainers if d.spec.trains_alone][:1]
    others = [d.name for d in trainers if d.name not in alone]
    if alone and others:
        raise UsageError(
            f"'{alone[0]}' holds only where it trains alone: a stack with it has no other defense "
            f"of training or gradients, and this one has {' and '.join(others)}."
        )
    return defenses


def _with_attacks(cell: Cell, registry: Registry) -> Cell:
    if reason := _not_of_parties(cell) or _no_statistics(cell) or _no_such_release(cell):
        return replace(cell, reason=reason)
    if cell.request.only == "utility":
        return cell
    if cell.attack.spec.members:
        return _with_members(cell, registry)
    chosen = _attack_plan(cell, cell.attack, _kinds(cell))
    if isinstance(chosen, str):
        return replace(cell, reason=chosen)
    return replace(cell, main=chosen, companions=_companions(cell, chosen, registry))


def _not_of_parties(cell: Cell) -> str:
    """Why a cell's parties cannot do what is asked; empty where they can."""
    request = cell.request
    if request.parties == 1:
        alone = cell.threat_model.name == CURIOUS
        why = f"the threat model '{CURIOUS}' is one party that attacks others, and there is one"
        return f"{why}; raise --parties" if alone else ""
    if request.party is not None and cell.threat_model.name == CURIOUS:
        return f"the threat model '{CURIOUS}' attacks the others' rows; leave --party unset"
    if cell.late:
        return f"'{cell.late[0].name}' guards one owner's training; leave --parties at 1"
    if request.release not in (None, "encodings", "statistics") or cell.held_out:
        return "several parties release encodings or statistics; leave --parties at 1"
    return ""


def _no_statistics(cell: Cell) -> str:
    """Why what is asked of statistics cannot be; empty where it can, or nothing is."""
    request, asked = cell.request, cell.request.release
    if cell.sums is None:
        makes = "which only a defense makes that releases sums, such as dpmeans"
        return f"statistics were asked for, {makes}" if asked == "statistics" else ""
    name = cell.sums.name
    if asked not in (None, "statistics"):
        return f"'{name}' releases statistics, and no {asked}; leave --release unset"
    if request.rounds > 1:
        return f"'{name}' releases its sums once, within one budget; leave --rounds at 1"
    if cell.held_out:
        return f"'{name}' sums private images: held-out ones have no part in what leaves"
    return ""


def _no_such_release(cell: Cell) -> str:
    """Why nothing leaves that could be judged as asked; empty where something does."""
    request = cell.request
    if request.only == "utility":
        return ""
    if cell.held_out and request.release not in (None, ReleaseKind.FEATURES):
        return _never_released(request.release)
    if request.judge_at == "release" and set(_kinds(cell)) != {ReleaseKind.ENCODINGS}:
        return _no_resolution(_kinds(cell))
    return ""


def _never_released(kind: str) -> str:
    return (
        f"held-out images are not trained on, so the owner has no {kind} of them, only features; "
        "leave --release at features, or --targets-from at private"
    )


def _no_resolution(kinds: tuple[ReleaseKind, ...]) -> str:
    return (
        f"only encodings have a resolution to judge at, and what is released here is "
        f"{' or '.join(kinds)}; leave --judge-at at image"
    )


def _with_members(cell: Cell, registry: Registry) -> Cell:
    """All members that can read the first kind of release that one of them can read."""
    members = _members(cell.attack.spec, cell.request.preset, registry)
    reasons: dict[str, str] = {}
    for kind in _kinds(cell):
        options = {text: _attack_plan(cell, member, (kind,)) for text, member in members.items()}
        plans = {text: plan for text, plan in options.items() if isinstance(plan, AttackPlan)}
        reasons = {text: why for text, why in options.items() if isinstance(why, str)}
        able = [plan for plan in plans.values() if not plan.attack.spec.companion]
        if able:
            return replace(cell, main=able[0], members=plans, excluded=reasons)
    listed = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    return replace(cell, reason=f"no attack of '{cell.attack.name}' applies ({listed})")


def _members(spec: AttackSpec, preset: str, registry: Registry) -> dict[str, Resolved]:
    """The members of an attack that is many; `*` stands for every attack that is one."""
    every = [other.name for other in registry.specs("attacks") if not other.members]
    texts = [name for text in spec.members for name in (every if text == "*" else [text])]
    return {text: resolved("attacks", text, preset, registry) for text in texts}


def _kinds(cell: Cell) -> tuple[ReleaseKind, ...]:
    """Kinds of release in which every defense of the stack has a part, in order of preference.

    Encodings leave before anything is trained: defenses of training and of gradients do not
    touch them. A gradient defense guards gradients first, though features feel it too. Of
    held-out images there are features alone, and only encodings are images to judge at; several
    parties train nothing together. Updates leave where they are asked for.
    """
    if cell.held_out:
        return (ReleaseKind.FEATURES,)
    if cell.request.release is not None:
        return (ReleaseKind(cell.request.release),)
    if cell.request.judge_at == "release" or (cell.request.parties > 1 and not cell.sums):
        return (ReleaseKind.ENCODINGS,)
    return _guarded({defense.spec.stage for defense in cell.defenses})


def _guarded(stages: set[Stage]) -> tuple[ReleaseKind, ...]:
    """What a stack of these stages is made for, in order of preference."""
    if Stage.STATISTICS in stages:
        return (ReleaseKind.STATISTICS,)
    if Stage.GRADIENT in stages:
        return (ReleaseKind.GRADIENTS, ReleaseKind.FEATURES)
    if Stage.TRAINING in stages:
        return (ReleaseKind.FEATURES, ReleaseKind.GRADIENTS)
    return (ReleaseKind.ENCODINGS, ReleaseKind.FEATURES, ReleaseKind.GRADIENTS)


def _attack_plan(cell: Cell, attack: Resolved, kinds: tuple[ReleaseKind, ...]) -> AttackPlan | str:
    """The first granted alternative of the attack's needs of one of these kinds, or why none."""
    if kinds == (ReleaseKind.ENCODINGS,) and cell.late:
        return (
            f"'{cell.late[0].name}' has no part in encodings: they leave before anything is trained"
        )
    readable = _readable(cell, attack, kinds)
    if not readable:
        return _unreadable(cell, attack, kinds)
    kind = _granted_kind(readable, cell.threat_model.grants)
    if kind is ReleaseKind.ENCODINGS and cell.request.rounds < attack.spec.fewest_rounds:
        return _too_few_rounds(attack.spec, cell.request.rounds)
    config, visible = _config(attack), cell.threat_model.grants & CARRIED[kind]
    options = [needs | config.demands() for needs in readable if release_kind(needs) is kind]
    for needs in options:
        if needs <= visible:
            wanted = attack.spec.optional - config.forgoes()
            return AttackPlan(attack, kind, needs | (wanted & visible))
    lacking = min((sorted(needs - visible) for needs in options), key=len)
    return _not_granted(attack.name, lacking, cell.threat_model)


def _too_few_rounds(spec: AttackSpec, rounds: int) -> str:
    return (
        f"'{spec.name}' compares encodings of one image over rounds, and needs at least "
        f"{spec.fewest_rounds} of them, not {rounds}; publish more with --rounds"
    )


def _config(attack: Resolved) -> Config:
    """What an attack's options say of it; a stranger's model that is no `Config` says nothing."""
    return attack.config if isinstance(attack.config, Config) else Config()


def _granted_kind(readable: list[frozenset[Channel]], grants: frozenset[Channel]) -> ReleaseKind:
    """The first kind whose release the threat model grants.

    An attack that gets the encodings but not the sources it needs does not turn to another
    release in silence: it is not applicable, and the reason names the sources.
    """
    kinds = [release_kind(needs) for needs in readable]
    return next((kind for kind in kinds if Channel(kind) in grants), kinds[0])


def _readable(
    cell: Cell, attack: Resolved, kinds: tuple[ReleaseKind, ...]
) -> list[frozenset[Channel]]:
    """The attack's alternatives among these kinds, in its own order of preference.

    A defense that acts after the encoding puts what it guards first.
    """
    found = [needs for needs in attack.spec.needs if release_kind(needs) in kinds]
    return sorted(found, key=lambda n: kinds.index(release_kind(n))) if cell.late else found


def _unreadable(cell: Cell, attack: Resolved, kinds: tuple[ReleaseKind, ...]) -> str:
    stack = "+".join(defense.name for defense in cell.defenses)
    reads = " or ".join(dict.fromkeys(release_kind(needs) for needs in attack.spec.needs))
    wanted = " or ".join(kinds)
    of = " of held-out images" if cell.held_out else ""
    return f"'{attack.name}' reads {reads}; what is released under '{stack}' here is {wanted}{of}"


def _not_granted(attack: str, lacking: list[Channel], threat_model: ThreatModel) -> str:
    granted = ", ".join(sorted(threat_model.grants)) or "nothing"
    return (
        f"ChannelNotGranted: '{attack}' needs {', '.join(lacking)}, which the threat model "
        f"'{threat_model.name}' does not grant (it grants {granted}); ask for a stronger one "
        "with --threat-model"
    )


def _companions(cell: Cell, main: AttackPlan, registry: Registry) -> tuple[AttackPlan, ...]:
    names = [spec.name for spec in registry.specs("attacks") if spec.companion]
    preset, others = cell.request.preset, [name for name in names if name != main.attack.name]
    attacks = [resolved("attacks", name, preset, registry) for name in others]
    options = [_attack_plan(cell, attack, (main.kind,)) for attack in attacks]
    return tuple(option for option in options if isinstance(option, AttackPlan))
