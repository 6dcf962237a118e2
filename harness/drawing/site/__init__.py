"""Boards as pages: one self-contained file each, read without a server, a network or JavaScript."""

from harness.drawing.site.pages import render, render_index

__all__ = ["render", "render_index"]
