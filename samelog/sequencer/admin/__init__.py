"""Answers administrators."""
