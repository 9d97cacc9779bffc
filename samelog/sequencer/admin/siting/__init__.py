"""Answers administrators about sites: which there are, and their promotion."""
