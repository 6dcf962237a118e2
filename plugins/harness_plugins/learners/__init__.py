"""Learners: what a server makes of a release."""
