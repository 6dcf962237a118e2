"""What attacks on released features share."""
