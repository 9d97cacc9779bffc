"""The process that checks records by their topic's schema, and who asks it (docs/typed.md)."""
