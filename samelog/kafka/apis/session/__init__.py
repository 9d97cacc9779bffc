"""The APIs that begin a connection: versions and authentication."""
