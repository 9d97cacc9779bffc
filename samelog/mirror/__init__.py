"""The sidecar that keeps topics of one cluster as mirrors in another (docs/mirror.md)."""
