"""Patterns of LIKE as expressions of RE2, which matches in linear time.

pyarrow's own `match_like` takes some patterns with backslashes otherwise than SQL does. Invariant:
without ESCAPE no sign escapes, as in DuckDB.
"""

from __future__ import annotations

from samelog.typed.filters.operands import BadFilter

_WILD = {"%": ".*", "_": "."}


def expression_of(pattern: str, escape: object) -> str:
    """What matches the same texts. Raises BadFilter."""
    if escape is not None and not (isinstance(escape, str) and len(escape) == 1):
        raise BadFilter("ESCAPE has one character")
    found, signs = [], iter(pattern)
    for sign in signs:
        if sign == escape:
            escaped = next(signs, None)
            if escaped is None:
                raise BadFilter("a pattern ends with its escape sign")
            found.append(_literal(escaped))
        else:
            found.append(_WILD.get(sign) or _literal(sign))
    return rf"(?s)\A{''.join(found)}\z"


def _literal(sign: str) -> str:
    return sign if sign.isalnum() else f"\\x{{{ord(sign):x}}}"
