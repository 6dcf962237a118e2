"""Rounds made on demand: the same bytes streamed or held, and how a learner's process gets them."""

import os
import time

import pytest
import torch
from small_fashion import OWNER, same, splits
from test_release import PAIRS

from harness.api import CellFailed, Config, Encoded, PiecewiseDefense, Round, Secrets
from harness.running import encoding, samples
from harness.running.encoding import piece_rows, source_of
from harness.running.samples import Standardised, on_demand, standardised
from harness.sandbox.feed import Fed, Feed, Giver
from harness.sandbox.lines import ChildLines
from harness_plugins.defenses.instahide import InstaHideConfig
from harness_plugins.defenses.instahide.encode import InstaHide
from harness_plugins.defenses.mixup import MixupConfig
from harness_plugins.defenses.mixup.encode import Mixup
from harness_plugins.defenses.noise import NoiseConfig
from harness_plugins.defenses.noise.encode import Noise
from harness_plugins.defenses.none import NoDefense
from harness_plugins.defenses.singmix import SingmixConfig
from harness_plugins.defenses.singmix.encode import Singmix

DATA = splits(private=60, public=40)
DEFENSES = {
    "nothing": lambda: None,
    "pairs": lambda: PAIRS.encoding,
    "none": lambda: ("none", NoDefense(Config())),
    "laplace": lambda: ("noise", Noise(NoiseConfig())),
    "gaussian": lambda: ("noise", Noise(NoiseConfig(kind="gaussian"))),
    "mixup": lambda: ("mixup", Mixup(MixupConfig(k=3))),
    "singmix": lambda: ("singmix", Singmix(SingmixConfig(tau=1e-2))),
    "resized": lambda: ("singmix", Singmix(SingmixConfig(tau=1e-2, resolution=40))),
    "inside": lambda: ("instahide", InstaHide(InstaHideConfig(augment="crop-flip"))),
    "affine": lambda: ("instahide", InstaHide(InstaHideConfig(augment="affine"))),
    "weak": lambda: ("instahide", InstaHide(InstaHideConfig(prng="mt19937"))),
    "cross": lambda: ("instahide", InstaHide(InstaHideConfig(k=4, scheme="cross"))),
}


@pytest.fixture(params=DEFENSES)
def defense(request):
    """Each of them, fresh whenever it is called."""
    return DEFENSES[request.param]


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def source(defense, rounds=3):
    return source_of(DATA, defense, OWNER, rounds=rounds)


def streamed(source, rounds=3):
    """All that is made, round by round, as one tensor of each kind."""
    turns = [list(source.made(t)) for t in range(rounds)]
    joined = [{n: torch.cat([p[n] for p in turn]) for n in turn[0]} for turn in turns]
    return {name: torch.stack([turn[name] for turn in joined]) for name in joined[0]}


def held(source):
    found = source.held()
    return {"encodings": found.images, "labels": found.labels, **found.secrets}


def test_rounds_are_the_same_bytes_streamed_again_or_held(defense, threads, monkeypatch):
    monkeypatch.setattr(encoding, "PIECE", 17)
    threads(2)
    one = source(defense())
    first, again = streamed(one), streamed(one)
    threads(1)
    assert same(first, again)
    assert same(first, held(source(defense())))


def test_images_standardised_as_they_are_needed_give_the_same_bytes(defense, monkeypatch):
    at_once = held(source(defense()))
    monkeypatch.setattr(samples, "HELD", 0)
    assert isinstance(on_demand(DATA.private, DATA.scale), Standardised)
    assert same(at_once, held(source(defense())))


@pytest.mark.parametrize("name", sorted(DEFENSES.keys() - {"nothing", "pairs"}))
def test_pieces_hold_what_a_round_in_one_piece_holds(name):
    made = DEFENSES[name]()
    private, public = (standardised(p, DATA.scale) for p in (DATA.private, DATA.public))
    whole = made[1].encode(private, public, OWNER.stream(t=1))
    begun = made[1].begin(private, public, OWNER.stream(t=1))
    parts = [begun.rows(index) for index in torch.split(torch.arange(60), [1, 30, 22, 7])]
    assert begun.resolved == whole.resolved
    assert begun.shape == tuple(whole.images.shape[1:])
    assert torch.equal(torch.cat([part.images for part in parts]), whole.images)
    assert torch.equal(torch.cat([part.labels for part in parts]), whole.labels)
    for kept in ("weights", "sources"):
        joined = torch.cat([getattr(part.secrets, kept) for part in parts])
        assert torch.equal(joined, getattr(whole.secrets, kept))


@pytest.mark.parametrize(
    ("shape", "rows"), [((1, 28, 28), 1024), ((2048, 3, 3), 227), ((3, 5000, 5000), 1)]
)
def test_a_piece_is_16_megabytes_at_most_but_for_a_row_that_is_larger(shape, rows):
    assert piece_rows(shape) == rows


class Shrinks(PiecewiseDefense[Config]):
    """Returns a row less than it was asked for."""

    def begin(self, private, public, rng):
        def rows(index):
            one = torch.ones(len(index), 1)
            labels = torch.zeros(len(index), 10)
            secrets = Secrets(one, torch.zeros(len(index), 1, dtype=torch.int64))
            return Encoded(private[index[1:]].images, labels, secrets)

        return Round(private.shape, rows)


def test_a_defense_that_breaks_its_contract_in_a_piece_is_named():
    with pytest.raises(CellFailed, match=r"'shrinks' returned images \[59, .*wanted \[60"):
        source(("shrinks", Shrinks(Config()))).held()


# ---------------------------------------------------------------- how a learner gets them


def fed(feed, source):
    shape = source.shape
    return Fed(source.rounds, source.rows, shape, 10, torch.device("cpu"), feed.piece)


def test_a_learner_is_fed_the_very_rounds_whatever_it_asks_for(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "PIECE", 25)
    one = source(DEFENSES["singmix"]())
    feed = Feed(one, tmp_path)
    released, truth = fed(feed, one), held(one)
    for round_ in (0, 1, 2, 1, 1, 0):
        pieces = list(released.pieces(round_))
        assert [len(labels) for _, labels in pieces] == [25, 25, 10]
        assert torch.equal(torch.cat([x for x, _ in pieces]), truth["encodings"][round_])
        assert torch.equal(torch.cat([y for _, y in pieces]), truth["labels"][round_])
    next(released.pieces(2))
    side_by_side = zip(released.pieces(0), released.pieces(1), strict=True)
    first = torch.cat([images for (images, _), _ in side_by_side])
    assert torch.equal(first, truth["encodings"][0])


def test_what_a_learner_changes_in_place_is_its_own(tmp_path):
    one = source(None)
    feed = Feed(one, tmp_path)
    for images, _ in fed(feed, one).pieces(0):
        images.zero_()
    truth = held(one)["encodings"][0]
    assert torch.equal(torch.cat([x for x, _ in fed(feed, one).pieces(0)]), truth)


def test_no_more_than_two_pieces_lie_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "PIECE", 10)
    one = source(None)
    feed, seen = Feed(one, tmp_path), []
    for _ in fed(feed, one).pieces(0):
        feed.make_ahead()
        seen.append(len(list(tmp_path.iterdir())))
    assert max(seen) == 2


@pytest.mark.parametrize("asked", [(3, 0), (-1, 0), (0, 1), (0, -1)])
def test_a_piece_that_there_is_not_ends_the_learner(tmp_path, asked):
    with pytest.raises(CellFailed, match="a piece that there is not"):
        Feed(source(None), tmp_path).piece(*asked)


class Slow:
    """A release that takes its time."""

    rounds, rows, shape = 1, 2, (3,)

    def pieces(self, round_):
        time.sleep(0.3)
        yield torch.zeros(1, 3), torch.zeros(1, 10)
        raise CellFailed("no more of this")


def test_waiting_for_pieces_is_no_time_of_the_learners_and_failures_come_through(tmp_path):
    (out, into), (answers, back) = os.pipe(), os.pipe()
    with os.fdopen(into, "wb") as unused:
        lines = ChildLines(os.fdopen(back, "wb"), os.fdopen(out, "rb"))
        with Giver(Feed(Slow(), tmp_path), lines) as giver, os.fdopen(answers, "rb") as said:
            giver.give(0, 0)
            with pytest.raises(CellFailed, match="two pieces at once"):
                giver.give(0, 1)
            assert b'"rows": 1, "last": false' in said.readline()
            assert 0.25 < giver.waited < 5
            time.sleep(0.1)
            with pytest.raises(CellFailed, match="no more of this"):
                giver.check()
        assert not unused.closed
        lines.close()
