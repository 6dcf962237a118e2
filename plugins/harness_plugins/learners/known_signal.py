"""Data of a known law, of which the best accuracy is known: what learners are tried on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KNOWN = "synthetic-gaussian[d=64,n=6000,n_test=2000,apart=3]"
"""The best classifier names 90 % rightly."""
COARSE = "synthetic-gaussian[d=1024,n=6000,n_test=2000,apart=16]"
"""Sixteen values averaged to one leave a quarter of the distance, and so no more than KNOWN has."""
SIZES: Mapping[str, Any] = {"private_size": 4000, "public_size": 2000, "test_size": 2000}
