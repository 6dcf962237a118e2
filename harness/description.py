"""What a plugin says of itself, and what its theory says of given data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness.api.errors import UsageError, nearest
from harness.api.knowledge import ThreatModel
from harness.api.specs import AttackSpec, Control, LearnerSpec, Spec, Stage
from harness.asking.plan import resolved
from harness.asking.registry import KINDS, Registered, registry
from harness.asking.request import Resolved, parse_one, resolve
from harness.rng import KeyedStream, board_key, owner_key
from harness.store import cache_root

NORMAL = {"noise": "gaussian", "calibrate": "public"}
"""Options under which a law has ceilings, for defenses that have such options."""
STRENGTHS = {"tau": ("1e-2", "1e-3", "1e-4")}
"""Values of an option that ceilings are told by where no value is named."""
ANALYSED = 2000
"""Private images that an analysis looks at, where the user names no number."""


def entry_of(name: str, kind: str | None) -> tuple[str, Registered]:
    """The plugin of a name, of any kind or of this one."""
    known = registry()
    if kind is not None and kind not in KINDS:
        raise UsageError(f"Unknown kind '{kind}'.{nearest(kind, KINDS)}")
    kinds = [k for k in KINDS if kind in (None, k)]
    found = [(k, known.entries[k][name]) for k in kinds if name in known.entries[k]]
    if not found:
        every = [entry for k in kinds for entry in known.entries[k]]
        raise UsageError(f"Unknown plugin '{name}'.{nearest(name, every)}{known.blame(name)}")
    if len(found) > 1:
        options = " or ".join(f"--kind {k}" for k, _ in found)
        raise UsageError(f"'{name}' names several plugins; say {options}.")
    return found[0]


def description(text: str, kind: str | None = None) -> dict[str, Any]:
    """All that is declared of a plugin, as JSON values.

    UsageError where the name is unknown, or where plugins of several kinds have it and `kind`
    does not say which is meant.
    """
    selection = parse_one(text)
    kind, entry = entry_of(selection.name, kind)
    facts: dict[str, Any] = {
        "kind": kind,
        "name": entry.spec.name,
        "distribution": entry.origin.distribution,
        "version": entry.origin.version,
        "summary": entry.spec.summary,
        "options": [],
        "presets": {},
        "weaknesses": [],
    }
    if isinstance(entry.spec, ThreatModel):
        return {**facts, "grants": sorted(entry.spec.grants)}
    resolve(entry.spec, selection, "standard")
    return facts | _declared(entry.spec)


def _declared(spec: Spec) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "version": spec.version,
        "formula": spec.formula,
        "reference": spec.reference,
        "example": spec.example,
        "weaknesses": list(spec.weaknesses),
        "presets": {name: dict(values) for name, values in spec.presets.items()},
        "options": _options(spec),
        "assets": [asset.name for asset in getattr(spec, "assets", ())],
    }
    if isinstance(spec, AttackSpec):
        facts["needs"] = [", ".join(sorted(needs)) for needs in spec.needs]
        facts["optional"] = ", ".join(sorted(spec.optional))
    if isinstance(spec, AttackSpec | LearnerSpec):
        facts["controls"] = [
            f"{place(control)}: {control.metric} must reach {control.at_least:g}"
            for control in spec.controls
        ]
    return facts


def place(control: Control) -> str:
    """The cell of a control, as `singmix[tau=1] on fashion-mini (rounds=10)`."""
    options = ", ".join(f"{name}={value}" for name, value in control.options.items())
    return f"{control.defense} on {control.dataset}{f' ({options})' if options else ''}"


def _options(spec: Spec) -> list[dict[str, str]]:
    schema = spec.config.model_json_schema()["properties"] if spec.config.model_fields else {}
    return [
        {
            "name": name,
            "type": _type(schema[name]),
            "default": str(field.get_default(call_default_factory=False)),
            "meaning": field.description or "",
        }
        for name, field in spec.config.model_fields.items()
    ]


BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def _type(schema: dict[str, Any]) -> str:
    """`number > 0`, `sphere | gaussian`: a JSON schema in a few words."""
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kind = {"null": "none"}.get(schema.get("type", ""), str(schema.get("type", "value")))
    bounds = [f"{sign} {schema[bound]:g}" for bound, sign in BOUNDS.items() if bound in schema]
    return " ".join([kind, ", ".join(bounds)]).strip()


def analysis(text: str, dataset: str, count: int | None, seed: int) -> list[dict[str, Any]]:
    """A defense's own theory on a dataset's private images, as tables.

    The images are the first of those that `evaluate` draws with this seed, standardised. Raises
    CellFailed where the dataset's or the defense's plugin fails at it.
    """
    defense, known = _encoding_defense(text), registry()
    source = resolved("datasets", dataset, "standard", known)
    from harness.assets import folder
    from harness.running.load import SplitSizes, load
    from harness.running.stage import plugin_boundary  # torch, once the question makes sense

    assets = folder(source.spec.assets, cache_root())
    with plugin_boundary(source.name):
        collection = known.build("datasets", source.name, source.config).load(assets)
    sizes = SplitSizes(min(count or ANALYSED, collection.may_be_private), public=0, test=0)
    splits = load(collection, None, sizes, KeyedStream(board_key(seed)).stream(stage="load"))
    private = splits.private.standardised(splits.scale)
    stream = KeyedStream(owner_key(seed, None)).stream(stage="describe")
    with plugin_boundary(defense.name):
        built = known.build("defenses", defense.name, defense.config)
        return [asdict(table) for table in built.analyse(private, stream)]


def with_ceilings(text: str) -> str:
    """The grid of a defense's strengths under the noise that has ceilings, if it knows any such.

    What is named in `text` stays as it is, and so do defenses without these options.
    """
    selection = parse_one(text)
    schema = _encoding_defense(text).spec.config.model_json_schema().get("properties", {})
    normal = {n: v for n, v in NORMAL.items() if v in schema.get(n, {}).get("enum", ())}
    varied = {n: "|".join(values) for n, values in STRENGTHS.items() if n in schema}
    options = {**(varied | normal if normal == NORMAL else {}), **selection.options}
    inside = ",".join(f"{name}={value}" for name, value in options.items())
    return f"{selection.name}[{inside}]" if inside else selection.name


def _encoding_defense(text: str) -> Resolved:
    if parse_one(text).name not in registry().entries["defenses"]:
        raise UsageError(f"Only a defense can be analysed on a dataset; '{text}' is none.")
    defense = resolved("defenses", text, "standard", registry())
    if defense.spec.stage is not Stage.ENCODING:
        raise UsageError(
            f"'{text}' works on {defense.spec.stage}: it has no theory of images to print."
        )
    return defense
