"""Whether the package keeps the harness's contract: what `harness check` asks, plugin by plugin."""

import pytest

from harness.testing import checks_for

PLUGINS = (
    *("blur", "clouds", "smallhidden", "clip"),
    *("sharpen", "featuremean", "inputlayer", "lookup"),
    *("spectrum", "stripes", "max_error", "corners"),
)
PROMISES = [(name, promise) for name in PLUGINS for promise in checks_for(name)]


@pytest.mark.parametrize(
    "promise",
    [promise for _, promise in PROMISES],
    ids=[f"{name}-{promise}" for name, promise in PROMISES],
)
def test_it_keeps_the_contract(promise):
    """One check of one plugin."""
    promise.hold()
