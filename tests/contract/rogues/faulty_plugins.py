"""Plugins that work, and do not keep their contract: what `harness check` is for."""

from harness.api import AttackSpec, Channel, Config, DefenseSpec, LearnerSpec, Stage, hookimpl

DEFENSES = (
    "flips-coins",
    "widens",
    "hoards-rounds",
    "ignores-its-key",
    "spoils-its-input",
    "mixes-devices",
)
ATTACKS = ("draws-by-numpy", "prefers-cuda", "wants-two", "answers-in")
LEARNERS = ("says-too-little", "learns-by-numpy", "needs-a-public", "knows-two-rounds", "says-in")


class Widths(Config):
    """What answers are written in."""

    kind: str = "float32"


WIDTHS = {"answers-in": Widths, "says-in": Widths}


def _class(name):
    module = "faulty_device" if name == "prefers-cuda" else "faulty_work"
    return f"{module}:" + "".join(part.capitalize() for part in name.split("-"))


@hookimpl
def harness_defenses():
    return [
        DefenseSpec(
            name=name,
            version="1",
            summary=f"a defense that {name}",
            reference="none",
            factory=_class(name),
            stage=Stage.ENCODING,
        )
        for name in DEFENSES
    ]


@hookimpl
def harness_attacks():
    return [
        AttackSpec(
            name=name,
            version="1",
            summary=f"an attack that {name}",
            reference="",
            factory=_class(name),
            config=WIDTHS.get(name, Config),
            needs=(frozenset({Channel.ENCODINGS}),),
            optional=frozenset({Channel.SOURCES}),
        )
        for name in ATTACKS
    ]


@hookimpl
def harness_learners():
    return [
        LearnerSpec(
            name=name,
            version="1",
            summary=f"a learner that {name}",
            reference="",
            factory=_class(name),
            config=WIDTHS.get(name, Config),
        )
        for name in LEARNERS
    ]
