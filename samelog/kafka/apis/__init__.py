"""The APIs by theme: a handler for each key, the versions that are served, the responses."""
