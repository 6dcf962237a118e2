"""The reader: what it makes of images, of guesses, and where it knows nothing."""

from copy import copy
from dataclasses import replace

import pytest
import torch
from small_fashion import CPU, splits

from harness.api import AssetFolder, Scene
from harness.rng import KeyedStream, board_key
from harness.scoring.judgement import Folded, Judge, fold
from harness_plugins.metrics import recognition
from harness_plugins.metrics.recognition import reader
from harness_plugins.metrics.recognition.reader import Recognition, learn

DATA = splits(private=100, public=1500, test=100)
TRUTH = DATA.private.unit().images
STREAM = KeyedStream(board_key(0))


def scene(**changes):
    made = Scene(
        scale=DATA.scale,
        device=CPU,
        assets=AssetFolder({}),
        decoys=DATA.test.unit().images,
        public=DATA.public,
        labels=DATA.private.labels,
        classes=10,
    )
    return replace(made, **changes)


@pytest.fixture(autouse=True, scope="module")
def in_a_hurry():
    """Fewer steps than a cell would take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "STEPS", 40)
        yield


@pytest.fixture(scope="module")
def metric():
    return Recognition(scene())


def test_it_reads_most_of_the_images_themselves(metric):
    assert metric.unavailable(DATA.shape) is None
    scores = metric.score(TRUTH, TRUTH)
    assert (scores.shape, scores.dtype) == ((100,), torch.float64)
    assert 0.65 < scores.mean() < 1


def test_the_mean_of_a_class_is_read_as_well_as_images_so_a_gain_is_rare(metric):
    public, labels = DATA.public.unit().images, DATA.private.labels
    means = torch.stack([public[DATA.public.labels == c].mean(0) for c in range(10)])
    images = metric.score(TRUTH, TRUTH).mean().item()
    assert metric.score(means[labels], TRUTH).mean().item() == pytest.approx(images, abs=0.05)


def test_one_picture_for_all_reaches_chance_at_most(metric):
    assert metric.score(TRUTH[:1].expand_as(TRUTH), TRUTH).mean() <= metric.chance(100)
    assert metric.chance(100) == DATA.private.labels.bincount().max().item() / 100
    assert metric.chance(1) == 1


def test_the_first_images_are_read_for_the_first_labels(metric):
    both = metric.score(TRUTH, TRUTH)
    assert torch.equal(metric.score(TRUTH[:2], TRUTH[:2]), both[:2])
    swapped = metric.score(TRUTH.flip(0), TRUTH)
    assert torch.equal(swapped.bool(), _read(metric, TRUTH.flip(0)) == DATA.private.labels)
    assert swapped.mean() < both.mean()


def _read(metric, images):
    with torch.no_grad():
        return metric.reader.network(DATA.scale.standardise(images)).argmax(1)


def test_it_learns_once_and_moves_nobodys_generator(metric, monkeypatch):
    monkeypatch.setattr(reader, "STEPS", 5)
    before = torch.random.get_rng_state()
    assert metric.reader is metric.reader
    fresh = learn(scene(public=DATA.public[:64]))
    assert torch.equal(before, torch.random.get_rng_state())
    assert fresh.asked == 6


def test_the_same_images_make_the_same_reader(monkeypatch):
    monkeypatch.setattr(reader, "STEPS", 5)
    few = scene(public=DATA.public[:200])
    one, other = (learn(few).network.state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_absolute_values_are_read_by_one_that_learned_from_absolute_values(metric):
    (spec,) = recognition.harness_metrics()
    known = {"recognition": (spec, metric)}
    judge = Judge(DATA, len(TRUTH), known, STREAM, CPU, signs_hidden=True)
    scores = judge.score_images(TRUTH)
    assert torch.equal(scores["recognition"], metric.score(TRUTH, TRUTH))
    folded = copy(metric)
    folded.scene = replace(metric.scene, domain=Folded(DATA.scale))
    seen = fold(TRUTH, DATA.scale)
    assert torch.equal(scores["recognition_abs"], folded.score(seen, seen))
    assert folded.reader is not metric.reader
    assert scores["recognition_abs"].mean() > metric.score(seen, TRUTH).mean()


@pytest.mark.parametrize("count", [0, 5, 600])
def test_public_images_that_teach_nothing_make_it_unavailable(count, monkeypatch):
    monkeypatch.setattr(reader, "STEPS", 10)
    drawn = STREAM.stream(what="labels").integers(10, 600)
    misleading = replace(DATA.public[:600], labels=drawn)[:count]
    reason = Recognition(scene(public=misleading)).unavailable(DATA.shape)
    assert reason is not None
    assert "no more than a guess does" in reason
