"""How far the default command travels: files it passes, functions it calls, its deepest frame.

    python benchmarks/travel.py

Runs `harness.evaluate()` on a few images in an empty cache, in this process, and counts what of
`harness/` is called: not what is merely imported. A comprehension is part of its function. The
command line around it, and attacks' own processes, are not counted.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import harness

SMALL = {"private_size": 40, "public_size": 80, "test_size": 40, "learner": "classmeans"}
ROOM = str(Path(harness.__file__).parent) + os.sep


class Travel:
    """What a run calls of the house."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.deepest: list[str] = []

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Hear of every call."""
        code = frame.f_code
        if event != "call" or not counts(code):
            return
        self.functions.add(code)
        stack = own_frames(frame)
        if len(stack) > len(self.deepest):
            self.deepest = stack

    @property
    def files(self) -> set[str]:
        """The files that these functions stand in."""
        return {code.co_filename.removeprefix(ROOM) for code in self.functions}


def counts(code: CodeType) -> bool:
    """Whether this is a function of the house, or a lambda."""
    runs = bool(code.co_flags & inspect.CO_OPTIMIZED)  # not a module's or a class's body
    part = code.co_name.startswith("<") and code.co_name != "<lambda>"
    return runs and not part and code.co_filename.startswith(ROOM)


def own_frames(frame: FrameType | None) -> list[str]:
    """The frames of the house on a stack, from the outermost."""
    found = []
    while frame:
        if counts(code := frame.f_code):
            found.append(f"{code.co_filename.removeprefix(ROOM)}:{code.co_name}")
        frame = frame.f_back
    return found[::-1]


def main() -> None:
    travel = Travel()
    evaluate = harness.evaluate
    with tempfile.TemporaryDirectory() as cache:
        sys.setprofile(travel)
        try:
            evaluate(cache=Path(cache), **SMALL)
        finally:
            sys.setprofile(None)
    print(f"files {len(travel.files)}, functions {len(travel.functions)}")
    print(f"deepest frame {len(travel.deepest)}: {' > '.join(travel.deepest)}")


if __name__ == "__main__":
    main()
