"""What becomes of a step, as it crosses from one process to another."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from harness.api import errors
from harness.api.errors import HarnessError


class Outcome(BaseModel):
    """`done`: it is in the store, a cell's last step under `record`. Else `error` says why not.

    `fatal` concerns more than this cell (a full disk, corrupt bytes); `kind` is the error's class.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Literal["done", "failed", "timeout", "not_applicable", "fatal"]
    error: str = ""
    kind: str = ""
    record: str = ""
    seconds: float = 0.0

    def raised(self) -> HarnessError:
        """A fatal error again, with its class and exit code; of an unknown class, with its name."""
        found = getattr(errors, self.kind, None)
        if isinstance(found, type) and issubclass(found, HarnessError):
            return found(self.error)
        return HarnessError(f"{self.kind}: {self.error}")


def outcome_of(error: HarnessError) -> Outcome:
    """How a step ended that raised."""
    return Outcome(status=error.status, error=str(error), kind=type(error).__name__)
