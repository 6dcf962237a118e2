"""The processes in which attacks run, and what is handed to them."""
