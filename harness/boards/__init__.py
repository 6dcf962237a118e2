"""Boards: frozen protocols, the cells they consist of, and the folders that hold their records."""
