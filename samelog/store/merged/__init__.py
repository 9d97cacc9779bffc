"""Merged logs: one directory for each partition, at nodes and at subscribers."""
