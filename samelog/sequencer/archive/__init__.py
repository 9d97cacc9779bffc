"""Drives archiving: rounds of the leader, truncation and history on every node."""
