"""A flag: a short name to filter by and a sentence to read."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Flag(BaseModel):
    """Stored in the record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    message: str
