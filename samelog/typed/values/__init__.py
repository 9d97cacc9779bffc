"""Rows as values and back, in the four formats."""
