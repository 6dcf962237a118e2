"""Challenges: made, attacked, scored, and tampered with."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from skimage.metrics import structural_similarity
from strangers import Machine

from harness.api import HarnessError, IntegrityError, UsageError
from harness.asking.registry import registry
from harness.challenge.making import Places, make
from harness.challenge.opening import Truth, checks, open_truth, write_truth
from harness.challenge.pack import Description, read_pack
from harness.challenge.public import public_splits
from harness.challenge.scoring import l2, placed, read_submission, score
from harness.packages.keys import OwnerKey
from harness.packages.package import Package
from harness.running.run import Observer

N, ROUNDS = 20, 3
ASKED = {"dataset": "fashion-mini", "private_size": N, "public_size": 300, "rounds": ROUNDS}
TINY = [f"--{name.replace('_', '-')}={value}" for name, value in ASKED.items()]
MIX = "instahide[k=2]"
CROSS = "instahide[preset=challenge,k=4]"
KEY = OwnerKey(Path(), b"a key of thirty-two bytes in all")
PACK_FILES = ("README.txt", "challenge.json", "challenge.release")


@dataclass(frozen=True)
class Challenge:
    """Where one lies, and what it hides."""

    pack: Path
    truth: Path

    @property
    def tensors(self):
        return load_file(self.truth)

    def copied(self, to):
        """The same somewhere else, to be spoilt."""
        shutil.copytree(self.pack, to / "pack")
        shutil.copy(self.truth, to / "truth")
        return Challenge(to / "pack", to / "truth")

    def scored(self, **tensors):
        """What these tensors score when they are handed in."""
        handed_in = self.truth.with_name("submission")
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, handed_in)
        return score(self.pack, self.truth, handed_in)


def build(folder, defense, key=KEY, **more):
    places = Places(folder / "pack", folder / "truth")
    make(places, key, Observer(), **{"defense": defense, **ASKED, **more})
    return Challenge(places.pack, places.truth)


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Two private images in each encoding, and nothing else."""
    return build(tmp_path_factory.mktemp("mixed"), MIX)


@pytest.fixture(scope="module")
def cross(tmp_path_factory):
    """The challenge's own kind: two private images, augmented, and public patches."""
    return build(tmp_path_factory.mktemp("cross"), CROSS)


@pytest.fixture
def spoilt(mixed, tmp_path):
    return mixed.copied(tmp_path)


def test_the_truth_itself_scores_all_there_is(mixed):
    images = mixed.tensors["images"]
    found = mixed.scored(images=images[torch.randperm(N)])
    assert (found.targets, found.found, found.matched, found.encodings) == (N, N, True, 60)
    assert found.measures["max_ssim"].value == pytest.approx(1)
    assert found.measures["min_l2"].value == 0
    assert found.privacy["ssim"].mean == pytest.approx(1)
    assert found.privacy["l2"].mean == 0
    assert found.privacy["l2"].gain_ci[0] > 0
    assert found.notes == ()


def test_decryptions_are_scored_by_the_challenges_rules(cross):
    truth = cross.tensors
    images, sources = truth["images"], truth["sources"]
    decryptions = torch.rand(ROUNDS, N, *images.shape[1:], generator=torch.manual_seed(0))
    found = cross.scored(decryptions=decryptions)
    ssims, distances = [], []
    for decryption, (a, b, *public) in zip(
        decryptions.flatten(0, 1), sources.flatten(0, 1), strict=True
    ):
        assert min(public) >= N
        pairs = [(decryption[0].numpy(), images[i, 0].numpy()) for i in (a, b)]
        ssims.append(
            [
                structural_similarity(
                    *pair, data_range=1, gaussian_weights=True, use_sample_covariance=False
                )
                for pair in pairs
            ]
        )
        distances.append([np.mean((2 * x - 2 * y) ** 2) for x, y in pairs])
    wanted = {
        "max_ssim": np.max(ssims, 1),
        "mean_ssim": np.mean(ssims, 1),
        "min_l2": np.min(distances, 1),
        "max_l2": np.max(distances, 1),
        "mean_l2": np.mean(distances, 1),
    }
    assert {n: m.value for n, m in found.measures.items()} == pytest.approx(
        {name: values.mean() for name, values in wanted.items()}, rel=1e-4
    )
    assert found.privacy == {}


def test_of_images_the_primarys_decrypts_an_encoding(mixed):
    truth = mixed.tensors
    images = torch.rand(truth["images"].shape, generator=torch.manual_seed(1))
    named = mixed.scored(images=images, targets=torch.arange(N))
    spread = mixed.scored(decryptions=images[truth["sources"][..., 0]])
    for name, measure in named.measures.items():
        assert measure.value == pytest.approx(spread.measures[name].value)


def test_rows_name_the_image_that_is_primary_in_them(mixed):
    truth = mixed.tensors
    rows = torch.tensor([4, 11, 2])
    found = mixed.scored(images=truth["images"][truth["sources"].flatten(0, 1)[rows, 0]], rows=rows)
    assert (found.found, found.matched) == (3, False)
    assert found.privacy["l2"].worst == 0


def test_l2_is_of_images_between_minus_one_and_one():
    black, white = torch.zeros(2, 1, 4, 4), torch.ones(2, 1, 4, 4)
    assert l2(black, white).tolist() == [4, 4]


def test_what_was_not_submitted_is_the_mean_colour(mixed):
    none = mixed.scored(images=torch.full((1, 1, 28, 28), 0.286))
    assert none.privacy["l2"].mean == pytest.approx(none.privacy["l2"].nulls["mean_colour"])
    assert none.notes == ("19 of 20 private images were not submitted: mean colour instead",)


def test_without_the_dataset_the_only_null_is_the_mean_colour(mixed, monkeypatch):
    monkeypatch.setitem(registry().entries, "datasets", {})
    found = mixed.scored(images=mixed.tensors["images"])
    assert set(found.measures["max_ssim"].nulls) == {"mean_colour"}
    assert "for want of public images: Unknown dataset 'fashion-mini'" in found.notes[0]


def test_a_pack_tells_what_can_be_checked_of_it(mixed, cross, tmp_path):
    plain = build(tmp_path, "mixup[k=3]")
    held = [read_pack(each.pack).described.checks for each in (mixed, cross, plain)]
    assert [(c.labels, c.encodings) for c in held] == [
        (True, "absolute values"),
        (True, "no"),
        (True, "values"),
    ]


def test_nothing_secret_is_in_a_pack(cross, tmp_path):
    again = build(tmp_path, CROSS, key=None)
    assert set(load_file(cross.pack / "challenge.release")) == {
        f"{name}.{round_}" for name in ("encodings", "labels") for round_ in range(ROUNDS)
    }
    assert sorted(path.name for path in cross.pack.iterdir()) == sorted(PACK_FILES)
    published = b"".join((cross.pack / name).read_bytes() for name in PACK_FILES)
    for name, secret in cross.tensors.items():
        if name not in ("classes", "pack"):
            assert secret.flatten()[:32].numpy().tobytes() not in published
    assert KEY.secret not in published
    drawn = [{image.numpy().tobytes() for image in c.tensors["images"]} for c in (cross, again)]
    assert len(drawn[0] & drawn[1]) < N / 2, "one seed, and yet other images are private"
    public = public_splits(read_pack(cross.pack)).public.unit().images
    assert not drawn[0] & {image.numpy().tobytes() for image in public}
    assert cross.truth.stat().st_mode & 0o077 == 0
    assert again.pack.joinpath("challenge.release").stat().st_mode & 0o444 == 0o444


def test_one_key_makes_one_challenge(mixed, tmp_path):
    again = build(tmp_path, MIX)
    assert again.truth.read_bytes() == mixed.truth.read_bytes()
    for name in PACK_FILES:
        assert (again.pack / name).read_bytes() == (mixed.pack / name).read_bytes()
    assert KEY.secret not in again.truth.read_bytes()


def test_other_images_of_one_key_share_no_secret(tmp_path):
    """Where they lay before, under the same options."""
    rng, built = np.random.default_rng(0), []
    for name in ("one", "other"):
        for number in range(48):
            image = rng.integers(0, 256, (8, 8), dtype=np.uint8)
            path = tmp_path / "images" / f"class {number % 2}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
        (tmp_path / name).mkdir()
        own = {"dataset": f"folder[path={tmp_path / 'images'},size=8]", "private_size": 10}
        built.append(build(tmp_path / name, MIX, **own))
    masks, weights = ([c.tensors[n] for c in built] for n in ("extra.masks", "weights"))
    assert not torch.equal(*masks)
    assert not torch.equal(*weights)
    said = [read_pack(each.pack) for each in built]
    assert said[0].said.release != said[1].said.release
    assert str(tmp_path).encode() not in (built[0].pack / "challenge.json").read_bytes()
    with pytest.raises(UsageError, match="images are the owner's own"):
        public_splits(said[0])


def test_two_challenges_of_one_key_share_no_secret(mixed, tmp_path):
    other = build(tmp_path, "instahide[k=2,max_weight=0.7]").tensors
    own = mixed.tensors
    for secret in ("sources", "extra.masks", "salt"):
        assert not torch.equal(own[secret], other[secret])


def test_the_commitment_is_the_hash_of_the_truth(mixed):
    said = json.loads((mixed.pack / "challenge.json").read_text())
    assert said["commitment"] == sha256(mixed.truth.read_bytes()).hexdigest()
    assert len(set(mixed.tensors["salt"].tolist())) > 16


def sealed(challenge, **changed):
    """Change what a pack says, and its id with it, as whoever wants to deceive would."""
    path = challenge.pack / "challenge.json"
    said = {**json.loads(path.read_text()), **changed}
    forged = Description.model_validate(said)
    path.write_text(forged.committed(forged.commitment).model_dump_json())


def repackaged(challenge, change=dict, **changed):
    """Change a package's arrays, or what it says, and seal it; gives the seal."""
    path = challenge.pack / "challenge.release"
    with Package.open(path) as package:
        said = package.said.model_copy(update=changed)
    tensors = change(load_file(path))
    parts = {p.name: tensors[p.name].numpy().tobytes() for p in said.places()}
    said = said.sealed({name: sha256(data).hexdigest() for name, data in parts.items()})
    path.write_bytes(said.header() + b"".join(parts.values()))
    return said.seal


def flip(path, place=-5):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def relabel(challenge):
    return repackaged(challenge, lambda t: {**t, "labels.1": t["labels.1"].roll(1, 1)})


def infinite(tensors):
    tensors["encodings.0"][0] = torch.inf
    return tensors


def link(challenge):
    path = challenge.pack / "challenge.release"
    path.symlink_to(path.rename(challenge.pack / "elsewhere"))


def edit(challenge, old, new):
    path = challenge.pack / "challenge.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


BROKEN = {
    "a byte of the encodings": lambda c: flip(c.pack / "challenge.release"),
    "labels": relabel,
    "labels, sealed anew": lambda c: sealed(c, release=relabel(c)),
    "what the package says, sealed anew": lambda c: sealed(c, release=repackaged(c, party="b")),
    "no numbers, sealed anew": lambda c: sealed(c, release=repackaged(c, infinite)),
    "the text": lambda c: flip(c.pack / "README.txt"),
    "a number": lambda c: edit(c, '"seed": 0', '"seed": 4'),
    "a number, sealed anew": lambda c: sealed(c, public={**described(c)["public"], "seed": 5}),
    "the commitment": lambda c: edit(c, described(c)["commitment"], "0" * 64),
    "the commitment, sealed anew": lambda c: sealed(c, commitment="0" * 64),
    "the truth": lambda c: flip(c.truth),
    "another truth": lambda c: shutil.copy(c.pack / "challenge.release", c.truth),
}
BAD = {
    "no folder": lambda c: shutil.rmtree(c.pack),
    "no description": lambda c: (c.pack / "challenge.json").unlink(),
    "no package": lambda c: (c.pack / "challenge.release").unlink(),
    "a link to a package": link,
    "half a package": lambda c: os.truncate(c.pack / "challenge.release", 20_000),
    "no safetensors": lambda c: (c.pack / "challenge.release").write_text("nothing"),
    "another header": lambda c: flip(c.pack / "challenge.release", 12),
    "no end of words": lambda c: os.truncate(c.pack / "challenge.json", 10**11),
    "no text": lambda c: (c.pack / "README.txt").unlink(),
    "no JSON": lambda c: edit(c, "{", "<"),
    "another version": lambda c: edit(c, '"version": 1,', '"version": 2,'),
    "a field too many": lambda c: edit(c, '"version": 1,', '"version": 1, "bonus": 1,'),
    "no number": lambda c: edit(c, '"seed": 0', '"seed": Infinity'),
    "no truth": lambda c: c.truth.unlink(),
    "a folder for a truth": lambda c: (c.truth.unlink(), c.truth.mkdir()),
}


def described(challenge):
    return json.loads((challenge.pack / "challenge.json").read_text())


@pytest.mark.parametrize("spoil", BROKEN.values(), ids=BROKEN)
def test_what_was_changed_is_refused(spoilt, spoil):
    spoil(spoilt)
    with pytest.raises(IntegrityError):
        spoilt.scored(images=torch.zeros(1, 1, 28, 28))


@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD)
def test_what_is_no_pack_is_refused(spoilt, spoil):
    spoil(spoilt)
    with pytest.raises(UsageError):
        spoilt.scored(images=torch.zeros(1, 1, 28, 28))


def test_an_owner_cannot_commit_to_labels_of_other_images(mixed, tmp_path):
    lying = mixed.copied(tmp_path)
    honest = open_truth(lying.truth, read_pack(lying.pack))
    swapped = Truth(
        honest.images, honest.classes.roll(1), honest.weights, honest.sources, honest.extra
    )
    said = read_pack(lying.pack).described
    commitment = write_truth(lying.truth, swapped, said, b"0" * 32)
    (lying.pack / "challenge.json").write_text(said.committed(commitment).model_dump_json())
    assert not checks(swapped, read_pack(lying.pack)).labels
    with pytest.raises(IntegrityError, match="labels are not those of its mixtures"):
        lying.scored(images=honest.images)


IMAGES = torch.full((4, 1, 28, 28), 0.5)
REFUSED = {
    "nothing": ({}, "holds nothing"),
    "other names": ({"pictures": IMAGES}, "holds pictures; wanted `images`"),
    "both kinds": ({"images": IMAGES, "decryptions": IMAGES / 2}, "`decryptions` alone"),
    "both names": (
        {"images": IMAGES, "rows": torch.arange(4), "targets": torch.arange(4)},
        "with `rows` or `targets`",
    ),
    "none": ({"images": IMAGES[:0]}, "holds 0 images"),
    "too many": ({"images": IMAGES.repeat(6, 1, 1, 1)}, "24 images; there are 20 private"),
    "another size": ({"images": IMAGES[..., :27]}, r"\[4, 1, 28, 27\]; wanted \[m, 1, 28, 28\]"),
    "too few": ({"decryptions": IMAGES}, r"wanted \[3, 20, 1, 28, 28\]"),
    "bytes": ({"images": IMAGES.byte()}, "are uint8; wanted floats"),
    "not a number": ({"images": IMAGES.log() * 0 / 0}, "NaN or infinite values in 4 places"),
    "standardised": ({"images": IMAGES * 8 - 4.1}, "go from -0.1 to -0.1; wanted 0 to 1"),
    "one of two": ({"images": IMAGES, "targets": torch.zeros(4).long()}, "private image 0"),
    "no such row": ({"images": IMAGES, "rows": torch.arange(4) + 57}, "count from 0 to 59"),
    "no numbers": ({"images": IMAGES, "rows": torch.rand(4)}, "wanted 4 whole numbers"),
}


@pytest.mark.parametrize(("tensors", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_submission_is_refused(mixed, tensors, message):
    with pytest.raises(UsageError, match=message):
        mixed.scored(**tensors)


def places(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "truth").touch()
    pack, truth = tmp_path / "pack", tmp_path / "other"
    return {
        "in the pack": Places(pack, pack / "truth"),
        "there already": Places(pack, tmp_path / "truth"),
        "no empty folder": Places(tmp_path / "full", truth),
        "is no empty folder": Places(tmp_path / "truth", truth),
        "no folder": Places(tmp_path / "nowhere" / "pack", truth),
        "below the file": Places(truth / "pack", truth),
    }


def test_nothing_is_written_over_or_half(tmp_path):
    for message, where in places(tmp_path).items():
        with pytest.raises(UsageError, match=message):
            make(where, KEY, Observer(), defense=MIX, **ASKED)
    good = Places(tmp_path / "pack", tmp_path / "other")
    for wrong in ({"private_size": 10**6}, {"dataset": "synthetic-gaussian"}, {"defense": "dpsgd"}):
        with pytest.raises(UsageError):
            make(good, KEY, Observer(), **{"defense": MIX, **ASKED, **wrong})
    with pytest.raises(HarnessError, match="needs at least 6 of them"):
        make(good, KEY, Observer(), **{**ASKED, "defense": "mixup[k=6]", "private_size": 5})
    assert {path.name for path in tmp_path.iterdir()} == {"full", "truth"}


MUTATION = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=3
)
PATIENT = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    database=None,
)


def mutated(data, changes, cut):
    """Some bytes changed, most of them in the beginning, and the end cut off."""
    spoilt = bytearray(data)
    for place, value in changes:
        spoilt[int(place**4 * len(spoilt))] = value
    return bytes(spoilt[: len(spoilt) - int(cut * len(spoilt))])


@PATIENT
@given(
    name=st.sampled_from(["pack/challenge.json", "pack/challenge.release", "truth", "answer"]),
    changes=MUTATION,
    cut=st.sampled_from([0, 0, 0, 0.01, 0.5, 1]),
)
def test_whatever_is_changed_there_is_an_answer_or_a_sentence(mixed, tmp_path, name, changes, cut):
    """Never another error, such as one that a parser raises."""
    if not (tmp_path / "pack").exists():
        mixed.copied(tmp_path)
        save_file({"images": mixed.tensors["images"]}, tmp_path / "answer")
    path = tmp_path / name
    whole = path.read_bytes()
    path.write_bytes(mutated(whole, changes, cut))
    with suppress(UsageError, IntegrityError):
        pack = read_pack(tmp_path / "pack")
        truth = open_truth(tmp_path / "truth", pack)
        placed(read_submission(tmp_path / "answer", pack.said), truth)
    path.write_bytes(whole)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


@PATIENT
@given(name=st.sampled_from(sorted(Description.model_fields)), value=JSON)
def test_whatever_a_pack_says_there_is_an_answer_or_a_sentence(mixed, tmp_path, name, value):
    if not (tmp_path / "pack").exists():
        mixed.copied(tmp_path)
    said = {**described(mixed), name: value}
    (tmp_path / "pack" / "challenge.json").write_text(json.dumps(said))
    with suppress(UsageError, IntegrityError):
        read_pack(tmp_path / "pack")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A challenge as its owner, a stranger and the judge go through it."""
    work = tmp_path_factory.mktemp("work")
    pack, truth, found, key = (str(work / name) for name in ("pack", "truth", "found", "key"))
    commands = {
        "keygen": ["keygen", key],
        "make": ["make", *TINY, f"--defense={MIX}", f"--out={pack}", f"--truth={truth}"],
        "twice": ["make", *TINY, f"--defense={MIX}", f"--out={pack}", f"--truth={truth}2"],
        "solve": ["solve", pack, "--attack=identity", f"--out={found}", "--threads=1"],
        "score": ["score", pack, f"--truth={truth}", f"--submission={found}", "--json"],
        "table": ["score", pack, f"--truth={truth}", f"--submission={found}"],
        "wrong": ["score", pack, f"--truth={found}", f"--submission={found}"],
        "unable": ["solve", pack, "--attack=linear", f"--out={found}2"],
        "many": ["solve", pack, "--attack=suite", f"--out={found}2"],
        "keyed": ["make", *TINY, f"--owner-key={key}", f"--out={pack}3", f"--truth={truth}3"],
        "inspect": ["inspect", f"{pack}/challenge.release"],
    }
    machine = Machine(tmp_path_factory.mktemp("cache"))
    plain = {"keygen", "inspect"}
    series = [[*(["challenge"] * (n not in plain)), *command] for n, command in commands.items()]
    ran = dict(zip(commands, machine.series(series), strict=True))
    assert machine.left_behind() == []
    kept = {"pack", "truth", "found", "pack3", "truth3", "key", "key.ledger"}
    assert {path.name for path in work.iterdir()} == kept
    return ran


def test_a_challenge_is_made_solved_and_scored(ran):
    assert [ran[name].code for name in ("make", "solve", "score", "table", "keyed", "inspect")] == [
        0
    ] * 6, ran
    assert "key         drawn for this challenge and forgotten" in ran["make"].out
    found = ran["score"].json
    assert (found["kind"], found["found"], found["matched"]) == ("images", N, False)
    assert "drawn for this challenge" not in ran["keyed"].out
    assert "3 rounds of 20 encodings 1x28x28" in ran["inspect"].out
    assert "nothing is promised of what leaks" in ran["inspect"].out
    assert "max_ssim" in ran["table"].out
    assert "class_mean" in ran["table"].out


def test_refusals_have_their_exit_codes(ran):
    assert {name: ran[name].code for name in ("twice", "wrong", "unable", "many")} == {
        "twice": 2,
        "wrong": 3,
        "unable": 1,
        "many": 2,
    }
    for name in ("twice", "wrong", "unable", "many"):
        assert ran[name].out == ""
        assert ran[name].err.startswith("Error: ")
        assert ran[name].err.count("\n") == 1
    assert "a pack does not hold what 'linear' needs" in ran["unable"].err
    assert "--threat-model" not in ran["unable"].err
