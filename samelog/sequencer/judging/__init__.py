"""Has records checked by their topic's schema before a leader plans them (docs/typed.md)."""
