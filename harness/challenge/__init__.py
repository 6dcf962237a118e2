"""Challenges: encodings for strangers to attack, and a commitment to what they hide."""
