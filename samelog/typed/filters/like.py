"""Patterns of LIKE, from SQL's form to Arrow's, whose escape sign is always a backslash.

Invariant: without ESCAPE no sign escapes, as in DuckDB.
"""

from __future__ import annotations

from samelog.typed.filters.comparing import BadFilter


def arrow_pattern(pattern: str, escape: object) -> str:
    """The same pattern for Arrow. Raises BadFilter."""
    if escape is not None and not (isinstance(escape, str) and len(escape) == 1):
        raise BadFilter("ESCAPE has one character")
    found, signs = [], iter(pattern)
    for sign in signs:
        if sign == escape:
            literal = next(signs, None)
            if literal is None:
                raise BadFilter("a pattern ends with its escape sign")
            found.append(_literal(literal))
        else:
            found.append(sign if sign in "%_" else _literal(sign))
    return "".join(found)


def _literal(sign: str) -> str:
    return "\\" + sign if sign in "%_\\" else sign
