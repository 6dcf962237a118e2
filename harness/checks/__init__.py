"""Integrity flags: what a reader of a record must know before trusting its numbers."""

from harness.checks.flag import Flag
from harness.checks.leakage import check_judgement

__all__ = ["Flag", "check_judgement"]
