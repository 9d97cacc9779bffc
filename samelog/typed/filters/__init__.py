"""Filters of records: a subset of SQL's WHERE (docs/typed.md, "Filters")."""
