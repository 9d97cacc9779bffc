"""Who is told when a stream changes: what all streams that are served have in common.

Invariant: a listener may add or remove listeners while it is told.
"""

from __future__ import annotations

from samelog.replicator.interfaces import StreamListener


class Listening:
    """The listeners of one stream."""

    def __init__(self) -> None:
        self._listeners: list[StreamListener] = []

    def add_listener(self, listener: StreamListener) -> None:
        """Tell `listener` when the log grew, or `fault` is set."""
        self._listeners.append(listener)

    def remove_listener(self, listener: StreamListener) -> None:
        """Tell it no more."""
        self._listeners.remove(listener)

    def changed(self) -> None:
        """Tell everybody who listens."""
        for listener in tuple(self._listeners):
            listener()
