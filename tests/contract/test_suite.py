"""Attacks that are many, and preparations that attacks share, as a stranger declares them."""

import pytest
from strangers import SMALL, Machine, install

SOURCE = """
    import torch

    from harness.api import (
        Attack, AttackSpec, Channel, Config, NotApplicable, Preparation, Reconstruction, hookimpl,
    )

    KNOWN = frozenset({Channel.ENCODINGS, Channel.PUBLIC})
    MEAN = Preparation("public-mean", "team:mean", frozenset({Channel.PUBLIC}))


    class Effort(Config):
        steps: int = 1


    def mean(view, budget, progress):
        return {"image": view.public.images.mean(0)}


    class Mean(Attack[Effort]):
        def reconstruct(self, view, prepared, budget, progress):
            image = view.shared["public-mean.image"]
            count = view.encodings.shape[1]
            return Reconstruction(image.expand(count, *image.shape), rows=torch.arange(count))


    class Copy(Attack[Effort]):
        def reconstruct(self, view, prepared, budget, progress):
            blur = 1 / (1 + self.config.steps)
            images = (1 - blur) * view.encodings[0] + blur * view.shared["public-mean.image"]
            return Reconstruction(images, rows=torch.arange(len(images)))


    class Fails(Attack[Effort]):
        def reconstruct(self, view, prepared, budget, progress):
            import time
            raise ValueError(f"on purpose, at {time.time_ns()}")


    class Declines(Attack[Effort]):
        def reconstruct(self, view, prepared, budget, progress):
            raise NotApplicable("this release is none for me.")


    def attack(name, factory="", **more):
        usual = {"version": "1", "summary": name, "reference": "none", "needs": (KNOWN,)}
        return AttackSpec(
            name=name, factory=factory and f"team:{factory}", config=Effort, **{**usual, **more}
        )


    @hookimpl
    def harness_attacks():
        gradients = frozenset({Channel.GRADIENTS, Channel.MODEL})
        return [
            attack("team-mean", "Mean", preparations=(MEAN,)),
            attack("team-copy", "Copy", preparations=(MEAN,), effort="steps"),
            attack("team-fails", "Fails"),
            attack("team-declines", "Declines"),
            attack("team-gradients", "Fails", needs=(gradients,)),
            attack(
                "team", needs=(), members=("team-mean", "team-copy[steps=3]", "team-fails",
                                           "team-declines", "team-gradients"),
            ),
            attack("no-team", needs=(), members=("team-gradients",)),
        ]
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    install(site, "team", SOURCE)
    machine = Machine(tmp_path_factory.mktemp("cache"), (site,))
    cell = [*SMALL, "--dataset", "fashion-mini", "--defense", "none"]
    alone, declined, many, again, planned, never, twice = machine.series(
        [
            [*cell, "--attack", "team-mean"],
            [*cell, "--attack", "team-declines"],
            [*cell, "--attack", "team"],
            [*cell, "--attack", "team"],
            [*cell, "--attack", "team", "--dry-run"],
            [*cell, "--attack", "no-team", "--release", "encodings"],
            [*cell, "--attack", "team-copy", "--twice"],
        ]
    )
    return {"alone": alone, "many": many, "plan": planned, "never": never, "twice": twice,
            "declined": declined, "again": again}  # fmt: skip


def test_what_attacks_share_is_made_once(ran):
    assert ran["alone"].json["status"] == "ok"
    made = [name for name in ("alone", "many") if "prepare public-mean" in ran[name].json["timing"]]
    assert made == ["alone"]


def test_the_record_names_what_was_shared_and_what_each_member_made(ran):
    kept = ran["many"].json["artifacts"]
    assert kept["prepare public-mean"] == ran["alone"].json["artifacts"]["prepare public-mean"]
    assert {"attack team-mean", "judge team-mean", "judge team-copy[steps=3]"} <= kept.keys()


def test_every_member_is_in_the_record_whatever_became_of_it(ran):
    members = ran["many"].json["members"]
    assert {name: member["status"] for name, member in members.items()} == {
        "team-mean": "ok",
        "team-copy[steps=3]": "ok",
        "team-fails": "failed",
        "team-declines": "not_applicable",
        "team-gradients": "not_applicable",
    }
    assert "on purpose" in members["team-fails"]["error"]
    assert members["team-copy[steps=3]"]["attack"]["config"] == {"steps": 3}


def test_the_strongest_member_counts(ran):
    record = ran["many"].json
    copy = record["members"]["team-copy[steps=3]"]
    assert copy["strongest_of"] == 12
    assert record["privacy"]["snr_db"]["mean"] == copy["privacy"]["snr_db"]["mean"]
    assert "answers_to_others" in record["privacy"]["snr_db"]["nulls"]
    assert record["privacy"]["snr_db"]["null"] >= copy["privacy"]["snr_db"]["null"]


def test_a_member_that_fails_is_a_flag_and_no_failure(ran):
    assert ran["many"].code == 0
    flags = {flag["name"]: flag["message"] for flag in ran["many"].json["flags"]}
    assert "team-fails" in flags["member_failed"]


def test_a_member_that_failed_is_tried_again_when_asked_again(ran):
    said = [ran[name].json["members"]["team-fails"]["error"] for name in ("many", "again")]
    assert said[0] != said[1]


def test_an_attack_that_declines_a_release_says_why_without_a_trace(ran):
    record = ran["declined"].json
    assert (ran["declined"].code, record["status"]) == (1, "not_applicable")
    assert record["error"] == "this release is none for me."
    assert not record["log"]
    assert "team-declines" not in str(ran["many"].json["flags"])


def test_the_plan_names_members_and_those_left_out(ran):
    plan = ran["plan"].json
    assert plan["attacks"] == "team-mean, team-copy[steps=3], team-fails, team-declines"
    assert set(plan["left out"]) == {"team-gradients"}
    assert plan["stages"]["attack team-mean"] == "stored"


def test_where_no_member_applies_the_record_says_so(ran):
    record = ran["never"].json
    assert (ran["never"].code, record["status"]) == (1, "not_applicable")
    assert "no attack of 'no-team' applies" in record["error"]


def test_an_attack_that_gains_from_more_effort_was_stopped_too_early(ran):
    names = [flag["name"] for flag in ran["twice"].json["flags"]]
    assert "still_rising" in names
