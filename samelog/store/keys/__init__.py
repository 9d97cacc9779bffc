"""Indexes of keys on disk."""
