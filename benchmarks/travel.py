"""How far the default command travels: files it passes, functions it calls, its deepest frame.

    python benchmarks/travel.py

Runs `harness evaluate` on a few images in an empty cache, in this process, and counts what of
`harness/` is called: not what is merely imported. Attacks' own processes are not counted.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import harness

SMALL = ("--private-size", "40", "--public-size", "80", "--test-size", "40", "--quiet")
ROOM = str(Path(harness.__file__).parent) + os.sep


class Travel:
    """What a run calls of the house."""

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self.deepest: list[str] = []

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Hear of every call."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOM) or code.co_name == "<module>":
            return
        self.functions.add(code)
        stack = own_frames(frame)
        if len(stack) > len(self.deepest):
            self.deepest = stack

    @property
    def files(self) -> set[str]:
        """The files that these functions stand in."""
        return {code.co_filename.removeprefix(ROOM) for code in self.functions}


def own_frames(frame: FrameType | None) -> list[str]:
    """The frames of the house on a stack, from the outermost."""
    found = []
    while frame:
        name = frame.f_code.co_filename
        if name.startswith(ROOM):
            found.append(f"{name.removeprefix(ROOM)}:{frame.f_code.co_name}")
        frame = frame.f_back
    return found[::-1]


def main() -> None:
    from harness.cli import cli

    travel = Travel()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["HARNESS_CACHE"] = cache
        sys.setprofile(travel)
        try:
            cli.main(["evaluate", *SMALL], standalone_mode=False)
        finally:
            sys.setprofile(None)
    print(f"files {len(travel.files)}, functions {len(travel.functions)}")
    print(f"deepest frame {len(travel.deepest)}: {' > '.join(travel.deepest)}")


if __name__ == "__main__":
    main()
