"""What plugins declare. Declarations are cheap: no torch, no work, factories named as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel

from harness.api.assets import Asset
from harness.api.data import Scale
from harness.api.knowledge import Channel, ReleaseKind
from harness.api.plugins import Config


class Stage(StrEnum):
    """Where a defense works."""

    ENCODING = "encoding"
    TRAINING = "training"
    GRADIENT = "gradient"
    STATISTICS = "statistics"


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What every plugin says of itself.

    `factory="package.module:Class"` is imported only when the plugin runs. `presets` overlay
    the config's defaults: `quick`, `standard` and `paper` follow the request's preset, others
    are chosen by `name[preset=…]`. `describe` prints `formula` and `weaknesses`.
    """

    name: str
    version: str
    summary: str
    reference: str
    factory: str
    config: type[BaseModel] = Config
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    formula: str = ""
    weaknesses: tuple[str, ...] = ()
    example: str = ""
    bfloat16: bool = False
    """Whether the networks that it trains, or is, learn as well in bfloat16: `--precision auto`
    trains them so where that is faster. A comparison over several seeds should say so."""


@dataclass(frozen=True, kw_only=True)
class DefenseSpec(Spec):
    """A defense; its factory is an `EncodingDefense` or what else its stage is named after."""

    stage: Stage
    hides_signs: bool = False
    """Encodings carry random signs: every image metric is also taken on absolute values."""
    protects: bool = True
    """Whether it does anything at all. One that does not is the reference that boards show beside
    the others, and neither count nor rank."""
    no_ceiling: str = ""
    """Why nothing is proven of what leaves, for a defense that has no law to state."""
    trains_alone: bool = False
    """Its guarantee holds only where no other defense of training or gradients takes part."""


@dataclass(frozen=True)
class Control:
    """A cell that an attack must break before its failures count.

    `metric` is an image metric, whose mean is asked; or `identification.top1` (`.top5`, `.auc`);
    or the name of a finding. `at_least` is what it must reach, in the direction that leaks more.
    `options` are further options of the evaluation: a threat model, sizes, rounds.
    """

    defense: str
    dataset: str
    metric: str
    at_least: float
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Preparation:
    """What an attack learns before the release and others may share.

    `factory="package.module:function"` is called as `function(view, budget, progress, **options)`
    with a view of `channels` alone, and returns tensors, which the attack gets by
    `View.made(name)`. `options` names fields of the attack's config, `constants` are further
    arguments. What is made is stored under its source, its arguments and what the channels hold:
    attacks that name the same preparation share it, and one without the channel `encoder` serves
    every defense on the same data. It is left out where an attack was not granted one of the
    channels.
    """

    name: str
    factory: str
    channels: frozenset[Channel]
    options: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AttackSpec(Spec):
    """An attack. `needs` are alternatives in order of preference; the first granted one wins.

    `companion=True` makes it run in every cell whose release it can read: for cheap ones.
    `effort` names the option that buys more work (steps, epochs): where twice of it scores
    better, an attack was stopped too early. `fewest_rounds` of encodings are what it has a use
    for. One of `members` is no attack of its own: all of
    them run (`*`: every attack that applies), and the strongest answer to each image counts.
    """

    needs: tuple[frozenset[Channel], ...]
    optional: frozenset[Channel] = frozenset()
    controls: tuple[Control, ...] = ()
    companion: bool = False
    preparations: tuple[Preparation, ...] = ()
    effort: str = ""
    linear: Literal["no", "yes", "optimal"] = "no"
    """Whether answers are linear in the release but for a clamp; `optimal`: no linear attack has
    a lower expected squared error under its prior and the noise that it states."""
    members: tuple[str, ...] = ()
    fewest_rounds: int = 1


@dataclass(frozen=True, kw_only=True)
class DatasetSpec(Spec):
    """A dataset and the assets that hold it.

    Data that is no asset (a folder of one's own) is named by `fingerprint="module:function"`,
    which turns the config into a text that changes with the data, without torch. It is part of
    every cache key. UsageError where the data is not there.
    """

    assets: tuple[Asset, ...] = ()
    fingerprint: str = ""
    measured_scale: bool = False
    """Whether the scale is the mean and deviation of images that private ones are drawn from: a
    published constant tells nothing of them, this tells a little."""


@dataclass(frozen=True, kw_only=True)
class MetricSpec(Spec):
    """A metric. `leaks_more` says which direction is worse for the owner.

    The unit `proportion` is for values of 0 and 1; their mean gets a Wilson interval. A `slow`
    metric is left out of the quick preset. One `of` anything also compares features.
    """

    leaks_more: Literal["higher", "lower"]
    range: tuple[float, float]
    unit: str = ""
    slow: bool = False
    of: Literal["images", "anything"] = "images"
    assets: tuple[Asset, ...] = ()


class VictimSpec(Spec):
    """A victim; its config extends `Recipe`."""


@dataclass(frozen=True, kw_only=True)
class LearnerSpec(Spec):
    """A learner. One of `members` is none of its own: all of them learn, and the best one counts.

    `varies` says whether what is learned differs from one training to the next on the same
    release: one that does not learns once from unprotected images, however often is asked for. The
    metric of a learner's controls is `accuracy`, or `share`: of the accuracy of the best classifier
    there is for data of a known law. It `reads` encodings or statistics; a member of a set that
    reads statistics alone has a part only where they are what leaves.
    """

    members: tuple[str, ...] = ()
    reads: ReleaseKind = ReleaseKind.ENCODINGS
    varies: bool = True
    controls: tuple[Control, ...] = ()


class CeilingSpec(Spec):
    """A ceiling."""


@dataclass(frozen=True, kw_only=True)
class SpaceSpec(Spec):
    """A space. `extracts=False`: encodings live in the images themselves, `embed` is not used.

    Those are standardised with `scale`, and grey ones repeated for its channels, or, without one,
    with their dataset's own mean and deviation.
    `arithmetic="module:function"` says, without torch, how this machine computes the features,
    where machines differ by more than their last digits. It is part of the features' key.
    """

    assets: tuple[Asset, ...] = ()
    extracts: bool = True
    scale: Scale | None = None
    arithmetic: str = ""
