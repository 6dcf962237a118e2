"""Integrity flags: what a reader of a record must know before trusting its numbers."""

from harness.checks.consistency import Answer, check_consistency, sharper, still_rising
from harness.checks.flag import Flag
from harness.checks.leakage import check_judgement

__all__ = ["Answer", "Flag", "check_consistency", "check_judgement", "sharper", "still_rising"]
