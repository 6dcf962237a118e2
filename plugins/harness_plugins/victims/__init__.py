"""Built-in victims."""
