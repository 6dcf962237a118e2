"""What shapes the built-in networks take."""

from __future__ import annotations

from harness.api import UsageError


def require_image(victim: str, shape: tuple[int, ...], smallest: int = 1) -> tuple[int, int, int]:
    """The shape as (channels, height, width); an error for any other rank or a smaller side."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        given = "x".join(map(str, shape))
        raise UsageError(
            f"victim '{victim}' takes images [channels,height,width] of at least "
            f"{smallest}x{smallest} pixels, not {given}. The victim 'mlp' takes any shape."
        )
    channels, height, width = shape
    return channels, height, width
