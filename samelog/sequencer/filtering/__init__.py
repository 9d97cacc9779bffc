"""Filters that a node evaluates for who reads from it (docs/typed.md, "Filters")."""
