"""Targets that the victim was not trained on."""

from __future__ import annotations

from dataclasses import replace

from harness.api import Splits, UsageError

TARGETS = 100
"""Held-out images that are judged where the user names no number: as many as MixCon inverts."""


def held_out(splits: Splits, asked: int | None) -> Splits:
    """The splits as the judge has them: the first test images are `private`, the others `test`.

    `asked` images; 100 where that is None, or all test images if those are fewer. UsageError
    where there are none, or more were asked for.
    """
    available = len(splits.test)
    count = min(TARGETS, available) if asked is None else asked
    if not 0 < count <= available:
        raise UsageError(
            f"{asked or 'some'} held-out targets were asked for, and there are {available} test "
            "images; raise --test-size or lower --targets."
        )
    return replace(splits, private=splits.test[:count], test=splits.test[count:])
