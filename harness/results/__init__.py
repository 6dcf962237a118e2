"""What records say together: rows, ranks and views. Pure."""
