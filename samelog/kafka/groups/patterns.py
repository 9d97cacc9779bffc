"""Topics by regular expression, as consumers subscribe to them (KIP-848): RE2's syntax, which is
what Kafka takes, and RE2 itself, which needs time in proportion to what it reads, whatever the
expression. Python's own `re` can be made to run for ever.

Invariant: an expression is bounded in length and in memory before it is used, and means the whole
name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import re2

from samelog.sequencer.state.types import State

PATTERN_CHARACTERS_MAX = 1024
PROGRAM_BYTES_MAX = 1 << 20
CACHED = 1000


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


class TopicPatterns:
    """Which topics expressions mean now. What was found is kept until topics change."""

    def __init__(self, state: Callable[[], State]) -> None:
        """`state` gives the replicated state, which may be another one after a snapshot."""
        self._state = state
        self._version = (-1, -1)
        self._found: OrderedDict[str, list[str]] = OrderedDict()

    def topics(self, pattern: str) -> list[str]:
        """Names of topics, sorted. Raises InvalidPattern."""
        state = self._state()
        names = [*state.names, *(view.name for view in state.schemas.views.values())]
        version = state.next_partition, len(names)  # the first rises with every new topic
        if version != self._version:
            self._found.clear()
            self._version = version
        found = self._found.get(pattern)
        if found is None:
            expression = compiled(pattern)
            found = sorted(name for name in names if expression.fullmatch(name))
            self._found[pattern] = found
            if len(self._found) > CACHED:
                self._found.popitem(last=False)
        return found
