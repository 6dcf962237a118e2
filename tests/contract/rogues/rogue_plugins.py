"""Plugins that are well declared and behave badly, and some that pry."""

from harness.api import AttackSpec, Channel, DefenseSpec, Stage, hookimpl

PRYING = {
    "peeks": (frozenset({Channel.ENCODINGS}),),
    "greedy": (frozenset({Channel.ENCODINGS, Channel.CANDIDATES}),),
    "digs": (frozenset({Channel.ENCODINGS, Channel.WEIGHTS, Channel.SOURCES, Channel.N_PRIVATE}),),
    "checks-gradients": (frozenset({Channel.GRADIENTS, Channel.MODEL, Channel.BATCH_LABELS}),),
}
ROGUES = (
    "raises",
    "prints",
    "exits",
    "dies",
    "sleeps",
    "toils",
    "hoards",
    "misshapes",
    "returns-nan",
    "crowds",
    "returns-none",
    "reads-stdin",
    "leaves-a-child",
)


def _class(name):
    return "rogue_work:" + "".join(part.capitalize() for part in name.split("-"))


@hookimpl
def harness_attacks():
    """Those that misbehave need encodings alone."""
    needs = {**dict.fromkeys(ROGUES, (frozenset({Channel.ENCODINGS}),)), **PRYING}
    return [
        AttackSpec(
            name=name,
            version="1",
            summary=f"an attack that {name}",
            reference="none",
            factory=_class(name),
            needs=alternatives,
        )
        for name, alternatives in needs.items()
    ]


@hookimpl
def harness_defenses():
    """Encoding defenses that break their contract."""
    return [
        DefenseSpec(
            name=name,
            version="1",
            summary=f"a defense that {name}",
            reference="none",
            factory=_class(name),
            stage=Stage.ENCODING,
        )
        for name in ("fails-to-encode", "encodes-too-few", "encodes-nan", "kills-its-owner")
    ]
