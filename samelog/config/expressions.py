"""Regular expressions of others: RE2's syntax, which is what Kafka takes, and RE2 itself, which
needs time in proportion to what it reads, whatever the expression. Python's own `re` can be made
to run for ever.

Invariant: an expression is bounded in length and in memory before it is used.
"""

from __future__ import annotations

from typing import Any

import re2

PATTERN_CHARACTERS_MAX = 1024
PROGRAM_BYTES_MAX = 1 << 20


class InvalidPattern(Exception):
    """The expression cannot be used; the message says why."""


def compiled(pattern: str) -> Any:
    """The expression as RE2 has it. Raises InvalidPattern."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        text = f"{len(pattern)} characters; an expression has at most {PATTERN_CHARACTERS_MAX}"
        raise InvalidPattern(text)
    options = re2.Options()
    options.log_errors, options.max_mem = False, PROGRAM_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidPattern(_reason(error)) from error
    except UnicodeError as error:
        raise InvalidPattern("it is no text") from error


def _reason(error: Exception) -> str:
    found = error.args[0] if error.args else b""
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found)
