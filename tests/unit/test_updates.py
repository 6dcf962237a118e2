"""Federated updates as what leaves: what may be asked, who holds them, what is said of them."""

import re

import pytest

from harness.api import Channel, ReleaseKind, UsageError
from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import OF_UPDATES, make_request

pytestmark = pytest.mark.core
UPDATES = {"release": "updates", "attack": "gradmatch", "victim": "strided", "defense": "none"}


def planned(**options):
    return plan(make_request(**{**UPDATES, **options}), registry())


def test_what_is_asked_of_other_releases_does_not_name_local_training():
    assert not set(OF_UPDATES) & make_request(release="gradients").model_dump().keys()
    asked = make_request(release="updates", local_steps=5).model_dump()
    assert {name: asked[name] for name in OF_UPDATES} == {
        "local_steps": 5,
        "local_lr": 0.01,
        "local_images": None,
    }
    assert make_request(**asked) == make_request(release="updates", local_steps=5)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"local_steps": 5}, "local_steps is of parties that train locally.*release=updates"),
        ({"release": "gradients", "local_lr": 0.1}, "local_lr is of parties.*release=updates"),
        (
            {"release": "updates", "local_steps": 4, "local_images": 6, "batch_size": 4},
            "local_images=6 is no whole number of batches of 4 that 4 steps get through",
        ),
        (
            {"release": "updates", "local_steps": 2, "local_images": 3},
            "local_images=3 is no whole number of batches of 1 that 2 steps get through",
        ),
        (
            {"release": "updates", "local_steps": 9, "local_images": 9, "private_size": 8},
            r"local_images=9 is more than the private images there are \(8\)",
        ),
        ({"release": "updates", "local_steps": 0}, "local_steps"),
        ({"release": "updates", "local_lr": 0}, "local_lr"),
        ({"release": "update"}, "release: Input should be 'encodings'.*or 'updates'"),
    ],
)
def test_what_no_party_could_do_is_refused(asked, message):
    with pytest.raises(UsageError, match=message):
        make_request(**asked)


def test_a_server_sees_the_update_and_what_it_sent():
    cell = planned(local_steps=5, local_lr=0.1, local_images=4, threat_model="fl-realistic")
    assert cell.kind is ReleaseKind.UPDATES
    assert {Channel.UPDATES, Channel.MODEL} <= cell.channels
    assert not cell.channels & {Channel.GRADIENTS, Channel.BATCH_LABELS, Channel.BN_STATISTICS}
    assert cell.protocol["local_steps"] == 5
    assert cell.protocol["local_lr"] == 0.1
    assert cell.protocol["local_images"] == cell.together == 4
    assert cell.protocol["batch_size"] == 1


def test_updates_leave_only_where_they_are_asked_for():
    kinds = {d: planned(release=None, defense=d).kind for d in ("none", "gradprune", "mixup")}
    assert set(kinds.values()) == {ReleaseKind.GRADIENTS}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"attack": "linear"}, "'linear' reads encodings or features; .* is updates"),
        ({"threat_model": "released"}, "'gradmatch' needs model, updates, which .* 'released'"),
        ({"targets_from": "heldout"}, "the owner has no updates of them"),
        ({"judge_at": "release"}, "only encodings have a resolution to judge at, .* is updates"),
        ({"parties": 3}, "several parties release encodings or statistics"),
        ({"defense": "dpmeans"}, "'dpmeans' releases statistics, and no updates"),
    ],
)
def test_what_cannot_be_has_a_reason(asked, reason):
    found = planned(**asked).reason
    assert found is not None
    assert re.search(reason, found), found


def test_a_suite_is_of_what_reads_updates():
    members = planned(attack="suite").members.values()
    assert {member.attack.name for member in members} == {"firstlayer", "gradmatch"}
