"""Which defenses `describe` tells ceilings of: strengths of one under the noise that has any."""

from __future__ import annotations

import pytest

from harness.api import UsageError
from harness.description import with_ceilings

pytestmark = pytest.mark.core


def test_a_name_alone_becomes_its_strengths_under_normal_noise() -> None:
    assert with_ceilings("singmix") == "singmix[tau=1e-2|1e-3|1e-4,noise=gaussian,calibrate=public]"


def test_what_is_named_stays() -> None:
    assert with_ceilings("singmix[tau=1,noise=sphere]") == (
        "singmix[tau=1,noise=sphere,calibrate=public]"
    )


@pytest.mark.parametrize("text", ["mixup", "mixup[k=4]", "noise[kind=laplace]"])
def test_a_defense_without_these_options_is_asked_as_it_is(text: str) -> None:
    assert with_ceilings(text) == text


def test_what_encodes_nothing_has_none() -> None:
    with pytest.raises(UsageError, match="works on training"):
        with_ceilings("mixcon")
