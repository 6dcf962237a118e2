"""Damage to files that people hand in: wrong values, keys and types, cut and flipped bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

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


Strategy = Callable[[bytes], st.SearchStrategy[bytes]]
