"""Records as tables, pictures and pages."""
