"""Which checks there are for each kind of plugin. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.testing.subject import Subject


@dataclass(frozen=True)
class Check:
    """One thing that has to hold.

    `run="module:function"`, below `harness.testing`, is called with the subject, and with
    `argument` where there is one. It returns what it found in one line, or raises Violation or
    Unanswered. It may take `runs` times the subject's seconds. Those that run `here` need no
    torch, or take care themselves of where a plugin runs.
    """

    name: str
    run: str
    fix: str
    argument: str = ""
    runs: int = 1
    here: bool = False

    def __call__(self, subject: Subject) -> str:
        """Ask it."""
        module, _, name = self.run.partition(":")
        ask: Callable[..., str] = getattr(import_module(f"harness.testing.{module}"), name)
        return ask(subject, self.argument) if self.argument else ask(subject)


DECLARED = (
    Check(
        "declaration",
        "declared:complete",
        "fill in what is missing where the plugin is declared",
        here=True,
    ),
    Check(
        "imports",
        "declared:light",
        "import torch in the module that `factory` names, not in the one that declares",
        here=True,
    ),
    Check(
        "config",
        "declared:configurable",
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
DEVICE = Check(
    "device",
    "device:disciplined",
    "make tensors on the device of those you are given (`device=x.device`, `torch.zeros_like`), "
    "and name none",
    runs=2,
)


def _on_odd_data(run: str, runs: int = 1) -> tuple[Check, ...]:
    return tuple(Check(case, run, fix, argument=case, runs=runs) for case, fix in ODD.items())


def _defense(module: str) -> tuple[Check, ...]:
    """What is asked of a defense of any stage."""
    return (
        *DECLARED,
        Check("release", f"{module}:releases", "return what the base class's docstring says"),
        Check(
            "determinism",
            "defense:deterministic",
            "take every random number from the stream you are given",
            runs=2,
        ),
        Check(
            "secrets",
            f"{module}:keeps_secrets",
            "draw what has to stay secret from the stream, anew in each round",
            runs=2,
        ),
        Check(
            "global-state",
            "defense:leaves_the_world_alone",
            "use the stream's own draws, or stream.generator(); never seed or draw globally",
        ),
        *_on_odd_data("defense:copes_with"),
        DEVICE,
        Check("victim", "defense:can_be_trained_on", "let a victim learn from what is released"),
        Check(
            "memory",
            f"{module}:forgets",
            "keep nothing of a call on the instance or in a module's variable",
            runs=3,
        ),
    )


CHECKS: dict[str, tuple[Check, ...]] = {
    "encoding defenses": _defense("encoding"),
    "training defenses": _defense("training"),
    "gradient defenses": _defense("gradient"),
    "attacks": (
        *DECLARED,
        Check(
            "answer",
            "attack:answers",
            "return a Reconstruction of float32 images of `view.shape`, or claims",
        ),
        Check(
            "budget",
            "attack:keeps_its_budget",
            "look at budget.seconds while you work, and return what you have before it is over",
        ),
        Check(
            "channels",
            "attack:needs_no_more",
            "ask `view.has(channel)` before using an optional one; list in `needs` what you cannot "
            "do without",
            runs=4,
        ),
        Check(
            "determinism",
            "attack:deterministic",
            "take random numbers from view.rng or from torch's generator, which is seeded for you",
        ),
        Check(
            "global-state",
            "attack:leaves_the_world_alone",
            "numpy's and Python's generators are not seeded for you: use view.rng",
        ),
        *_on_odd_data("attack:copes_with"),
        DEVICE,
        Check(
            "memory",
            "attack:forgets",
            "keep nothing of a call in a module's variable",
            runs=8,
        ),
        Check(
            "controls",
            "controls:passed",
            "make it break what it is known to break, or ask of it what it can reach",
            here=True,
        ),
    ),
    "datasets": (
        *DECLARED,
        Check("images", "dataset:images", "return uint8 images, or float32 ones in the range"),
        Check("labels", "dataset:labels", "number the classes from 0, as `classes` names them"),
        Check("scale", "dataset:scaled", "declare the mean and deviation of the training images"),
        Check("splits", "dataset:disjoint", "take images out of `test` that are in `train`"),
        Check("determinism", "dataset:deterministic", "give the same images each time", runs=2),
        Check(
            "global-state",
            "dataset:leaves_the_world_alone",
            "make a generator of your own: torch.Generator().manual_seed(…)",
        ),
    ),
    "metrics": (
        *DECLARED,
        Check("score", "metric:scores", "return one float64 for each image, NaN where undefined"),
        Check("direction", "metric:knows_the_truth", "turn `leaks_more` round, or the score"),
        Check("range", "metric:in_range", "declare the range that scores really have"),
        Check("determinism", "metric:deterministic", "draw nothing, or with a fixed generator"),
        Check(
            "global-state",
            "metric:leaves_the_world_alone",
            "make a generator of your own: torch.Generator().manual_seed(…)",
        ),
        *_on_odd_data("metric:copes_with"),
        Check("memory", "metric:forgets", "keep nothing of a call", runs=8),
    ),
    "victims": (
        *DECLARED,
        Check("network", "victim:builds", "return an nn.Sequential of named blocks to logits"),
        Check("cut", "victim:can_be_cut", "let `cut` name a block before the last one"),
        Check("determinism", "victim:deterministic", "draw weights from torch's generator alone"),
        *_on_odd_data("victim:copes_with"),
        DEVICE,
        Check("training", "victim:learns", "let every weight have a gradient", runs=2),
        Check("memory", "victim:forgets", "keep nothing of a call", runs=8),
    ),
    "spaces": (
        *DECLARED,
        Check("features", "space:embeds", "return float32 maps [b, c, h, w], all finite"),
        Check("determinism", "space:deterministic", "draw nothing; put networks in eval mode"),
        Check(
            "global-state",
            "space:leaves_the_world_alone",
            "draw nothing, or from a generator of your own",
        ),
        *_on_odd_data("space:copes_with"),
        DEVICE,
        Check("memory", "space:forgets", "load the network once", runs=8),
    ),
}
"""By group, in the order in which they are asked: what others build on comes first."""


def checks_of(group: str) -> tuple[Check, ...]:
    """The checks of one group of plugins."""
    return CHECKS[group]
