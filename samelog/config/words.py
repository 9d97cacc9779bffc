"""Hints at the word that was meant."""

from __future__ import annotations

from difflib import get_close_matches


def nearest(word: str, words: list[str]) -> str:
    """A hint at the known word that `word` may have been meant to be, or nothing."""
    matches = get_close_matches(word, words, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""
