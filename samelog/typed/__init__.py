"""Typed topics: schemas and their versions, rows and values, filters (docs/typed.md)."""
