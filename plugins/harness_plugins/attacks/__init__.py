"""Built-in attacks."""
