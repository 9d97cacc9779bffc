"""The APIs that write, read and find records."""
