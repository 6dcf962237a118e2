"""Streams: reproducible, independent by name, and fair."""

from __future__ import annotations

import subprocess
import sys
from math import factorial

import pytest
from scipy import stats

from harness.rng import KeyedStream, board_key, derive, owner_key

torch = pytest.importorskip("torch")

UNLIKELY = 1e-4
"""A p-value under this would be bad luck; streams are fixed, so luck is drawn once."""


def stream(seed: int = 0, **axes: str | int) -> KeyedStream:
    return KeyedStream(board_key(seed)).stream(**axes)


def test_a_stream_is_named_by_its_axes_in_any_order() -> None:
    assert stream(stage="load", split="test").key == stream(split="test", stage="load").key


@pytest.mark.parametrize(
    "other", [stream(stage="release"), stream(1, stage="load"), stream(stage="load", more=1)]
)
def test_another_axis_another_seed_another_stream(other: KeyedStream) -> None:
    one = stream(stage="load").uniform(2000)
    assert abs(stats.pearsonr(one, other.uniform(2000)).statistic) < 0.1
    assert not torch.equal(one, stream(stage="load").stream(inner=1).uniform(2000))


def test_naming_a_stream_moves_nobody() -> None:
    one, two = stream(), stream()
    one.stream(new="plugin").uniform(10)
    assert torch.equal(one.uniform(5), two.uniform(5))


def test_a_stream_goes_on_where_it_was() -> None:
    one = stream()
    assert not torch.equal(one.uniform(5), one.uniform(5))


def test_axes_cannot_be_run_together() -> None:
    key = board_key(0)
    assert derive(key, {"a": "1", "b": "2"}) != derive(key, {"a": '1","b":"2'})
    assert derive(key, {"a": 1}) != derive(key, {"a": "1"})


def test_secrets_follow_the_owners_key_and_not_the_board() -> None:
    keys = [owner_key(0, None), owner_key(0, b"mine"), owner_key(0, b"yours"), board_key(0)]
    assert len(set(keys)) == len(keys)


def test_permutations_are_uniform() -> None:
    one = stream(what="permutation")
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(2400):
        order = tuple(one.permutation(4).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == factorial(4)
    assert stats.chisquare(list(counts.values())).pvalue > UNLIKELY


def test_signs_are_fair_and_nothing_else() -> None:
    signs = stream(what="signs").signs(100, 1001)
    assert set(signs.unique().tolist()) == {-1, 1}
    heads = int((signs == 1).sum())
    assert stats.binomtest(heads, signs.numel()).pvalue > UNLIKELY


def test_uniform_fills_the_unit_interval() -> None:
    values = stream(what="uniform").uniform(20_000)
    assert values.dtype == torch.float64
    assert float(values.min()) >= 0
    assert float(values.max()) < 1
    assert stats.kstest(values.numpy(), "uniform").pvalue > UNLIKELY


def test_integers_are_uniform_below_their_bound() -> None:
    values = stream(what="integers").integers(7, 7000)
    assert stats.chisquare(torch.bincount(values, minlength=7).numpy()).pvalue > UNLIKELY


def test_normals_have_the_moments_of_normals() -> None:
    values = stream(what="normal").normal(400, 500)
    assert values.dtype == torch.float32
    n = values.numel()
    assert abs(float(values.double().mean())) < 4 / n**0.5
    assert abs(float(values.double().var()) - 1) < 4 * (2 / n) ** 0.5
    assert stats.kstest(values[:20].flatten().numpy(), "norm").pvalue > UNLIKELY


def test_another_process_draws_the_same() -> None:
    script = (
        "from harness.rng import KeyedStream, board_key\n"
        "one = KeyedStream(board_key(3)).stream(stage='release', round=1)\n"
        "print(one.bytes(8).hex(), one.permutation(6).tolist(), one.seed())\n"
        "print(one.normal(3).tolist(), one.uniform(2).tolist(), one.signs(9).tolist())\n"
    )
    command = [sys.executable, "-c", script]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    one = stream(3, stage="release", round=1)
    assert printed == (
        f"{one.bytes(8).hex()} {one.permutation(6).tolist()} {one.seed()}\n"
        f"{one.normal(3).tolist()} {one.uniform(2).tolist()} {one.signs(9).tolist()}\n"
    )


def test_the_first_bytes_are_those_of_shake_256() -> None:
    """Written out from the definition, by hashlib alone."""
    from hashlib import sha256, shake_256

    root = sha256(b'encoding-harness board{"seed":0}').digest()
    key = sha256(root + b'{"stage":"load"}').digest()
    block = shake_256(key + (1).to_bytes(8, "little")).digest(16)
    assert stream(stage="load").bytes(16) == block
