"""Compaction of merged logs: what is due, and doing it."""
