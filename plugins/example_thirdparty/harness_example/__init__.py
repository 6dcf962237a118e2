"""Plugins for `encoding-harness`, small enough to copy."""
