"""The table of placement in the replicated state: what commands change in it."""
