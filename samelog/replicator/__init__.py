"""Ships logs: push and pull, client and server."""
