"""One text for one value, and its hash."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: one text for one value."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_of(value: Any) -> str:
    """Hash of a JSON value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
