"""Where cells run."""
