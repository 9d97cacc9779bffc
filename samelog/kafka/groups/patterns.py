"""Topics by regular expression, as consumers subscribe to them (KIP-848).

Invariant: an expression means the whole name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from samelog.config.expressions import compiled
from samelog.sequencer.state.types import State

CACHED = 1000


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
        views = state.schemas.views.values()
        count = len(state.names) + len(views)
        version = state.next_partition, count  # the first rises with every new topic
        if version != self._version:
            self._found.clear()
            self._version = version
        found = self._found.get(pattern)
        if found is None:
            expression = compiled(pattern)
            names = [*state.names, *(view.name for view in views)]
            found = sorted(name for name in names if expression.fullmatch(name))
            self._found[pattern] = found
            if len(self._found) > CACHED:
                self._found.popitem(last=False)
        return found
