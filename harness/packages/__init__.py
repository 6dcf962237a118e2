"""Releases as files that leave their owner, keys and ledgers that stay, and models made of them."""
