"""How deep a text of TOML nests, before anybody parses it.

A parser in Python needs its stack for each level of lists, and memory that grows with the square of
a dotted key's length. Invariant: no string, comment or PEM text counts, whatever is in it; the time
is linear in the text's length.
"""

from __future__ import annotations

import re

DEPTH_MAX = 32
"""What samelog reads has 4 levels."""

_QUOTED = re.compile(
    r'"""(?:\\[\s\S]?|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''[\s\S]*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?"
    r"|\#[^\n]*"
)
"""Strings and comments; those without an end go on to where a parser gives up."""
_BRACKET = re.compile(r"[\[\]{}]")
_BETWEEN_KEYS = re.compile(r"[=,\[\]{}\n]")


def is_too_deep(text: str) -> bool:
    """Whether lists, tables or dotted keys go deeper than DEPTH_MAX."""
    bare = _QUOTED.sub("", text)
    if any(piece.count(".") > DEPTH_MAX for piece in _BETWEEN_KEYS.split(bare)):
        return True
    depth = 0
    for bracket in map(re.Match.group, _BRACKET.finditer(bare)):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > DEPTH_MAX:
            return True
    return False
