"""Where runs of publishers end, as nodes tell each other.

A run may end in thousands of partitions: a turn of the event loop sends, or takes, `ENDS_TOLD` of
them. A message that was dropped is sent again, because nodes repeat the ends until the run is
closed.

Invariant: the ends of a run are handed on together, never some of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

from samelog.runtime.loop import spawn
from samelog.sequencer.events import Ends
from samelog.wire.bounds import ENDS_TOLD, RunEnd
from samelog.wire.peer_messages import RunEnded


class EndedRuns:
    """What one replica tells and hears."""

    def __init__(self) -> None:
        self._telling: set[tuple[int | None, str]] = set()
        """(peer, session) of which more ends are sent in the next turn; None: to all peers."""
        self._heard: dict[tuple[int, str], tuple[RunEnded, Ends]] = {}
        """(peer, session) -> its newest message, and the ends so far, if there are more."""

    def tell(
        self,
        session: str,
        run_id: str,
        ends: Ends,
        send: Callable[[RunEnded], object],
        *,
        to: int | None = None,
    ) -> None:
        """Send the ends of a run, unless those of the session are being sent to this peer."""
        if (to, session) in self._telling:
            return
        messages = _messages(session, run_id, ends)
        send(next(messages))
        if len(ends) > ENDS_TOLD:
            self._telling.add((to, session))
            spawn(self._tell_rest((to, session), messages, send), "tell ends of a run")

    async def _tell_rest(
        self,
        key: tuple[int | None, str],
        messages: Iterator[RunEnded],
        send: Callable[[RunEnded], object],
    ) -> None:
        try:
            for message in messages:
                await asyncio.sleep(0)
                send(message)
        finally:
            self._telling.discard(key)

    def hear(self, peer: int, message: RunEnded) -> Ends | None:
        """Take some ends of a run. Returns all of them once they are known."""
        told = {(end.topic, end.partition): (end.roll, end.byte) for end in message.ends}
        last, ends = self._heard.pop((peer, message.session), (message, told))
        if (last.run_id, last.count) != (message.run_id, message.count):
            ends = told
        ends.update(told)
        if len(ends) >= message.count:
            return ends
        self._heard[peer, message.session] = message, ends
        return None

    def forget(self, peer: int) -> None:
        """The peer is gone, and tells everything again when it comes back."""
        for key in [key for key in self._heard if key[0] == peer]:
            del self._heard[key]


def _messages(session: str, run_id: str, ends: Ends) -> Iterator[RunEnded]:
    """At least one. Each is made when it is its turn."""
    items = iter(ends.items())
    for _ in range(0, len(ends) or 1, ENDS_TOLD):
        part = tuple(RunEnd(*name, *end) for name, end in islice(items, ENDS_TOLD))
        yield RunEnded(session, run_id, part, len(ends))
