"""The built-in plugins: one package each, found through entry points like anyone's."""
