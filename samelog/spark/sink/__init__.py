"""Writes rows to topics: the other direction of the data source `samelog`."""
