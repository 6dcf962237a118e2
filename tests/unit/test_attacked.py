"""Packages under attack: with the owner's key as in any evaluation, without it as a server can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from released import LAW, key_in, ready, released
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from harness.api import IntegrityError, NotApplicable, Reconstruction, UsageError
from harness.evaluation import evaluate
from harness.packages.attacked import Received, Truth, attack_package, judgeable
from harness.packages.keys import OwnerKey
from harness.packages.package import Package, write_package
from harness.packages.releasing import Order
from harness.running.attack import Answer
from harness.running.run import Observer
from harness.store.record import RunRecord

SMALL: dict[str, Any] = {
    **{"private_size": 60, "public_size": 300, "test_size": 100, "threads": 1},
    **{"only": "privacy", "metrics": "mse"},
}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def key(tmp_path: Path) -> OwnerKey:
    return key_in(tmp_path)


def attacked(
    path: Path, key: OwnerKey | None = None, part: tuple[int, int] | None = None, **options: Any
) -> RunRecord:
    """A small attack on a package of `fashion-mini`."""
    truth = Truth(options.pop("truth", "fashion-mini"), part)
    asked = {"attack": "identity", **SMALL, **options}
    return attack_package(path, truth, key, Observer(), **asked)


def mean(record: RunRecord, metric: str = "mse") -> float:
    found = record.privacy[metric].mean
    assert found is not None
    return found


def test_rows_are_named_with_the_key_and_matched_without(key: OwnerKey, tmp_path: Path) -> None:
    """`identity` shows rows of energy 1; its errors here are of the owner's own source."""
    pending = ready(key)
    said = pending.write(tmp_path / "a", Observer())
    held, scale = pending.source.held(), said.preprocessing.scale
    informed, plain = attacked(tmp_path / "a", key), attacked(tmp_path / "a")
    assert (informed.threat_model, plain.threat_model) == ("informed", "released")
    assert f"{said.release}, seal {said.seal}" in str(plain.seeds["owner_key"])
    assert plain.seeds["owner_key"] != informed.seeds["owner_key"]
    shown = held.images[0] / held.images[0].square().mean().sqrt()
    unit = [scale.restore(each).clamp(0, 1) for each in (shown, pending.source._private[:].images)]
    apart = _apart(*unit)
    rows, columns = linear_sum_assignment(apart.numpy())
    assert mean(plain) == pytest.approx(float(apart[rows, columns].mean()), rel=1e-3)
    named = apart[torch.arange(60), held.secrets["sources"][0, :, 0]]
    assert mean(informed) == pytest.approx(float(named.mean()), rel=1e-3)
    assert mean(plain) < mean(informed)


class Moved(Received):
    """What somebody else makes of a package: other bytes under the same id, sealed anew."""

    def pieces(self, round_: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Its rounds, a little brighter."""
        for encodings, labels in super().pieces(round_):
            yield encodings + 1e-3, labels


def _apart(images: Tensor, truth: Tensor) -> Tensor:
    """[m, n] mean squared differences."""
    distances = torch.cdist(images.flatten(1).double(), truth.flatten(1).double())
    return distances.square() / truth[0].numel()


def test_the_key_makes_again_what_an_informed_attack_takes(key: OwnerKey, tmp_path: Path) -> None:
    released(key, tmp_path / "a", rounds=2, defense="mixup[k=2]")
    record = attacked(tmp_path / "a", key, attack="lmmse", metrics="snr_db")
    assert {"weights", "sources"} <= set(record.channels_used)
    assert record.privacy["snr_db"].gain_ci is not None
    assert record.privacy["snr_db"].gain_ci[0] > 1
    assert attacked(tmp_path / "a", key, attack="lmmse", metrics="snr_db") == record


def test_two_parts_of_one_dataset_are_judged_apart(key: OwnerKey, tmp_path: Path) -> None:
    """All of their requests is alike, so what is stored of the one must not answer the other."""
    second = key_in(tmp_path, "second")
    first = released(key, tmp_path / "a", part=(1, 2))
    released(second, tmp_path / "b", Order(like=first), part=(2, 2))
    one, other = attacked(tmp_path / "a", key, (1, 2)), attacked(tmp_path / "b", second, (2, 2))
    assert one.request == other.request
    assert (one.splits["private"], other.splits["private"]) == (30, 30)
    nulls = [record.privacy["mse"].nulls for record in (one, other)]
    assert nulls[0] != nulls[1]
    whole = {"private_size": 30, "dataset": "fashion-mini", "defense": LAW, "attack": "identity"}
    assert evaluate(**{**SMALL, **whole}).id not in (one.id, other.id)


def test_utility_is_learned_from_what_left(key: OwnerKey, tmp_path: Path) -> None:
    released(key, tmp_path / "a", defense="mixup[k=2]")
    record = attacked(tmp_path / "a", only="utility", metrics=None, learner="ridge")
    assert record.utility is not None
    assert record.utility.reference_accuracy is not None
    assert 0.4 < record.utility.accuracy < record.utility.reference_accuracy + 0.1


@pytest.mark.parametrize("known", [True, False])
def test_ceilings_are_those_that_the_package_promises(
    key: OwnerKey, tmp_path: Path, known: bool
) -> None:
    promised = released(key, tmp_path / "a").promise.ceilings
    found = attacked(tmp_path / "a", key if known else None, ceiling=True).ceilings
    assert found["dp"].quantities == promised["dp"].quantities
    assert found["exchangeable"].reason == promised["exchangeable"].reason
    assert any("as the package says" in note for note in found["dp"].notes) != known


@pytest.mark.parametrize("known", [True, False])
def test_a_radius_of_the_images_themselves_proves_nothing_later(
    key: OwnerKey, tmp_path: Path, known: bool
) -> None:
    """In the package's law it is a number like others, which would have a ceiling."""
    said = released(key, tmp_path / "a", defense=LAW.replace(",radius=40", ""))
    found = attacked(tmp_path / "a", key if known else None, ceiling=True).ceilings
    assert found["dp"].reason == said.promise.ceilings["dp"].reason
    assert "measured on the private images" in found["dp"].reason


def test_a_key_is_held_against_its_ledger_and_the_bytes(key: OwnerKey, tmp_path: Path) -> None:
    path = tmp_path / "a"
    released(key, path)
    with pytest.raises(UsageError, match="has no release"):
        attacked(path, key_in(tmp_path, "stranger"))
    with pytest.raises(UsageError, match="is not the images that the package is of"):
        attacked(path, key, seed=1)
    with Package.open(path) as package:
        write_package(tmp_path / "b", package.said, Moved(package))
    with pytest.raises(UsageError, match="Round 1 of the package is not made again"):
        attacked(tmp_path / "b", key)
    data = bytearray(path.read_bytes())
    data[-5000] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="does not have the hash"):
        attacked(path)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "defense": ({"defense": "mixup"}, "--package decides on the law; leave --defense out"),
    "rounds": ({"rounds": 3}, "leave --rounds out"),
    "dataset": ({"dataset": "fashion-mini"}, "--truth names the images"),
    "channels": ({"threat_model": "informed"}, "ChannelNotGranted.* grants .*sources, weights"),
    "count": ({"private_size": 59}, "is of 60 images, and the truth has 59"),
    "part": ({"part": (3, 2)}, "--part 3/2 is none of 60 images"),
    "classes": ({"truth": "synthetic-gaussian"}, "has the classes T-shirt/top, .* and the truth"),
    "public": ({"private_size": 10_000_000}, "leaves an attacker none like them"),
    "stage": ({"force": "nothing"}, "is not a stage"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_package_is_not_is_refused(key: OwnerKey, tmp_path: Path, name: str) -> None:
    released(key, tmp_path / "a")
    options, reason = REFUSED[name]
    with pytest.raises(UsageError, match=reason):
        attacked(tmp_path / "a", **options)


def test_an_attack_that_needs_the_mixtures_is_not_applicable(key: OwnerKey, tmp_path: Path) -> None:
    released(key, tmp_path / "a")
    record = attacked(tmp_path / "a", attack="lmmse")
    assert record.status == "not_applicable"
    assert str(record.error).startswith("ChannelNotGranted: 'lmmse' needs sources, weights")
    assert "--owner-key" in str(record.error)


def test_claims_about_mixtures_are_for_the_key_to_check() -> None:
    rows, images = torch.arange(2), torch.zeros(2, 1, 4, 4)
    claims = {"class_means": torch.zeros(3, 1, 4, 4), "weights": torch.ones(2)}
    left = judgeable(Answer(Reconstruction(images, rows=rows, claims=claims), {}, {}))
    assert left.reconstruction.rows is None
    assert set(left.reconstruction.claims) == {"class_means"}
    only = Reconstruction(claims={"weights": torch.ones(2)})
    with pytest.raises(NotApplicable, match="claims weights, which only the owner's key"):
        judgeable(Answer(only, {}, {}))
