"""Built-in defenses."""
