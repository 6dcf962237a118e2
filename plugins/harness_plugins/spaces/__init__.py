"""Built-in spaces."""
