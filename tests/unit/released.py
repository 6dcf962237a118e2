"""Packages as owners make them, of images that come with the harness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.packages.keys import OwnerKey
from harness.packages.ledger import draw_key
from harness.packages.releasing import Order, Pending, prepare
from harness.packages.statement import Statement
from harness.running.run import Observer

LAW = "singmix[tau=1e-2,noise=gaussian,radius=40]"
SIZES: dict[str, Any] = {"dataset": "fashion-mini", "private_size": 60, "threads": 1}


def ready(key: OwnerKey, order: Order | None = None, **options: Any) -> Pending:
    """A release that was not written yet."""
    asked = {**SIZES, **({} if order and order.like else {"defense": LAW}), **options}
    return prepare(key, order or Order(), Observer(), **asked)


def released(key: OwnerKey, out: Path, order: Order | None = None, **options: Any) -> Statement:
    """A release that was written."""
    return ready(key, order, **options).write(out, Observer())


def key_in(folder: Path, name: str = "clinic") -> OwnerKey:
    """A fresh key with its ledger."""
    return draw_key(folder / f"{name}.key")
