"""Which checks there are for each kind of plugin. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pkgutil import resolve_name

from harness.testing.subject import Subject


@dataclass(frozen=True)
class Check:
    """One thing that has to hold.

    `run="module:function"`, below `harness.testing`, is called with the subject, and with
    `argument` where there is one. It returns what it found in one line, or raises Violation or
    Unanswered. It may take `runs` times the subject's seconds. Those that run `here` need no
    torch, or take care themselves of where a plugin runs. Where the check `after` which it comes
    failed, it would fail for the same reason, and is not asked.
    """

    name: str
    run: str
    fix: str
    argument: str = ""
    runs: int = 1
    here: bool = False
    after: str = ""

    def __call__(self, subject: Subject) -> str:
        """Ask it."""
        ask = resolve_name(f"harness.testing.{self.run}")
        return str(ask(subject, self.argument) if self.argument else ask(subject))


DECLARED = (
    Check(
        "declaration",
        "subject:is_complete",
        "fill in what is missing where the plugin is declared",
        here=True,
    ),
    Check(
        "imports",
        "subject:declares_without_torch",
        "import torch in the module that `factory` names, not in the one that declares",
        here=True,
    ),
    Check(
        "config",
        "subject:configurable",
        "derive the config from harness.api.Config and keep its fields plain JSON values",
        here=True,
    ),
)
ODD = {
    "tiny": "it must work on two private images",
    "grey": "it must work on images of one channel",
    "colour": "it must work on images of three channels",
    "odd-sized": "it must work on images of 9 x 7 pixels: pad, or round sizes up",
    "one-class": "it must work where all images are of one class",
    "constant": "it must work on images without contrast: guard divisions by a norm or deviation",
}
"""Kinds of data by the kit's names, and what to fix where a plugin fails on them."""


def _built_on(first: Check, *others: Check) -> tuple[Check, ...]:
    """A check of the plugin at its usual work, and those that have it do the same and more."""
    return (first, *(replace(each, after=first.name) for each in others))


def _device(run: str) -> Check:
    return Check(
        "device",
        run,
        "make tensors on the device of those you are given (`device=x.device`, "
        "`torch.zeros_like`), and name none",
        runs=2,
    )


def _on_odd_data(run: str, runs: int = 1) -> tuple[Check, ...]:
    return tuple(Check(case, run, fix, argument=case, runs=runs) for case, fix in ODD.items())


def _defense(work: str) -> tuple[Check, ...]:
    """What is asked of a defense of any stage."""
    return (
        *DECLARED,
        *_built_on(
            Check("release", f"defenses:{work}", "return what the base class's docstring says"),
            Check(
                "determinism",
                "defenses:deterministic",
                "take every random number from the stream you are given",
                runs=2,
            ),
            Check(
                "secrets",
                f"defenses:{work}_secretly",
                "draw what has to stay secret from the stream, anew in each round",
                runs=2,
            ),
            Check(
                "global-state",
                "defenses:leaves_the_world_alone",
                "use the stream's own draws, or stream.generator(); never seed or draw globally",
            ),
            *_on_odd_data("defenses:copes_with"),
            _device(f"defenses:{work}_on_any_device"),
            Check(
                "victim", "defenses:can_be_trained_on", "let a victim learn from what is released"
            ),
            Check(
                "memory",
                f"defenses:{work}_and_forgets",
                "keep nothing of a call on the instance or in a module's variable",
                runs=3,
            ),
        ),
    )


CHECKS: dict[str, tuple[Check, ...]] = {
    "encoding defenses": (
        *_defense("encodes"),
        Check(
            "pieces",
            "defenses:encodes_in_pieces",
            "draw what rows have in common when a round begins, and the rest row after row, so "
            "that it does not matter how many are asked for at a time",
            runs=2,
            after="release",
        ),
        Check(
            "law",
            "defenses:states_its_law",
            "state the noise that there is, or None: a wrong law is a wrong ceiling",
            after="release",
        ),
    ),
    "training defenses": _defense("trains"),
    "gradient defenses": _defense("protects"),
    "statistics defenses": _defense("sums"),
    "attacks": (
        *DECLARED,
        *_built_on(
            Check(
                "answer",
                "attacks:answers",
                "return a Reconstruction of images of `view.shape`, finite floats, or claims",
            ),
            Check(
                "budget",
                "attacks:keeps_its_budget",
                "look at budget.seconds while you work, and return what you have before it is over",
            ),
            Check(
                "channels",
                "attacks:needs_no_more",
                "ask `view.has(channel)` before using an optional one; list in `needs` what you "
                "cannot do without",
                runs=4,
            ),
            Check(
                "determinism",
                "attacks:deterministic",
                "take random numbers from view.rng or from torch's generator, which is seeded for "
                "you",
            ),
            Check(
                "global-state",
                "attacks:leaves_the_world_alone",
                "numpy's and Python's generators are not seeded for you: use view.rng",
            ),
            *_on_odd_data("attacks:copes_with"),
            _device("attacks:works_on_any_device"),
            Check(
                "memory",
                "attacks:forgets",
                "keep nothing of a call in a module's variable",
                runs=8,
            ),
            Check(
                "controls",
                "attacks:passes_its_controls",
                "make it break what it is known to break, or ask of it what it can reach",
                here=True,
            ),
        ),
    ),
    "learners": (
        *DECLARED,
        *_built_on(
            Check(
                "answer",
                "learners:answers",
                "return a Classifier whose logits are [b, classes] floats, all finite",
            ),
            Check(
                "budget",
                "learners:keeps_its_budget",
                "look at budget.seconds while you work, and return what you have before it is over",
            ),
            Check(
                "determinism",
                "learners:deterministic",
                "take random numbers from lesson.rng or from torch's generator, which is seeded "
                "for you",
                runs=2,
            ),
            Check(
                "global-state",
                "learners:leaves_the_world_alone",
                "numpy's and Python's generators are not seeded for you: use lesson.rng",
            ),
            Check(
                "rounds",
                "learners:reads_rounds",
                "read every round of lesson.release: `for t in range(release.rounds)`",
                runs=2,
            ),
            Check(
                "no-public",
                "learners:without_public",
                "raise NotApplicable where you cannot do without public images",
            ),
            Check(
                "features",
                "learners:reads_features",
                "read shapes off the lesson: encodings may be features with any number of channels",
            ),
            *_on_odd_data("learners:copes_with"),
            _device("learners:works_on_any_device"),
            Check(
                "memory",
                "learners:forgets",
                "keep nothing of a call in a module's variable",
                runs=9,
            ),
            Check(
                "controls",
                "learners:passes_its_controls",
                "make it learn what it is known to learn, or ask of it what it can reach",
                here=True,
            ),
        ),
    ),
    "ceilings": DECLARED,
    "datasets": (
        *DECLARED,
        Check("images", "datasets:images", "return uint8 images, or float32 ones in the range"),
        Check("labels", "datasets:labels", "number the classes from 0, as `classes` names them"),
        Check("scale", "datasets:scaled", "declare the mean and deviation of the training images"),
        Check("splits", "datasets:disjoint", "take images out of `test` that are in `train`"),
        Check("determinism", "datasets:deterministic", "give the same images each time", runs=2),
        Check(
            "global-state",
            "datasets:leaves_the_world_alone",
            "make a generator of your own: torch.Generator().manual_seed(…)",
        ),
    ),
    "metrics": (
        *DECLARED,
        *_built_on(
            Check(
                "score", "metrics:scores", "return one float for each image, NaN where undefined"
            ),
            Check("direction", "metrics:knows_the_truth", "turn `leaks_more` round, or the score"),
            Check("range", "metrics:in_range", "declare the range that scores really have"),
            Check(
                "determinism", "metrics:deterministic", "draw nothing, or with a fixed generator"
            ),
            Check(
                "global-state",
                "metrics:leaves_the_world_alone",
                "make a generator of your own: torch.Generator().manual_seed(…)",
            ),
            *_on_odd_data("metrics:copes_with"),
            Check("memory", "metrics:forgets", "keep nothing of a call", runs=8),
        ),
    ),
    "victims": (
        *DECLARED,
        *_built_on(
            Check(
                "network", "networks:builds", "return an nn.Sequential of named blocks to logits"
            ),
            Check("cut", "networks:can_be_cut", "let `cut` name a block before the last one"),
            Check(
                "determinism",
                "networks:builds_the_same",
                "draw weights from torch's generator alone",
            ),
            *_on_odd_data("networks:classifies_odd_images"),
            _device("networks:classifies_on_any_device"),
            Check("training", "networks:learns", "let every weight have a gradient", runs=2),
            Check("memory", "networks:builds_and_forgets", "keep nothing of a call", runs=8),
        ),
    ),
    "spaces": (
        *DECLARED,
        *_built_on(
            Check("features", "networks:embeds", "return float32 maps [b, c, h, w], all finite"),
            Check(
                "determinism", "networks:embeds_the_same", "draw nothing; put networks in eval mode"
            ),
            Check(
                "global-state",
                "networks:leaves_the_world_alone",
                "draw nothing, or from a generator of your own",
            ),
            *_on_odd_data("networks:embeds_odd_images"),
            _device("networks:embeds_on_any_device"),
            Check("memory", "networks:embeds_and_forgets", "load the network once", runs=8),
        ),
    ),
}
"""By group, in the order in which they are asked: what others build on comes first."""
