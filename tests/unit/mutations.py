"""Damage to files that people hand in: wrong values, keys and types, cut and flipped bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from harness.store.provenance import sha256_of
from harness.store.record import fingerprint, rest_of

HUGE = b"9" * 5000
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**40, -1, 0, 2**63, 1e308, 5e-324]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["\ud800", "\x00", "../../etc/passwd", "<script>", "mixup[", "∞", "[" * 2000]),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
RAW = st.sampled_from(
    [b"", b"\xff\xfe", b"\x00", b"NaN", b"{", b"]", b'"', b"[" * 20_000, b"=1\n", HUGE]
)


def steps(value: Any) -> list[tuple[Any, ...]]:
    """The way to every part of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, ...]] = []
    for key, part in items:
        found.append((key,))
        if isinstance(part, dict | list):
            found += [(key, *rest) for rest in steps(part)]
    return found


@st.composite
def changed_values(draw: st.DrawFn, original: dict[str, Any]) -> dict[str, Any]:
    """The same values but for one: another value, none, or under another name."""
    values = deepcopy(original)
    *way, last = draw(st.sampled_from(steps(values)))
    holder: Any = values
    for key in way:
        holder = holder[key]
    what = draw(st.sampled_from(["replace", "replace", "replace", "drop", "add", "rename"]))
    if what == "replace" or not isinstance(holder, dict):
        holder[last] = draw(JUNK)
    elif what == "add":
        holder[draw(st.text(max_size=8))] = draw(JUNK)
    else:
        value = holder.pop(last)
        if what == "rename":
            holder[draw(st.text(max_size=8))] = value
    return values


@st.composite
def changed_bytes(draw: st.DrawFn, original: bytes) -> bytes:
    """The same bytes, cut short, or with others in the middle of them."""
    start = draw(st.integers(0, len(original)))
    if draw(st.booleans()):
        return original[:start]
    end = min(len(original), start + draw(st.integers(0, 8)))
    return original[:start] + draw(st.one_of(RAW, st.binary(max_size=8))) + original[end:]


def resealed(values: dict[str, Any]) -> dict[str, Any]:
    """A record with the hashes that it should then have."""
    return values | {"id": fingerprint(values), "rest": rest_of(values)}


def as_json(values: Any) -> bytes:
    """As somebody's JSON library writes it, NaN and lone surrogates included."""
    return json.dumps(values).encode()


def damaged_json(original: bytes) -> st.SearchStrategy[bytes]:
    """A JSON file after somebody was at it."""
    values = json.loads(original)
    return st.one_of(changed_values(values).map(as_json), changed_bytes(original))


def damaged_text(original: bytes) -> st.SearchStrategy[bytes]:
    """A text file after somebody was at it: bytes, or one token for another."""
    tokens = sorted({*original.decode().replace(",", " ").split()})

    def swap(pair: tuple[str, Any]) -> bytes:
        old, new = pair
        text = new if isinstance(new, str) else json.dumps(new)
        return original.replace(old.encode(), text.encode("utf-8", "surrogatepass"), 1)

    swapped = st.tuples(st.sampled_from(tokens), JUNK)
    return st.one_of(swapped.map(swap), changed_bytes(original))


NAMES = st.sampled_from(
    ["unranked", "below_null", "beyond_the_guarantee", "constant_output", "still_rising", "x"]
)
ENDS = st.sampled_from(["not_applicable", "failed", "timeout"])
BARE: dict[str, Any] = {
    "privacy": {},
    "by_image": {},
    "utility": None,
    "companions": {},
    "artifacts": {},
    "findings": {},
    "identification": None,
    "channels_used": [],
    "flags": [],
}
"""What a record without a result says."""


@st.composite
def turned(draw: st.DrawFn, record: dict[str, Any]) -> dict[str, Any]:
    """A record whose result is made away with, or with other flags, under an id that is right."""
    values = deepcopy(record)
    if draw(st.booleans()):
        told = draw(st.sampled_from(["it cannot be", "it reads features", "no\n\n# Heading"]))
        values |= {**BARE, "status": draw(ENDS), "error": told}
    else:
        names = draw(st.lists(NAMES, max_size=2, unique=True))
        values["flags"] = [{"name": name, "message": f"says {name}"} for name in names]
    return resealed(values)


@st.composite
def excused(draw: st.DrawFn, report: dict[str, Any]) -> dict[str, Any]:
    """A report on controls that were not passed, made to say that they were."""
    values = deepcopy(report)
    result = draw(st.sampled_from(values["results"]))
    how = draw(st.lists(st.sampled_from(sorted(EXCUSES)), min_size=1, max_size=3, unique=True))
    for name in how:
        EXCUSES[name](values, result)
    values["created"] = draw(st.sampled_from(["", "2099-01-01T00:00:00+00:00"]))
    kept = {k: v for k, v in values.items() if k not in ("id", "created", "code", "packages")}
    return values | {"id": sha256_of(kept)}


EXCUSES: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "passed": lambda v, _: v.update(passed=True),
    "each passed": lambda v, _: [each.update(passed=True) for each in v["results"]],
    "bar": lambda _, r: r["control"].update(at_least=0.1) or r.update(passed=True),
    "metric": lambda _, r: r["control"].update(metric="mse") or r.update(passed=True),
    "easier": lambda _, r: r["control"].update(defense="none", options={"private_size": 10}),
    "other side": lambda _, r: r.update(leaks_more="lower", passed=True),
    "reached": lambda _, r: r.update(reached=99.0, passed=True),
    "dropped": lambda v, r: v.update(results=[each for each in v["results"] if each is not r]),
    "none": lambda v, _: v.update(results=[], passed=True),
}
"""Ways to excuse an attack, each of them leaving the report a report."""
