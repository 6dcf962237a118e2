"""Results as pictures, tables and pages."""
