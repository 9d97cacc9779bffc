"""What simulated promotions must never lead to."""

from __future__ import annotations


class Harm(Exception):
    """What must never be."""
