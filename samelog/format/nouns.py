"""Numbers with nouns in messages."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return `1 record` or `2,000 records`; `plural` where that is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
