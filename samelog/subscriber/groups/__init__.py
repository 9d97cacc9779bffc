"""Subscribers that share partitions: members of consumer groups."""
