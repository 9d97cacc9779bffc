"""The APIs of consumer groups."""
