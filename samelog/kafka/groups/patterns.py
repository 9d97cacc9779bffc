"""Topics by regular expression, as consumers subscribe to them (KIP-848).

Invariant: an expression means the whole name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from samelog.config.expressions import compiled
from samelog.format.steps import StepWork
from samelog.sequencer.state.types import State

CACHED = 1000


def topics_version(state: State) -> tuple[int, int]:
    """Return what changes with every topic, partition or view that is created or deleted: the first
    number rises with each new one, and between two rises the second only falls.
    """
    return state.partitions.next_number, len(state.topics.by_name) + len(state.views.by_id)


class TopicPatterns:
    """Which topics expressions mean now. What was found is kept until topics change."""

    def __init__(self, state: Callable[[], State]) -> None:
        """`state` gives the replicated state, which may be another one after a snapshot."""
        self._state = state
        self._version = (-1, -1)
        self._found: OrderedDict[str, list[str]] = OrderedDict()

    def topics(self, pattern: str) -> StepWork[list[str]]:
        """Find the names of topics, one name a step; return them sorted. Raises InvalidPattern."""
        state = self._state()
        version = topics_version(state)
        if version != self._version:
            self._found.clear()
            self._version = version
        found = self._found.get(pattern)
        if found is None:
            expression, found = compiled(pattern), []
            for name in [
                *state.topics.by_name,
                *(view.name for view in state.views.by_id.values()),
            ]:
                if expression.fullmatch(name):
                    found.append(name)
                yield
            found.sort()
            if version == self._version:
                self._found[pattern] = found
                if len(self._found) > CACHED:
                    self._found.popitem(last=False)
        return found
