"""Strangers' datasets, metrics and defenses work in processes of their own, and change no other."""

import json

import pytest
from strangers import SMALL, Machine, install

from harness.sandbox.jail import Walls

SOURCE = """
    import os, sys, time
    from pathlib import Path
    import torch
    from harness.api import *

    class AsIs(Dataset):
        def load(self, assets):
            torch.manual_seed(1)
            images = torch.rand(90, 1, 8, 8)
            labels = torch.arange(90) % 3
            train, test = (Samples(images[rows], labels[rows]) for rows in
                           (slice(0, 60), slice(60, 90)))
            return Collection(train, test, Scale((0.5,), (0.3,)), ("a", "b", "c"))

    class Lies(AsIs):
        def load(self, assets):
            found = super().load(assets)
            return Collection(found.train, "the test images", found.scale, found.classes)

    class Amount(Config):
        noise: float = 0.1

    def encoded(private, rng):
        n = len(private)
        own = Secrets(torch.ones(n, 1), torch.arange(n).view(n, 1))
        labels = torch.nn.functional.one_hot(private.labels, 3).float()
        noise = rng.normal(*private.images.shape).float()
        return Encoded(private.images + 0.1 * noise, labels, own, {"noise": 0.1})

    class Fog(EncodingDefense):
        def encode(self, private, public, rng):
            return encoded(private, rng)

    class Pieces(PiecewiseDefense):
        def begin(self, private, public, rng):
            made = encoded(private[:], rng)
            return Round(private.shape, made.__getitem__, made.resolved)

        def infer(self, model, images, private, public, rng):
            return model(images) + 0 * rng.normal(1).float()

    class Peeks(Fog):
        def encode(self, private, public, rng):
            Path(os.environ["PYTHONPATH"].split(os.pathsep)[0], "..", "secret", "key").read_text()
            return encoded(private, rng)

    class Leaves(Fog):
        def encode(self, private, public, rng):
            os._exit(7)

    class Refuses(Fog):
        def encode(self, private, public, rng):
            raise UsageError("fog needs another size")

    class Nonsense(Fog):
        def encode(self, private, public, rng):
            print("lines " * 9)
            return {"images": 1}

    class Error(Metric):
        def score(self, images, truth):
            return (images - truth).square().flatten(1).mean(1)

    class Meddles(Error):
        def score(self, images, truth):
            from harness.scoring import judgement, verdict
            judgement.judge = verdict.verdict = None
            images.zero_()
            return torch.full((len(images),), 7.0)

    def _defense(name, factory):
        return DefenseSpec(name=name, version="1", summary=name, reference="none",
                           factory=f"guests:{factory}", stage=Stage.ENCODING, config=Amount)

    @hookimpl
    def harness_defenses():
        return [_defense(name, name.capitalize()) for name in
                ("fog", "pieces", "peeks", "leaves", "refuses", "nonsense")]

    @hookimpl
    def harness_datasets():
        return [DatasetSpec(name=name, version="1", summary=name, reference="none",
                            factory=f"guests:{factory}") for name, factory in
                (("drawn", "AsIs"), ("lies", "Lies"))]

    @hookimpl
    def harness_metrics():
        return [MetricSpec(name=name, version="1", summary=name, reference="none",
                           factory=f"guests:{name.capitalize()}", leaks_more="lower", range=(0, 9))
                for name in ("error", "meddles")]
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each command left, by the name of the guest that it is about."""
    site = tmp_path_factory.mktemp("site")
    install(site, "guests", SOURCE)
    (site.parent / "secret").mkdir(exist_ok=True)
    (site.parent / "secret" / "key").write_text("secret")
    small = [*SMALL, "--attack", "wiener"]
    drawn = [*small, "--dataset", "drawn"]
    commands = {
        "fog": [*drawn, "--defense", "fog", "--metrics", "snr_db,mse,error,meddles"],
        "pieces": [
            *(each for each in drawn if each not in ("--only", "privacy")),
            "--defense",
            "pieces",
            *("--learner", "encoded"),
        ],
        "lies": [*small, "--dataset", "lies"],
        **{
            name: [*drawn, "--defense", name] for name in ("peeks", "leaves", "refuses", "nonsense")
        },
    }
    machine = Machine(tmp_path_factory.mktemp("cache"), (site,))
    return dict(zip(commands, machine.series(list(commands.values())), strict=True))


def test_a_stranger_s_dataset_defense_and_metric_make_a_record(ran):
    record = ran["fog"].json
    assert record["status"] == "ok"
    assert record["privacy"]["error"]["mean"] == pytest.approx(record["privacy"]["mse"]["mean"])
    assert record["defense"][0]["resolved"] == {"noise": 0.1}


def test_what_a_guest_changes_is_changed_in_its_own_process(ran):
    """One that rewrites the judge and the images has its own numbers, and nobody else's."""
    privacy = ran["fog"].json["privacy"]
    assert privacy["meddles"]["mean"] == 7.0
    assert privacy["error"]["mean"] < 1.0


def test_rounds_in_pieces_and_inference_are_asked_of_it_too(ran):
    record = ran["pieces"].json
    assert record["status"] == "ok"
    assert record["utility"]["inference"] == "encoded"
    assert record["privacy"]["snr_db"]["mean"] == ran["fog"].json["privacy"]["snr_db"]["mean"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("lies", "the dataset lies answered no load: answer.test: Input should be"),
        ("leaves", "the defense leaves's process ended with exit code 7"),
        ("nonsense", "the defense nonsense answered no encode: answer.images: Input should be"),
    ],
)
def test_what_it_does_wrong_is_one_failed_record_that_names_it(ran, name, told):
    record = ran[name].json
    assert (ran[name].code, record["status"]) == (1, "failed")
    assert told in record["error"]


def test_what_it_refuses_is_refused(ran):
    assert ran["refuses"].code == 2
    assert "fog needs another size" in ran["refuses"].err + ran["refuses"].out


@pytest.mark.skipif(not Walls.here().stand, reason="the kernel has no Landlock")
def test_it_reads_nothing_but_what_it_is_given(ran):
    assert "PermissionError" in json.dumps(ran["peeks"].json["error"])
