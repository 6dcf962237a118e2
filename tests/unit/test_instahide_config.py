"""What may be asked of InstaHide."""

import pytest
from pydantic import ValidationError

from harness_plugins.defenses.instahide import InstaHideConfig, harness_defenses


@pytest.mark.core
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 4, "max_weight": 0.2}, "above 1/k = 0.25"),
        ({"k": 2, "max_weight": 0.5}, "above 1/k = 0.5"),
        ({"k": 1, "scheme": "cross"}, "at least 3"),
        ({"k": 2, "scheme": "cross"}, "scheme=inside, k=2"),
        ({"k": 6, "scheme": "cross", "max_weight": 0.2, "min_private": 0.5}, "2 max_weight = 0.4"),
        ({"min_private": 1}, "less than 1"),
        ({"k": 0}, "greater than or equal to 1"),
        ({"infer": -1}, "greater than or equal to 0"),
        ({"max_weight": float("nan")}, "finite"),
        ({"prng": "random"}, "shake256"),
    ],
)
def test_laws_that_no_draw_can_meet_are_refused(wrong, message):
    with pytest.raises(ValidationError, match=message):
        InstaHideConfig(**wrong)


@pytest.mark.core
def test_bounds_of_a_law_that_is_not_used_do_not_matter():
    assert InstaHideConfig(k=1, max_weight=0.1).privates == 1
    assert InstaHideConfig(k=6, max_weight=0.2, min_private=0.9).privates == 6
    assert InstaHideConfig(k=6, scheme="cross").privates == 2


@pytest.mark.core
def test_every_preset_is_a_config():
    (spec,) = harness_defenses()
    assert spec.hides_signs
    assert all(InstaHideConfig(**preset) for preset in spec.presets.values())
