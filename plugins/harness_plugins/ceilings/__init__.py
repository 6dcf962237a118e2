"""What no attack exceeds, from the law of a defense."""
