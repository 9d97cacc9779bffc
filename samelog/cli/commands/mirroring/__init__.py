"""`samelog mirror`."""
