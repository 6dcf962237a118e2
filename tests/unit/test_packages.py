"""Packages from strangers: whatever is done to one, a sentence, and no changed byte is accepted."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from pydantic import ValidationError
from released import key_in, released

from harness import load_model
from harness.api import HarnessError, IntegrityError, UsageError
from harness.packages.learning import Plan, learn
from harness.packages.package import Package
from harness.packages.statement import SAID, Statement
from harness.running.run import Observer
from harness.store.provenance import canonical_json

TOTAL = int(os.environ.get("HARNESS_MUTATIONS", "1000"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packages")


@pytest.fixture(scope="module")
def whole(folder: Path) -> bytes:
    path = folder / "whole.release"
    released(key_in(folder), path, rounds=2, private_size=8)
    return path.read_bytes()


@pytest.fixture(scope="module")
def said(folder: Path, whole: bytes) -> Statement:
    with Package.open(folder / "whole.release") as package:
        return package.said


def read(path: Path) -> None:
    """All that anybody does with a package before it is believed."""
    with Package.open(path) as package:
        package.check()


def written(folder: Path, data: bytes) -> Path:
    path = folder / "mutant.release"
    path.write_bytes(data)
    return path


def with_header(header: bytes, whole: bytes) -> bytes:
    """The same tensors under another header."""
    length = int.from_bytes(whole[:8], "little")
    return len(header).to_bytes(8, "little") + header + whole[8 + length :]


def header_of(whole: bytes) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    return values


JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**12, 2**63, 10**400, 1.5, float("nan"), float("inf"), "", "x" * 5000),
    *("\x1b[2J", "../../etc/passwd", "\ud800", [], {}, [[]], [10**6] * 6, {"a": {"b": 1}}),
)


def mutated(rng: random.Random, whole: bytes, said: Statement) -> bytes:
    """One of many kinds of damage: bytes, lengths, values of the header or of the statement."""
    kind = rng.randrange(6)
    data = bytearray(whole)
    if kind == 0:
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[rng.randrange(len(data)) :]
    elif kind == 2:
        data[:8] = rng.choice([0, 1, len(data), 2**40, 2**63, rng.randrange(9000)]).to_bytes(
            8, "little"
        )
    elif kind == 3:
        at = rng.randrange(len(data))
        data[at:at] = rng.randbytes(rng.randrange(1, 64))
    elif kind == 4:
        header = header_of(whole)
        name = rng.choice(sorted(header))
        header[rng.choice([name, "more"])] = rng.choice([*JUNK, header[name]])
        data = bytearray(with_header(json.dumps(header).encode(), whole))
    else:
        values = said.model_dump(mode="json", by_alias=True)
        change(rng, values)
        try:
            text = canonical_json(values)
        except ValueError:  # NaN, of which JSON has no word: as Python writes it
            text = json.dumps(values)
        header = {**header_of(whole), "__metadata__": {SAID: text}}
        data = bytearray(with_header(json.dumps(header).encode("ascii"), whole))
    return bytes(data)


def change(rng: random.Random, values: Any, junk: tuple[Any, ...] = JUNK) -> None:
    """Another value somewhere in a tree of JSON."""
    while True:
        key = rng.choice(sorted(values)) if isinstance(values, dict) else rng.randrange(len(values))
        inner = values[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            values = inner
            continue
        values[key] = rng.choice(junk)
        return


LIKELY: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 7, 16, 28, 56, 0.5, 1e-6, 1e6, 400.0, -1.0, "", "mixup", "none"),
    *("pixels", "sphere", "any", "a,b=1", "x[y]", "dog", [1, 28, 28], [3, 28, 28], [28], [0.3], {}),
)
"""What a forger says who knows what a statement is made of."""


def forged(rng: random.Random, whole: bytes, said: Statement) -> bytes | None:
    """A package whose statement says something else, sealed anew; None where no statement does."""
    values = said.model_dump(mode="json", by_alias=True)
    change(rng, values, LIKELY)
    try:
        other = Statement.model_validate_json(json.dumps(values))
    except ValidationError:
        return None
    length = int.from_bytes(whole[:8], "little")
    return other.sealed(other.hashes).header() + whole[8 + length :]


def test_what_a_forger_seals_anew_is_refused_in_a_line_or_gives_a_sound_model(
    folder: Path, whole: bytes, said: Statement, tmp_path: Path
) -> None:
    rng = random.Random(21)
    ended = {"refused": 0, "read": 0, "not learned": 0, "learned": 0}
    for number in range(TOTAL):
        data = forged(rng, whole, said)
        if data is None or data == whole:
            continue
        path = written(folder, data)
        try:
            read(path)
        except (UsageError, IntegrityError) as error:
            assert_one_line(error)
            ended["refused"] += 1
            continue
        ended["read"] += 1
        if ended["read"] % 8:
            continue
        try:
            learn((path,), Plan(learner="classmeans"), tmp_path / f"{number}", Observer())
        except UsageError as error:
            assert_one_line(error)
            ended["not learned"] += 1
            continue
        model = load_model(tmp_path / f"{number}")
        assert len(set(model.classes)) == len(model.classes) == 10
        logits = model.logits(torch.zeros(3, *model.described.preprocessing.shape))
        assert logits.shape == (3, 10)
        assert bool(logits.isfinite().all())
        ended["learned"] += 1
    assert min(ended.values()) > 0, ended


def assert_one_line(error: HarnessError) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 1500


def test_what_a_statement_may_not_say(said: Statement) -> None:
    """Each of these would be printed, written on a command line, or divided by."""
    steps, law = said.preprocessing, said.law
    lies: tuple[dict[str, Any], ...] = (
        {"classes": ["cat", "cat"]},
        {"classes": ["cat", ""]},
        {"preprocessing": {**steps.model_dump(), "std": [1e-9]}},
        {"preprocessing": {**steps.model_dump(), "mean": [1e9]}},
        {"preprocessing": {**steps.model_dump(), "low": 1.0, "high": 0.0}},
        {"law": {**law.model_dump(), "name": "mixup+noise"}},
        {"law": {**law.model_dump(), "config": {"noise": "sphere,tau=1"}}},
        {"law": {**law.model_dump(), "config": {"noise]": 1}}},
        {"promise": {"rounds": 1, "ceilings": {"dp": {"reason": "x" * 2000}}}},
    )
    values = said.model_dump(by_alias=True)
    assert Statement.model_validate(values) == said
    for lie in lies:
        with pytest.raises(ValidationError):
            Statement.model_validate({**values, **lie})


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "image": ({"image": (1, 14, 14)}, "do not become"),
    "shape": ({"image": (1, 14, 56), "shape": (1, 14, 56)}, "are not what the law"),
}


@pytest.mark.parametrize("lie", LIES)
def test_shapes_that_no_law_makes_are_not_learned_from(
    folder: Path, whole: bytes, said: Statement, tmp_path: Path, lie: str
) -> None:
    changed, fault = LIES[lie]
    steps = said.preprocessing.model_copy(update=changed)
    length = int.from_bytes(whole[:8], "little")
    path = written(folder, resealed(said, preprocessing=steps) + whole[8 + length :])
    with pytest.raises(UsageError, match=fault):
        learn((path,), Plan(learner="classmeans"), tmp_path / "model", Observer())


def test_no_mutant_is_accepted_and_each_is_refused_in_a_line(
    folder: Path, whole: bytes, said: Statement
) -> None:
    rng = random.Random(20)
    codes = {2: 0, 3: 0}
    for _ in range(TOTAL):
        data = mutated(rng, whole, said)
        if data == whole:
            continue
        with pytest.raises((UsageError, IntegrityError)) as refused:
            read(written(folder, data))
        assert "\n" not in str(refused.value)
        assert str(refused.value).isprintable()
        codes[refused.value.exit_code] += 1
    assert min(codes.values()) > TOTAL / 20


def test_the_whole_one_is_accepted(folder: Path, whole: bytes) -> None:
    read(written(folder, whole))


def resealed(said: Statement, **changed: Any) -> bytes:
    """A header that follows from what it says, as a forger makes it."""
    forged = said.model_copy(update=changed)
    return forged.sealed(forged.hashes).header()


FORGED: dict[str, dict[str, Any]] = {
    "10^12 rows": {"rows": 10**12},
    "10^12 numbers a row": {"shape": (10**6, 10**6)},
    "fewer rows": {"rows": 7},
    "more rounds": {"rounds": 3},
    "fewer rounds": {"rounds": 1},
}


@pytest.mark.parametrize("lie", FORGED)
def test_a_forger_who_lies_about_sizes_costs_nothing(
    folder: Path, whole: bytes, said: Statement, lie: str
) -> None:
    length = int.from_bytes(whole[:8], "little")
    path = written(folder, resealed(said, **FORGED[lie]) + whole[8 + length :])
    process = psutil.Process()
    before = process.memory_info().rss
    with pytest.raises(UsageError, match=r"bytes, and what it says takes|one hash for each"):
        Package.open(path)
    assert process.memory_info().rss - before < 50e6


def with_values(said: Statement, whole: bytes, name: str, values: float) -> bytes:
    """A package whose first number of a tensor is another, hashed and sealed anew."""
    import hashlib

    length = int.from_bytes(whole[:8], "little")
    data = bytearray(whole[8 + length :])
    place = next(place for place in said.places() if place.name == name)
    data[place.begin : place.begin + 4] = np.float32(values).tobytes()
    digest = hashlib.sha256(data[place.begin : place.begin + place.bytes]).hexdigest()
    return said.sealed({**said.hashes, name: digest}).header() + bytes(data)


@pytest.mark.parametrize(
    ("name", "value", "flaw"),
    [
        ("encodings.1", float("nan"), "not finite"),
        ("encodings.0", float("inf"), "not finite"),
        ("labels.0", -0.5, "negative or sum to more than one"),
        ("labels.1", 1.5, "negative or sum to more than one"),
    ],
)
def test_numbers_that_no_defense_makes(
    folder: Path, whole: bytes, said: Statement, name: str, value: float, flaw: str
) -> None:
    with pytest.raises(IntegrityError, match=flaw):
        read(written(folder, with_values(said, whole, name, value)))


def no_file(path: Path) -> Path:
    return path / "nowhere"


def link(path: Path) -> Path:
    where = path / "link.release"
    where.symlink_to(path / "whole.release")
    return where


def pipe(path: Path) -> Path:
    where = path / "pipe.release"
    os.mkfifo(where)
    return where


def device(path: Path) -> Path:
    return Path("/dev/zero")


def empty(path: Path) -> Path:
    return written(path, b"")


def folder_itself(path: Path) -> Path:
    return path


@pytest.mark.parametrize("made", [no_file, link, pipe, device, empty, folder_itself])
def test_what_is_no_package_is_refused_at_once(
    folder: Path, whole: bytes, made: Callable[[Path], Path]
) -> None:
    with pytest.raises(HarnessError) as refused:
        Package.open(made(folder))
    assert refused.value.exit_code == 2


def test_another_schema_is_named(folder: Path, whole: bytes, said: Statement) -> None:
    values = {**said.model_dump(mode="json", by_alias=True), "schema": 2}
    header = json.dumps({**header_of(whole), "__metadata__": {SAID: canonical_json(values)}})
    with pytest.raises(UsageError, match="schema: Input should be 1"):
        Package.open(written(folder, with_header(header.encode(), whole)))


def test_names_that_would_move_the_cursor_are_refused(
    folder: Path, whole: bytes, said: Statement
) -> None:
    forged = resealed(said, classes=("\x1b[2J", *said.classes[1:]))
    length = int.from_bytes(whole[:8], "little")
    with pytest.raises(UsageError, match="cannot be printed") as refused:
        Package.open(written(folder, forged + whole[8 + length :]))
    assert "\x1b" not in str(refused.value)
