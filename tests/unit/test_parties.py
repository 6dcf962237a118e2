"""Several parties: how images are dealt out, what the union of releases holds, who attacks."""

import math
from itertools import pairwise

import pytest
import torch
from small_fashion import OWNER, same
from test_rounds import DATA, DEFENSES

from harness.api import CellFailed, Samples, UsageError
from harness.asking.partition import ByFile, Dirichlet, Iid, Shards, parse_partition
from harness.asking.plan import plan
from harness.asking.registry import registry
from harness.asking.request import make_request
from harness.rng import KeyedStream
from harness.running.joining import PARTY, JoinedSource, JoinedSums, PartySource, merged
from harness.running.parties import dealt
from harness.running.run import Run
from harness.running.samples import on_demand, standardised
from harness_plugins.defenses.dpmeans import DpmeansConfig
from harness_plugins.defenses.dpmeans.sums import Dpmeans

N, CLASSES = 6000, 10
LABELS = torch.arange(N) % CLASSES
KEY = KeyedStream(b"partition")


def images(labels=LABELS, subjects=None):
    return Samples(torch.zeros(len(labels), 1), labels, subjects)


def counts(owners, parties):
    """[parties, classes] images."""
    return torch.stack([LABELS[owners == p].bincount(minlength=CLASSES) for p in range(parties)])


# ---------------------------------------------------------------- what is asked


def test_one_owner_is_asked_for_as_before_there_were_parties():
    assert not {"parties", "partition", "party"} & make_request(parties=1).model_dump().keys()
    asked = make_request(parties=3, partition="shards[classes=1]").model_dump()
    assert (asked["parties"], asked["partition"]) == (3, "shards[classes=1]")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"partition": "shards"}, "there is one; raise parties"),
        ({"party": 0}, "party=0 is none of 1, counted from 0"),
        ({"parties": 3, "party": 3}, "party=3 is none of 3, counted from 0"),
        ({"parties": 600}, "parties=600 need 2 images each at least, and there are 1000"),
        ({"parties": 2, "partition": "dirichlett"}, "Did you mean 'dirichlet'"),
        ({"parties": 2, "partition": "dirichlet[alfa=1]"}, "unknown key 'alfa'.*'alpha'"),
        ({"parties": 2, "partition": "dirichlet[alpha=0]"}, "alpha: .*greater than 0"),
    ],
)
def test_a_partition_that_cannot_be(asked, message):
    with pytest.raises(UsageError, match=message):
        plan(make_request(**asked), registry())


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"threat_model": "party"}, "one party that attacks others"),
        ({"parties": 2, "defense": "mixcon"}, "guards one owner's training"),
        ({"parties": 2, "release": "gradients"}, "release encodings or statistics"),
        ({"parties": 2, "attack": "gradmatch"}, "'gradmatch' reads gradients"),
    ],
)
def test_what_parties_cannot_do_has_a_reason(asked, reason):
    assert reason in plan(make_request(**asked), registry()).reason


# ---------------------------------------------------------------- dealing out


def test_parties_of_an_even_partition_have_as_many_images_and_classes_alike():
    owners = dealt(images(), 7, Iid(), KEY)
    sizes = owners.bincount().tolist()
    assert max(sizes) - min(sizes) <= 1
    # a party's share of a class is hypergeometric: 600 * (1/7) = 85.7, deviation 8.1
    assert (counts(owners, 7) - 85.7).abs().max() < 5 * 8.1


@pytest.mark.parametrize(("alpha", "least", "most"), [(0.1, 0.55, 0.9), (100.0, 0.11, 0.16)])
def test_a_small_alpha_gives_each_class_to_few_parties(alpha, least, most):
    shares = counts(dealt(images(), 10, Dirichlet(alpha=alpha), KEY), 10) / 600
    assert shares.sum(0).tolist() == pytest.approx([1.0] * CLASSES)
    assert least < float(shares.max(0).values.mean()) < most


def test_shards_leave_a_party_two_classes():
    owners = dealt(images(), 10, Shards(classes=2), KEY)
    assert owners.bincount().tolist() == [600] * 10
    assert int((counts(owners, 10) > 0).sum(1).max()) == 2


def test_subjects_are_not_torn_apart():
    subjects = torch.arange(N) // 20 * 3
    owners = dealt(images(subjects=subjects), 9, ByFile(), KEY)
    assert all(len(set(owners[subjects == s].tolist())) == 1 for s in subjects.unique())
    assert float(owners.bincount().float().std()) < 20
    with pytest.raises(UsageError, match="needs a dataset that knows subjects"):
        dealt(images(), 9, ByFile(), KEY)


def test_a_partition_is_drawn_again_until_nobody_is_without_a_partner():
    few = images(LABELS[:40])
    assert int(dealt(few, 10, Dirichlet(alpha=0.5), KEY).bincount(minlength=10).min()) >= 2
    with pytest.raises(UsageError, match="cannot be dealt out so that each of 3 parties"):
        dealt(images(subjects=torch.zeros(N, dtype=torch.int64)), 3, ByFile(), KEY)


def test_a_partition_is_its_keys_and_nobody_elses():
    one, again = (dealt(images(), 5, parse_partition("iid"), KEY) for _ in range(2))
    other = dealt(images(), 5, parse_partition("iid"), KeyedStream(b"other"))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


# ---------------------------------------------------------------- the union


SIZES = (25, 5, 30)
STARTS = (0, 25, 30, 60)


def party(number, name, rounds=3):
    own = DATA.private[STARTS[number] : STARTS[number + 1]]
    public = standardised(DATA.public, DATA.scale)
    key = OWNER.stream(party=number)
    return PartySource(on_demand(own, DATA.scale), public, DEFENSES[name](), key, rounds, CLASSES)


def union(name, numbers=(0, 1, 2)):
    return JoinedSource([party(number, name) for number in numbers])


def rows_of(held, number):
    """One party's rows of a union, by name, without what counts images."""
    whose = held.secrets[PARTY]
    everything = {"encodings": held.images, "labels": held.labels, **held.secrets}
    kept = {n: t for n, t in everything.items() if n not in ("sources", PARTY)}
    return {n: torch.stack([t[r][whose[r] == number] for r in range(3)]) for n, t in kept.items()}


@pytest.mark.parametrize("name", sorted(DEFENSES.keys() - {"nothing"}))
def test_a_party_releases_what_it_would_if_there_were_nobody_else(name):
    alone = party(1, name).held()
    among = rows_of(union(name).held(), 1)
    lone = {"encodings": alone.images, "labels": alone.labels, **alone.secrets}
    assert same(among, {n: t for n, t in lone.items() if n != "sources"})
    others = rows_of(union(name, (2, 1)).held(), 1)
    assert same(among, others)


def test_mixtures_of_a_union_are_of_the_partys_own_images():
    private = standardised(DATA.private, DATA.scale).images
    held = union("mixup").held()
    weights, sources = held.secrets["weights"], held.secrets["sources"]
    mixed = (weights.view(3, 60, 3, 1, 1, 1) * private[sources]).sum(2)
    assert torch.allclose(held.images, mixed, atol=1e-5)
    for number, (start, end) in enumerate(pairwise(STARTS)):
        own = sources[held.secrets[PARTY] == number]
        assert int(own.min()) >= start
        assert int(own.max()) < end


def test_public_sources_count_from_the_last_private_image():
    held, alone = union("cross").held(), party(1, "cross").held()
    found = held.secrets["sources"][held.secrets[PARTY] == 1].view(3, 5, -1)
    own = alone.secrets["sources"]
    assert torch.equal(found[own >= 5], own[own >= 5] - 5 + 60)
    assert torch.equal(found[own < 5], own[own < 5] + 25)


def test_every_piece_has_rows_of_every_party(monkeypatch):
    monkeypatch.setattr("harness.running.encoding.PIECE", 20)
    pieces = list(union("none").made(0))
    whose = [piece[PARTY].bincount(minlength=3).tolist() for piece in pieces]
    assert len(pieces) == 3
    assert [sum(each) for each in zip(*whose, strict=True)] == list(SIZES)
    assert all(8 <= first <= 9 and 1 <= second <= 2 for first, second, _ in whose)


def test_each_party_calibrates_on_its_own_and_the_union_tells_their_energy():
    source = union("singmix")
    radii = [each.resolved["singmix"]["radius"] for each in source.parties]
    assert len(set(radii)) == 3
    energy = sum(n * r * r for n, r in zip(SIZES, radii, strict=True)) / 60
    assert source.resolved["singmix"]["radius"] == pytest.approx(math.sqrt(energy), rel=1e-12)


def test_words_that_differ_have_no_mean():
    assert merged(["a", "a"], [1, 2], "law") == "a"
    with pytest.raises(CellFailed, match=r"parties resolved 'law' to \['1', 'a'\]"):
        merged(["a", 1], [1, 2], "law")


def test_noisy_sums_add_up_with_their_noise():
    private, public = (standardised(p, DATA.scale) for p in (DATA.private, DATA.public))
    config = DpmeansConfig(epsilon=2, components=5)

    def measured(sizes):
        several = JoinedSums([Dpmeans(config) for _ in sizes], sizes, len(public))
        return several.measure(private, public, CLASSES, OWNER)

    one, three = measured((60,)), measured(SIZES)
    assert three.noise == pytest.approx(one.noise * math.sqrt(3))
    assert three.guarantee == one.guarantee
    # of 50 values the mean square difference is noise² + 3 noise², give or take a fifth
    gap = float((three.sums - one.sums).square().mean()) / one.noise**2
    assert 4 * 0.4 < gap < 4 * 2


# ---------------------------------------------------------------- a cell


def run_of(tmp_path, **options):
    asked = {"private_size": 300, "public_size": 200, "test_size": 100, "threads": 1, **options}
    return Run.open({"parties": 3, "attack": "wiener", **asked}, cache=tmp_path)


def test_the_record_says_whose_images_there_are_and_what_each_resolved(tmp_path):
    run = run_of(tmp_path, partition="shards", defense="singmix[tau=1e-1]", only="privacy")
    record = run.record()
    assert record.status == "ok", record.error
    told = record.parties
    assert told.sizes == (100, 100, 100)
    assert [sum(each) for each in told.classes] == [100, 100, 100]
    assert len({each["radius"] for each in told.resolved}) == 3
    release = run.release
    own = run.splits.private.labels[release.secrets["sources"][0, :, 0]]
    weight = release.secrets["weights"][0, :, 0]
    assert bool((release.tensors["labels"][0].gather(1, own[:, None])[:, 0] >= weight - 1e-6).all())


def test_a_guarantee_is_the_weakest_partys_and_not_that_of_their_union(tmp_path):
    """Ten parties of twenty images hide each of theirs among twenty, and not among two hundred."""
    asked = {"private_size": 200, "only": "utility", "learner": "classmeans", "threads": 1}
    defense = "dpmix[noise=2,m=8]"
    alone, union = (
        Run.open({**asked, "defense": defense, "parties": parties}, cache=tmp_path).result()
        for parties in (1, 10)
    )
    told = [each.defense[0].resolved for each in (alone, union)]
    assert [each["guarantee.steps"] for each in told] == [200, 20]
    assert [each["guarantee.sample_rate"] for each in told] == [0.04, 0.4]
    assert told[1]["guarantee.epsilon"] > 2 * told[0]["guarantee.epsilon"]


def test_a_curious_party_knows_its_own_images_and_is_judged_on_the_others(tmp_path):
    informed = run_of(tmp_path, threat_model="released")
    curious = run_of(tmp_path, threat_model="party")
    own = informed.splits.private[200:]
    assert torch.equal(curious.splits.public.images[200:], own.images)
    assert len(informed.splits.public) == 200
    assert (informed.truth.targets, curious.truth.targets) == (300, 200)
    released, again = (run.release.tensors["encodings"] for run in (informed, curious))
    assert torch.equal(released, again)


def test_one_partys_release_is_its_rows_of_the_union(tmp_path):
    asked = {"defense": "singmix[tau=1e-1]", "only": "privacy"}
    run, every = run_of(tmp_path, party=1, **asked), run_of(tmp_path, **asked)
    assert run.splits.sizes == (100,)
    assert run.truth.targets == 100
    whose = every.release.secrets[PARTY][0] == 1
    for name in ("encodings", "labels"):
        assert torch.equal(run.release.tensors[name][0], every.release.tensors[name][0][whose])
    assert run.release.secrets[PARTY].unique().tolist() == [1]
    own = run.release.secrets["sources"][0]
    assert torch.equal(own + 100, every.release.secrets["sources"][0][whose])


def test_ten_parties_teach_what_one_owner_with_as_many_images_does(tmp_path):
    """Within .02, of 2000 test images of which half are reported on."""
    asked = {"defense": "singmix[tau=1e-1]", "rounds": 4, "learner": "classmeans"}
    sizes = {"private_size": 1000, "public_size": 1000, "test_size": 2000}
    found = [
        run_of(tmp_path, only="utility", parties=parties, **asked, **sizes).record().utility
        for parties in (1, 10)
    ]
    one, ten = (utility.accuracy for utility in found)
    assert abs(one - ten) < 0.02
    assert one > 0.6


def test_known_images_stand_in_for_a_pool_that_is_too_small(tmp_path):
    """The threat model's positive control: what 140 images teach beats what 40 do."""
    asked = {"only": "privacy", "defense": "singmix[tau=1e-1]", "attack": "regression"}
    asked |= {"targets": 200, "public_size": 40}
    reached = {
        model: run_of(tmp_path, threat_model=model, **asked).record().privacy["snr_db"].mean
        for model in ("released", "party")
    }
    assert reached["party"] > reached["released"] + 0.3
