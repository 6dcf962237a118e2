"""What a new plugin may be called."""

import pytest

from harness.api import UsageError
from harness.authoring import name_plugin

pytestmark = pytest.mark.core

REFUSED = {
    "SoftMix": "'soft-mix' would do",
    "soft mix": "'soft-mix' would do",
    "2fast": "a letter first",
    "": "is not a name",
    "x" * 41: "up to 40",
    "mixup": "has a defense of that name",
    "linear": "has an attack of that name",
    "informed": "has a threat model of that name",
    "plugins": "would make a package 'harness_plugins'",
}


def test_everything_is_named_after_the_plugin():
    naming = name_plugin("defense", "soft-mix_2")
    assert naming.distribution == "harness-soft-mix-2"
    assert naming.package == "harness_soft_mix_2"
    assert naming.class_name == "SoftMix2"


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_name_is_refused_with_what_would_do(name):
    with pytest.raises(UsageError) as error:
        name_plugin("attack", name)
    assert REFUSED[name] in str(error.value)
