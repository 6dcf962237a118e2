"""What leaves of a release, and that no two of them share their randomness."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from released import LAW, key_in, ready, released
from safetensors.torch import load_file

from harness.api import CellFailed, IntegrityError, UsageError
from harness.api.errors import StoreError
from harness.packages.keys import OwnerKey, make_key, read_owner_key
from harness.packages.ledger import Ledger
from harness.packages.package import Package, write_package
from harness.packages.releasing import KEPT, Order
from harness.packages.statement import Statement
from harness.rng import KeyedStream
from harness.running.run import Observer


@pytest.fixture
def key(tmp_path: Path) -> OwnerKey:
    return key_in(tmp_path)


def test_a_key_is_drawn_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "clinic.key"
    old = os.umask(0)
    try:
        drawn = make_key(path)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_owner_key(path) == drawn
    assert len(drawn.secret) == 32
    with pytest.raises(UsageError, match="nothing is written over a key"):
        make_key(path)
    assert read_owner_key(path) == drawn
    path.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        read_owner_key(path)
    (tmp_path / "short").write_bytes(b"1" * 31)
    with pytest.raises(UsageError, match="is no key"):
        read_owner_key(tmp_path / "short")


def test_a_package_holds_what_its_source_makes_and_says_no_secret(
    key: OwnerKey, tmp_path: Path
) -> None:
    pending = ready(key, rounds=3)
    out = tmp_path / "clinic.release"
    said = pending.write(out, Observer())
    tensors = load_file(out)
    held = pending.source.held()
    for round_ in range(3):
        assert torch.equal(tensors[f"encodings.{round_}"], held.images[round_])
        assert torch.equal(tensors[f"labels.{round_}"], held.labels[round_])
    with Package.open(out) as package:
        package.check()
        assert package.said == said
        images, labels = (torch.cat(each) for each in zip(*package.pieces(1), strict=True))
    assert torch.equal(images, held.images[1])
    assert torch.equal(labels, held.labels[1])
    text = said.text()
    assert not [secret for secret in (key.secret.hex(), "fashion", str(tmp_path)) if secret in text]
    assert key.secret not in out.read_bytes()


def test_two_releases_share_nothing_and_their_difference_tells_nothing(
    key: OwnerKey, tmp_path: Path
) -> None:
    """Under one key, at another tau: with streams of key and round alone, 102 dB were found."""
    laws = ("singmix[tau=1e-4,noise=gaussian]", "singmix[tau=1e-6,noise=gaussian]")
    pendings = [ready(key, defense=law, private_size=200) for law in laws]
    one, other = (p.source.held() for p in pendings)
    assert not torch.equal(one.secrets["sources"], other.secrets["sources"])
    assert not torch.equal(one.secrets["weights"], other.secrets["weights"])
    radius = [float(p.said.law.config["radius"] or 0) for p in pendings]
    # What an attacker does who supposes equal noise: r2 X1 - r1 X2 = (r2 - r1) mixtures.
    found = (radius[1] * one.images[0] - radius[0] * other.images[0]) / (radius[1] - radius[0])
    truth = _mixtures(pendings[0].source, one.secrets)
    assert _snr(truth, found) < 0
    # Its best multiple, over all rows, explains no more than numbers drawn anew.
    best = float((found * truth).sum() / found.square().sum())
    drawn = KeyedStream(b"chance").normal(*found.shape)
    chance = float((drawn * truth).sum() / drawn.square().sum())
    assert _snr(truth, best * found) < 0.05
    assert _snr(truth, chance * drawn) < 0.05


def test_the_difference_test_sees_noise_that_is_used_twice(key: OwnerKey) -> None:
    """Two laws on one stream: what the test above must not find."""
    pendings = [
        ready(key, defense=f"singmix[tau={tau},noise=gaussian]", private_size=100)
        for tau in ("1e-4", "1e-6")
    ]
    sources = [p.source for p in pendings]
    sources[1]._owner = sources[0]._owner
    one, other = (source.held() for source in sources)
    radius = [float(p.said.law.config["radius"] or 0) for p in pendings]
    found = (radius[1] * one.images[0] - radius[0] * other.images[0]) / (radius[1] - radius[0])
    assert _snr(_mixtures(sources[0], one.secrets), found) > 60


def _mixtures(source: object, secrets: object) -> torch.Tensor:
    private = source._private[:].images  # type: ignore[attr-defined]
    sources, weights = secrets["sources"][0], secrets["weights"][0]  # type: ignore[index]
    return (weights[:, :, None, None, None] * private[sources]).sum(1)


def _snr(truth: torch.Tensor, found: torch.Tensor) -> float:
    return float(10 * torch.log10(truth.square().sum() / (truth - found).square().sum()))


def test_a_release_is_made_again_byte_by_byte_and_never_otherwise(
    key: OwnerKey, tmp_path: Path
) -> None:
    said = released(key, tmp_path / "first")
    again = Order(again=said.release)
    released(key, tmp_path / "second", Order(again=said.release[:16]))
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert len(Ledger(key).entries()) == 1
    for other in ({"rounds": 2}, {"private_size": 59}, {"defense": LAW.replace("40", "41")}):
        with pytest.raises(UsageError, match="of other data or with other options"):
            ready(key, again, **other)
    with pytest.raises(UsageError, match=f"the party '{key.fingerprint}', and 'somebody' asks"):
        ready(key, Order(again=said.release, party="somebody"))
    with pytest.raises(UsageError, match="an id is drawn, never chosen"):
        ready(key, Order(again="0" * 64))


def test_what_came_later_does_not_change_a_release_that_is_made_again(
    key: OwnerKey, tmp_path: Path
) -> None:
    said = released(key, tmp_path / "first")
    waiting = ready(key)
    released(key, tmp_path / "later", rounds=4)
    released(key, tmp_path / "second", Order(again=said.release))
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    with pytest.raises(UsageError, match="released meanwhile"):
        waiting.write(tmp_path / "waiting", Observer())


def test_a_lost_ledger_repeats_no_noise(key: OwnerKey, tmp_path: Path) -> None:
    one = released(key, tmp_path / "one")
    Ledger(key).path.unlink()
    with pytest.raises(UsageError, match="--new-ledger begins another"):
        ready(key)
    assert not Ledger(key).exists
    anew = Order(new_ledger=True)
    other = released(key, tmp_path / "other", anew)
    assert other.promise.rounds == 1
    with pytest.raises(UsageError, match="leave --new-ledger out"):
        ready(key, anew)
    assert one.release != other.release
    assert set(one.hashes.values()).isdisjoint(other.hashes.values())
    with pytest.raises(UsageError, match="an id is drawn"):
        ready(key, Order(again=one.release))


def test_rounds_add_up_over_releases_of_the_same_images(key: OwnerKey, tmp_path: Path) -> None:
    first = released(key, tmp_path / "first", rounds=2)
    more = ready(key, rounds=7)
    assert more.said.promise.rounds == 9
    mu = [p.promise.ceilings["dp"].quantities["mu"].value for p in (first, more.said)]
    assert mu[1] == pytest.approx(mu[0] * np.sqrt(9 / 2))
    assert more.entry.mu == pytest.approx(mu[0] * np.sqrt(7 / 2))
    assert any("in 2 rounds at most" in note for note in more.notes)
    alone = ready(key_in(tmp_path, "nobody"), rounds=9)
    assert more.said.promise.ceilings["dp"] == alone.said.promise.ceilings["dp"]
    # By another law what was told adds up, and nothing else is proven of both.
    other = {"defense": LAW.replace("40", "80"), "private_size": 300}
    told = ready(key, **other).found.ceilings
    alone = ready(key_in(tmp_path, "else"), **other)
    own = alone.found.ceilings["dp"].quantities["mu"].value
    assert told["dp"].quantities["mu"].value == pytest.approx(np.hypot(own, mu[0]))
    assert "other laws" in told["exchangeable"].reason


def test_other_numbers_of_images_are_no_more_rounds_of_a_release(
    key: OwnerKey, tmp_path: Path
) -> None:
    """How often an image is drawn depends on them; what noise tells adds up all the same."""
    first = released(key, tmp_path / "first").promise.ceilings["dp"].quantities["mu"].value
    law = {"private_size": 30, "rounds": 2}
    alone = ready(key_in(tmp_path, "else"), **law)
    assert alone.entry.law != Ledger(key).entries()[0].law
    assert alone.said.law == ready(key).said.law
    own = alone.found.ceilings["dp"].quantities["mu"].value
    told = ready(key, **law).found.ceilings
    assert told["dp"].quantities["mu"].value == pytest.approx(np.hypot(own, first))
    assert told["exchangeable"].reason


def test_another_scale_is_no_more_rounds_of_a_release(key: OwnerKey, tmp_path: Path) -> None:
    """One deviation five times the other: the same noise hides a fifth of what it hid."""
    theirs = ready(key_in(tmp_path, "else")).said
    std = tuple(each / 5 for each in theirs.preprocessing.std)
    steps = theirs.preprocessing.model_copy(update={"std": std})
    like = Order(like=theirs.model_copy(update={"preprocessing": steps}))
    first = released(key, tmp_path / "first").promise.ceilings["dp"].quantities["mu"].value
    own = ready(key_in(tmp_path, "alone"), like).entry.mu
    assert own == pytest.approx(5 * first)
    both = ready(key, like).found.ceilings["dp"].quantities["mu"].value
    assert both == pytest.approx(np.hypot(own, first))


def test_what_was_measured_on_the_images_proves_nothing_the_second_time(
    key: OwnerKey, tmp_path: Path
) -> None:
    """Neither taken from the own package, nor given by hand."""
    said = released(key, tmp_path / "first", defense="singmix[tau=1e-2,noise=gaussian]")
    with pytest.raises(UsageError, match="nothing was proven of it"):
        ready(key, Order(like=said))
    by_hand = f"singmix[tau=1e-2,noise=gaussian,radius={said.law.config['radius']}]"
    again = ready(key, defense=by_hand)
    assert not again.found.proven
    assert not any("ceilings count them" in note for note in again.notes)
    proven = released(key_in(tmp_path, "else"), tmp_path / "proven")
    assert ready(key_in(tmp_path, "third"), Order(like=proven)).found.proven


def test_a_scale_under_which_noise_vanishes_is_refused(key: OwnerKey, tmp_path: Path) -> None:
    said = ready(key_in(tmp_path, "stranger")).said
    for changed in ({"std": (1e-6,)}, {"std": (10.0,)}, {"low": -5.0}):
        steps = said.preprocessing.model_copy(update=changed)
        with pytest.raises(UsageError, match=r"standardises by|values between"):
            ready(key, Order(like=said.model_copy(update={"preprocessing": steps})))


def test_images_that_were_in_no_release_are_counted_apart(key: OwnerKey, tmp_path: Path) -> None:
    released(key, tmp_path / "first", part=(1, 2), rounds=3)
    assert ready(key, part=(2, 2)).history.rounds == 0
    assert ready(key).history.rounds == 3


def test_a_ledger_names_no_image_and_notices_changed_lines(key: OwnerKey, tmp_path: Path) -> None:
    for name in ("one", "two"):
        released(key, tmp_path / name)
    ledger = Ledger(key)
    one, two = ledger.entries()
    assert one.images == two.images
    stranger = ready(key_in(tmp_path, "other"))
    assert stranger.entry.images != one.images
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole + b'{"release": "cut o')
    assert ledger.entries() == (one, two)
    ledger.path.write_bytes(whole.replace(b'"rounds":1', b'"rounds":2', 1))
    with pytest.raises(IntegrityError, match="Line 2"):
        ledger.entries()
    ledger.path.write_bytes(b"{}\n" + whole)
    with pytest.raises(IntegrityError, match="Line 1"):
        ledger.entries()
    ledger.path.write_bytes(b"")
    with pytest.raises(IntegrityError, match="Line 1"):
        ledger.entries()


@pytest.mark.parametrize("change", [(b'"rounds":1', b'"rounds":2'), (b'"mu":', b'"mu":1')])
def test_a_change_of_the_last_line_is_found(
    key: OwnerKey, tmp_path: Path, change: tuple[bytes, bytes]
) -> None:
    """No line follows it that would hold its hash: what authenticates it is the key."""
    released(key, tmp_path / "one")
    ledger = Ledger(key)
    *above, last = ledger.path.read_bytes().splitlines(keepends=True)
    assert change[0] in last
    ledger.path.write_bytes(b"".join([*above, last.replace(*change)]))
    with pytest.raises(IntegrityError, match="Line 2"):
        ready(key)


def test_a_key_finds_its_own_ledger(key: OwnerKey, tmp_path: Path) -> None:
    """Whatever link leads to it, and no ledger of another key."""
    released(key, tmp_path / "one")
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.key"
    link.symlink_to(key.path)
    assert ready(read_owner_key(link)).history.rounds == 1
    other = key_in(tmp_path, "other")
    Ledger(other).path.write_bytes(Ledger(key).path.read_bytes())
    with pytest.raises(IntegrityError, match="the ledger of another key"):
        ready(other)
    with pytest.raises(UsageError, match="is there already"):
        Ledger(key).begin()
    (tmp_path / "new.key.ledger").write_text("")
    with pytest.raises(UsageError, match="is there already"):
        key_in(tmp_path, "new")
    assert not (tmp_path / "new.key").exists()


def test_a_release_that_is_cut_short_leaves_no_file_and_stands_in_the_ledger(
    key: OwnerKey, tmp_path: Path
) -> None:
    pending = ready(key, rounds=2)
    out = tmp_path / "clinic.release"

    class Stopped(Exception):
        pass

    def stop(done: int, total: int, note: str = "") -> None:
        raise Stopped

    with pending.ledger.held():
        pending.ledger.add(pending.entry)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(Stopped):
        write_package(out, pending.said, pending.source, stop)
    assert sorted(tmp_path.iterdir()) == before
    assert ready(key).history.rounds == 2


def test_a_full_disk_is_noticed_before_anything_is_made(key: OwnerKey, tmp_path: Path) -> None:
    pending = ready(key)
    huge = pending.said.model_copy(update={"rounds": 10_000, "rows": 2**30})
    with pytest.raises(StoreError, match="ask for fewer rounds"):
        write_package(tmp_path / "huge", huge, pending.source)
    (tmp_path / "there").write_text("mine")
    with pytest.raises(UsageError, match="nothing is written over a release"):
        pending.write(tmp_path / "there", Observer())
    assert (tmp_path / "there").read_text() == "mine"


def test_what_was_estimated_on_the_images_stays_with_their_owner(
    key: OwnerKey, tmp_path: Path
) -> None:
    pending = ready(key, private_size=300)
    assert pending.found.ceilings["exchangeable"].quantities["pooled_snr_db"].interval
    assert pending.said.promise.ceilings["exchangeable"].reason == KEPT
    loud = ready(key, private_size=300, defense=LAW.replace("40", "400"))
    assert loud.found.proven
    assert not loud.doubts


def test_what_a_defense_proves_of_itself_counts_all_rounds(key: OwnerKey, tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    law = {"defense": "dpmix[epsilon=4,norm=30,rounds=2]", "rounds": 2}
    one = released(key, tmp_path / "one", **law)
    more = ready(key, **law)
    spent = [p.promise.ceilings["dpmix"].quantities["epsilon"].value for p in (one, more.said)]
    assert spent[0] == pytest.approx(4, abs=0.1)
    assert spent[1] > 1.2 * spent[0]
    assert not any("nothing bounds" in doubt for doubt in more.doubts)
    fewer = ready(key, private_size=30, **law)
    other = ready(key, rounds=1, defense="dpmix[epsilon=2,norm=30]")
    for pending in (fewer, other):  # the rounds before were drawn at another rate, or noise
        assert "other laws" in pending.said.promise.ceilings["dpmix"].reason


def test_where_nothing_is_proven_or_images_were_named_the_owner_is_asked(key: OwnerKey) -> None:
    sphere = ready(key, defense="singmix[tau=1e-2]")
    assert any("nothing bounds what leaks" in doubt for doubt in sphere.doubts)
    assert any("images are told among candidates" in doubt for doubt in sphere.doubts)
    weak = ready(key, defense="singmix[tau=1e-4,noise=gaussian,radius=40]")
    assert any("an epsilon of" in doubt for doubt in weak.doubts)
    boundless = ready(key, defense="singmix[tau=1e-4,noise=gaussian,radius=1e-3]")
    assert any("its epsilon is infinite" in doubt for doubt in boundless.doubts)
    many = {"private_size": 300, "rounds": 3}
    named = ready(key, **{**many, "defense": "singmix[tau=1e-2,noise=gaussian,radius=40]"})
    assert any("of images are told among candidates" in doubt for doubt in named.doubts)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"defense": "gradprune"}, "works on gradient"),
        ({"rounds": 20_000}, "--rounds 20000: a package holds"),
        ({"defense": "dpmix"}, "--public names some"),
        ({"defense": "none"}, "would release the images as they are"),
        ({"defense": "mixup+gradprune"}, "works on gradient"),
        ({"part": (3, 2)}, "--part 3/2"),
        ({"private_size": 1}, "release two at least"),
        ({"space": "resnet50"}, "--public"),
    ],
)
def test_what_cannot_be_released_is_said(
    key: OwnerKey, options: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        ready(key, **options)


@pytest.mark.parametrize("party", ["\x1b[31mred", "x" * 400, " "])
def test_a_party_has_a_name_that_can_be_printed(key: OwnerKey, party: str) -> None:
    """Said before any image is looked for."""
    with pytest.raises(UsageError, match="A package cannot say --party") as refused:
        ready(key, Order(party=party), dataset="folder[path=nowhere]")
    assert str(refused.value).isprintable()


def test_classes_have_names_that_can_be_printed(key: OwnerKey, tmp_path: Path) -> None:
    for name in ("cat", "two\nlines"):
        (tmp_path / "own" / name).mkdir(parents=True)
        for number in range(4):
            grey = np.full((8, 8), 40 * number, np.uint8)
            Image.fromarray(grey).save(tmp_path / "own" / name / f"{number}.png")
    folder = {"dataset": f"folder[path={tmp_path / 'own'},size=8]", "private_size": None}
    with pytest.raises(UsageError, match="A package cannot say these class names"):
        ready(key, **folder)


def test_releases_hand_out_no_seed(key: OwnerKey) -> None:
    stream = key.stream("0" * 64, "clinic", "1" * 64).stream(round=1)
    stream.normal(3)
    for draw in (stream.seed, stream.generator, stream.stream(block=2).generator):
        with pytest.raises(CellFailed, match="not cryptographic"):
            draw()
    other = key.stream("0" * 64, "clinic", "2" * 64).stream(round=1)
    assert stream.key != other.key


def test_another_party_releases_alike(key: OwnerKey, tmp_path: Path) -> None:
    said = released(key, tmp_path / "one", defense="singmix[tau=1e-2,noise=gaussian]", part=(1, 2))
    other = key_in(tmp_path, "other")
    like = ready(other, Order(like=said), part=(2, 2))
    assert like.said.law == said.law
    assert like.said.preprocessing == said.preprocessing
    parts = [ready(other, part=(part, 2)).entry.tags for part in (1, 2)]
    assert np.array_equal(like.entry.tags, parts[1])
    assert not np.isin(like.entry.tags, parts[0]).any()
    assert not any("was measured" in note for note in like.notes)
    with pytest.raises(UsageError, match="--like takes the space"):
        ready(other, Order(like=said), space="pixels")
    assert like.said.release != said.release
    assert Statement.model_validate_json(like.said.text()) == like.said
