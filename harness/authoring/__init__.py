"""A plugin of one's own: the package that `harness new-plugin` writes."""
