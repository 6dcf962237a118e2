"""Stands in for setuptools while pip downloads an archive; builds nothing, runs nothing."""

__version__ = "0"
